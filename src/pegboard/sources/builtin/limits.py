"""Limits that several modules of `sources/builtin` share. Those that an operator may change are in `Bounds`."""

TRANSFORM_START_S = 4.0  # what the child may need to start, on a busy machine
