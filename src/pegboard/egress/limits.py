"""Limits that several modules of `egress` share."""

PATH_CHARS = 4096  # characters of a path, as on Linux
CONNECT_S = 10.0  # seconds for connecting
PROBE_S = 5.0  # time limit for connecting to a server, in seconds; then it counts as unreachable
