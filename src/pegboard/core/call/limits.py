"""Limits that several modules of `core/call` share. Those that an operator may change are in `Bounds`."""

NO_LIMIT_S = 3.0e7  # about a year; stands for no deadline of its own
BUSY_RETRY_S = 1.0  # that a caller who is told `busy` shall wait
