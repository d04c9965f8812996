"""Limits that several modules of `discovery/meta_tools` share. Those that an operator may change are in `Bounds`."""

SEARCH_QUERIES = 5  # of one searchTools
BATCH_CALLS_AT_ONCE = 8  # of one useTools
