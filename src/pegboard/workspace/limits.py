"""Limits that several modules of `workspace` share."""

from pegboard.model.bounds import KIB, MIB

DOCUMENT_PLACES = 2_000_000_000  # the last place in a document's text, whatever `limits.document_chars` is
DOCUMENT_TITLE_CHARS = 200  # characters of a title, an author or a column name
DOCUMENT_STORE_BUSY_S = 30.0  # seconds that a writer waits for another
DOCUMENT_STORE_CONNECTIONS = 8  # open connections for readers
DOCUMENT_RESULT_BYTES = 64 * KIB  # bytes of one answer
DOCUMENT_READ_CHARS = 50_000  # characters of one document read at once
DOCUMENTS_LISTED = 200  # documents in one list
ARCHIVE_BYTES = 256 * MIB  # bytes of the unpacked contents of one archive
ARCHIVE_RATIO = 100  # the largest ratio of unpacked to packed size
ARCHIVE_RATIO_BYTES = 8 * MIB  # unpacked bytes above which the ratio counts
