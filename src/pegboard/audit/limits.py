"""Limits that several modules of `audit` share. Those that an operator may change are keys of `audit:`."""

AUDIT_BATCH_ROWS = 1_000  # rows written in one transaction
AUDIT_HEAD_ROWS = 1_000  # rows between two signed heads
