"""Limits that several modules of `egress` share. Those that an operator may change are in `Bounds`."""

PATH_CHARS = 4096  # of a path, as Linux has it
CONNECT_S = 10.0  # for one connection
