"""Limits that several modules of `server/mcp` share. Limits that an operator can set are in `Bounds`."""

from pegboard.model.bounds import MIB

WATCHED_AFTER_S = 0.02  # seconds until a running call gets a watcher; most calls end earlier
RECONNECT_MS = 500  # that a client should wait before it resumes a stream
SESSION_MESSAGES = 256  # of one session, to be sent again to a client that lost them
SESSION_BYTES = 2 * MIB  # and their size
LIST_TTL_MS = 60_000  # that a client may cache a list
