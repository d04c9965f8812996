"""limits: stores that count calls for rate limits."""
