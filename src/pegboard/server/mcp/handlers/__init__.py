"""The handlers of each method. They do not know the transport."""
