"""Limits that several modules of `discovery` share."""

SEARCH_USUAL_HITS = 8  # hits of one query by default
SEARCH_QUERY_CHARS = 4_000  # characters of a query that the index reads
