"""Process memory: give back to the system what a crowd of connections took."""

from __future__ import annotations

import ctypes  # noqa: TID251 - one function of the C library, without arguments from anywhere
import gc
import sys


def give_back() -> None:
    """Free what only circles hold, and give free memory to the system, where the C library has a way to (glibc's)."""
    gc.collect()
    trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
