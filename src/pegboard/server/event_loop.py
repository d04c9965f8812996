"""Event loop: the fastest one that there is here."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

try:
    import uvloop
except ImportError:  # on Windows, and for other Pythons than CPython
    uvloop = None


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end."""
    if uvloop is None:
        asyncio.run(main)
    else:
        uvloop.run(main)
