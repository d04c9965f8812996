"""Identifiers: unguessable ids of calls and requests that do not reveal how many others there are."""

from __future__ import annotations

import os
from collections.abc import Iterator

_BYTES = 16  # bytes of one id, as in a UUID
_AT_ONCE = 256  # ids drawn together, since each draw is a system call
_drawn: Iterator[str] = iter(())


def new_id() -> str:
    """Return a fresh random id in hexadecimal. Safe from any thread, and after a fork."""
    # Taking the next item of a list iterator is atomic, so no two threads get the same.
    return next(_drawn, "") or _draw()


def _draw() -> str:
    global _drawn  # noqa: PLW0603 - the drawn ids are state of the process
    digits = 2 * _BYTES
    text = os.urandom(_BYTES * _AT_ONCE).hex()
    first, *others = [text[at : at + digits] for at in range(0, len(text), digits)]
    _drawn = iter(others)
    return first


def _forget() -> None:  # pragma: no cover - in forked children, see tests/security/test_kept_contexts.py
    """Discard the drawn ids: a forked child has inherited those of its parent."""
    global _drawn  # noqa: PLW0603 - see `_draw`
    _drawn = iter(())


if hasattr(os, "register_at_fork"):  # pragma: no branch - not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget)
