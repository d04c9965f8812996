"""Natural order: how the pages of the console sort names, `find_orders_2` before `find_orders_10`."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d+")
_DIGITS = 20  # longer numbers are compared as text


def natural_key(name: str) -> str:
    """Return the sort key of a name; different names have different keys.

    >>> sorted(["read_10", "read_2", "read"], key=natural_key)
    ['read', 'read_2', 'read_10']
    """
    return f"{_NUMBER.sub(_padded, name)}\0{name}"


def _padded(number: re.Match[str]) -> str:
    return number[0].zfill(_DIGITS)
