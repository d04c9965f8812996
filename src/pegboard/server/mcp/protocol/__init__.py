"""The wire format of either era: envelopes, methods, checks, error texts."""
