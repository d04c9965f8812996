"""Limits that several modules of `core` share."""

PATTERN_STEPS = 2_000  # steps of a regular expression with look-around on one value
SCHEMA_HOPS = 64  # references and nested alternatives that a schema may follow at one place
SOURCE_START_S = 15.0  # seconds that `catalog.start()` waits for the tools of its sources
SHUTDOWN_GRACE_S = 10.0  # seconds for running calls to finish when the catalog or its server stops
NO_LIMIT_S = 3.0e7  # seconds, about a year; used if there is no deadline
BUSY_RETRY_S = 1.0  # seconds until a `busy` caller should retry
