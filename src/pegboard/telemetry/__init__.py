"""telemetry: logs, counts and times the calls of a server."""
