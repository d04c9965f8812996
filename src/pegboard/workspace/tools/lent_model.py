"""Lent model: the language model that tools for documents may ask, which the host or the config lends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pegboard.core.ports import Model
from pegboard.model.context import ToolContext

ModelOf: TypeAlias = Callable[[ToolContext], Model | None]
NO_MODEL: Final = "none is configured (models:)."


def no_model(ctx: ToolContext) -> Model | None:
    """Return nothing: there is no model for anybody."""
