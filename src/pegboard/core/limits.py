"""Limits that several modules of `core` share. Those that an operator may change are in `Bounds`."""

PATTERN_STEPS = 2_000  # of a regular expression that needs look-around, on one value
SCHEMA_HOPS = 64  # references and alternatives in alternatives that a schema may lead through at one place
SHUTDOWN_GRACE_S = 10.0  # for calls that run when the catalog or its server is told to stop
