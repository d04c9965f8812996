"""Discovery: find the right tool among thousands."""
