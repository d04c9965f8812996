"""Limits that several modules of `sources/builtin` share."""

TRANSFORM_START_S = 4.0  # seconds for the child to start on a busy machine
