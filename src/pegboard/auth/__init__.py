"""auth: what a credential proves, and what it may do here. Knows no server: that asks with a token and gets a grant."""
