"""Limits that several modules of `storage` share. Those that an operator may change are in `Bounds`."""

POSTGRES_CONNECT_S = 5  # for connecting; whole seconds, as libpq has it
POSTGRES_STATEMENT_S = 10.0  # that one statement of a store may run
