"""Limits that several modules of `core/call` share."""

NO_LIMIT_S = 3.0e7  # seconds, about a year; used if there is no deadline
BUSY_RETRY_S = 1.0  # seconds after which a `busy` caller should retry
