"""Token count: the tokens of a tool list in a prompt, estimated from bytes or counted with a local vocabulary."""

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
"""Measured over lists of real tools. Exposure uses this constant, so that it does not depend on installed packages."""
_PREFERRED = "o200k_base"
# the address in tiktoken's cache keys; nothing is fetched
_HOME = "https://openaipublic.blob.core.windows.net/encodings"


def estimated_tokens(size_bytes: int) -> int:
    """Return the approximate number of tokens of tool definitions with that many bytes."""
    return round(size_bytes / BYTES_A_TOKEN)


class Tokenizer(Struct, frozen=True, kw_only=True):
    """Counts the tokens of a text; `name` describes the method."""

    name: str
    count: Callable[[str], int]


BY_BYTES = Tokenizer(name=f"bytes / {BYTES_A_TOKEN}", count=lambda text: estimated_tokens(len(text.encode())))
"""Counts by the size of a text, whatever is installed."""


def tokenizer() -> Tokenizer:
    """Return the best available tokenizer. Nothing is downloaded.

    tiktoken is used if a plug-in ships a vocabulary (`…_offline`), or its cache (`TIKTOKEN_CACHE_DIR`) has one.
    """
    by_bytes = BY_BYTES.name
    try:
        known: list[str] = tiktoken.list_encoding_names()
    except ImportError:
        return Tokenizer(name=f"{by_bytes} (install tiktoken to count tokens)", count=BY_BYTES.count)
    name = next((known_name for known_name in known if known_name.endswith("_offline")), None)
    if name is None and _is_cached(_PREFERRED):
        name = _PREFERRED
    if name is None:
        without = f"{by_bytes} (tiktoken has no vocabulary here; TIKTOKEN_CACHE_DIR names where it keeps them)"
        return Tokenizer(name=without, count=BY_BYTES.count)
    encoding: Any = tiktoken.get_encoding(name)
    return Tokenizer(name=f"tiktoken {name}", count=lambda text: len(encoding.encode(text, disallowed_special=())))


def _is_cached(encoding: str) -> bool:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    file_name = hashlib.sha1(f"{_HOME}/{encoding}.tiktoken".encode(), usedforsecurity=False).hexdigest()
    return bool(folder) and Path(str(folder), file_name).is_file()
