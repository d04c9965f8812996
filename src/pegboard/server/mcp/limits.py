"""Limits that several modules of `server/mcp` share. Those that an operator may change are in `Bounds`."""

from pegboard.model.bounds import MIB

WATCHED_AFTER_S = 0.02  # a call that still runs after this long gets a watcher; most are done by then
RECONNECT_MS = 500  # that a client shall wait before it takes up a stream again
SESSION_MESSAGES = 256  # of one session, to be sent again to a client that lost them
SESSION_BYTES = 2 * MIB  # and their size
LIST_TTL_MS = 60_000  # that a client may go on using a list
