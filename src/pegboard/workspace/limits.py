"""Limits that several modules of `workspace` share. Those that an operator may change are in `Bounds`."""

from pegboard.model.bounds import KIB

DOCUMENT_CHARS = 20_000_000  # of the text of one document
DOCUMENT_TITLE_CHARS = 200  # of a title, an author or the name of a column
DOCUMENT_STORE_BUSY_S = 30.0  # that a writer waits for another
DOCUMENT_STORE_CONNECTIONS = 8  # kept open for readers
DOCUMENT_RESULT_BYTES = 64 * KIB  # of one answer
DOCUMENT_READ_CHARS = 50_000  # of one document, read at once
