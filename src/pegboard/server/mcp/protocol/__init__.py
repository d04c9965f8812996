"""What goes over the wire in either era: envelopes, methods, checks, error texts."""
