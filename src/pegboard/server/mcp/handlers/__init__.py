"""What each method answers. A handler knows nothing of the transport."""
