"""Token count: what a list costs in the prompt of a model, by its bytes, or by a real vocabulary that is here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pegboard.lazy import LazyModule

if TYPE_CHECKING:
    import tiktoken
else:
    tiktoken = LazyModule("tiktoken")


BYTES_A_TOKEN = 4.3
"""Measured over the lists of real tools; what decides an exposure must not depend on an installed tokenizer."""
_PREFERRED = "o200k_base"
_HOME = "https://openaipublic.blob.core.windows.net/encodings"  # as tiktoken names what it keeps; nothing is fetched


def estimated_tokens(size_bytes: int) -> int:
    """Return about how many tokens that many bytes of tool definitions are."""
    return round(size_bytes / BYTES_A_TOKEN)


class Tokenizer(Struct, frozen=True, kw_only=True):
    """Counts the tokens of a text; `name` says how."""

    name: str
    count: Callable[[str], int]


def tokenizer() -> Tokenizer:
    """Return the best way to count that is here. Nothing is downloaded.

    tiktoken's vocabularies count when a plug-in of it ships one (`…_offline`), or its cache
    (`TIKTOKEN_CACHE_DIR`) holds one.
    """
    by_bytes = f"bytes / {BYTES_A_TOKEN}"
    try:
        known: list[str] = tiktoken.list_encoding_names()
    except ImportError:
        return Tokenizer(name=f"{by_bytes} (install tiktoken to count tokens)", count=_by_bytes)
    name = next((known_name for known_name in known if known_name.endswith("_offline")), None)
    if name is None and _is_cached(_PREFERRED):
        name = _PREFERRED
    if name is None:
        without = f"{by_bytes} (tiktoken has no vocabulary here; TIKTOKEN_CACHE_DIR names where it keeps them)"
        return Tokenizer(name=without, count=_by_bytes)
    encoding: Any = tiktoken.get_encoding(name)
    return Tokenizer(name=f"tiktoken {name}", count=lambda text: len(encoding.encode(text, disallowed_special=())))


def _by_bytes(text: str) -> int:
    return estimated_tokens(len(text.encode()))


def _is_cached(encoding: str) -> bool:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    file_name = hashlib.sha1(f"{_HOME}/{encoding}.tiktoken".encode(), usedforsecurity=False).hexdigest()
    return bool(folder) and Path(str(folder), file_name).is_file()
