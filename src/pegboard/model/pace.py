"""Pace: whether code of a user, which is not async, has held the event loop once; then it runs beside it."""

from __future__ import annotations


class Pace:
    """Starts as quick; whoever sees the code hold the loop says so, once, and it stays slow."""

    __slots__ = ("is_slow",)

    def __init__(self) -> None:
        self.is_slow = False
