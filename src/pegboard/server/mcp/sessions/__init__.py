"""Sessions of the revisions before 2026-07-28."""
