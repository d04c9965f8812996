"""Asking: hide a tool while something that it needs is not there, with words that say what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pegboard.model.context import ToolContext
from pegboard.model.tool import ToolSpec


class Needs:
    """A question on the context with words for a name, which `why` shows."""

    def __init__(self, words: str, ask: Callable[[ToolContext], bool]) -> None:
        self.__qualname__ = words
        self._ask = ask

    def __call__(self, ctx: ToolContext) -> bool:
        return self._ask(ctx)


def asked(spec: ToolSpec, words: str, ask: Callable[[ToolContext], bool]) -> ToolSpec:
    """Return the declaration, available only where the answer is yes."""
    return replace(spec, available=Needs(words, ask))
