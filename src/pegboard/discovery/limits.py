"""Limits that several modules of `discovery` share. Those that an operator may change are in `Bounds`."""

SEARCH_USUAL_HITS = 8  # of one query, unless it says otherwise
SEARCH_QUERY_CHARS = 4_000  # that the index reads
