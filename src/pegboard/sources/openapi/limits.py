"""Limits that several modules of `sources/openapi` share."""

OPENAPI_REF_HOPS = 20  # consecutive references that are followed
OPENAPI_DOCUMENT_KEYS = 4_000_000  # keys of a whole description (`json_keys` is the limit of a message)
OPENAPI_DOCUMENT_VALUES = 8_000_000  # values of a whole description (`json_values` is the limit of a message)
OPENAPI_DOCUMENT_LEVELS = 200  # nesting levels of a description
