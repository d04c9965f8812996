"""Titles: the title of a document, as searches and embedders use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def title_of(path: str, metadata: Mapping[str, Any]) -> str:
    """Return the title of a document, or the name of its file without the extension."""
    name = path.rpartition("/")[2]
    return str(metadata.get("title") or name.rpartition(".")[0] or name)
