"""Budget: what a list costs in the prompt of a model."""

from __future__ import annotations

BYTES_A_TOKEN = 4.3
"""Measured over the lists of real tools; what decides an exposure must not depend on an installed tokenizer."""


def estimated_tokens(size_bytes: int) -> int:
    """Return about how many tokens that many bytes of tool definitions are."""
    return round(size_bytes / BYTES_A_TOKEN)
