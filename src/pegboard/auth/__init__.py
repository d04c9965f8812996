"""auth: what a credential proves, and what it may do here. Knows no door: those ask with a token and get a grant."""
