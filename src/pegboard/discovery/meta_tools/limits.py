"""Limits that several modules of `discovery/meta_tools` share."""

SEARCH_QUERIES = 5  # queries of one searchTools call
BATCH_CALLS_AT_ONCE = 8  # parallel calls of one useTools call
