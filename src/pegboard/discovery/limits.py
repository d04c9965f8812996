"""Limits that several modules of `discovery` share."""

SEARCH_USUAL_HITS = 8  # hits of one query by default
SEARCH_QUERY_CHARS = 4_000  # characters of a query that the index reads
SEARCH_QUERIES = 5  # queries of one searchTools call
BATCH_CALLS_AT_ONCE = 8  # parallel calls of one useTools call
