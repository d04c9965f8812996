"""Encoding names: checks names of text encodings, without importing the detection."""

from __future__ import annotations

import codecs


def known_encoding(name: str) -> str | None:
    """Return Python's name of a text encoding; `None` if it is unknown."""
    try:
        "a".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
