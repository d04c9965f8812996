"""sources: the doors in, one file a kind."""
