"""Limits that several modules of `sources/openapi` share. Those that an operator may change are in `Bounds`."""

OPENAPI_DOCUMENT_KEYS = 4_000_000  # of a whole description, where `json_keys` is for a message
OPENAPI_DOCUMENT_VALUES = 8_000_000  # of it, where `json_values` is for a message
OPENAPI_DOCUMENT_LEVELS = 200  # of lists and objects in it
