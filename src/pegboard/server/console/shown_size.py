"""Shown size: sizes for people."""

from __future__ import annotations


def size(count_bytes: int) -> str:
    """Return a size with three digits at most: `812 bytes`, `1.24 MB`."""
    if count_bytes < 1000:
        return f"{count_bytes} byte{'' if count_bytes == 1 else 's'}"
    value, unit = count_bytes / 1000, "kB"
    for larger in ("MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
