"""telemetry: what a server counts and times of its calls."""
