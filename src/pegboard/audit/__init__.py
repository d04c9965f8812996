"""Audit: records who called what, and why it was allowed or refused, in a chain of hashes that shows changes."""
