"""Encoding names: which encodings of text there are. Free of what detects them, for whoever only checks a name."""

from __future__ import annotations

import codecs


def known_encoding(name: str) -> str | None:
    """Return the name by which Python knows an encoding of text; `None` for anything else."""
    try:
        "a".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
