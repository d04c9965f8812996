"""limits: where rate limits are counted."""
