"""Questions to the client in the middle of a request, in both eras."""
