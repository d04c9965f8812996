"""Lent model: the language model that the host or the config provides to document tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pegboard.core.ports import Model
from pegboard.model.context import ToolContext

ModelOf: TypeAlias = Callable[[ToolContext], Model | None]
NO_MODEL: Final = "none is configured (models:)."


def no_model(ctx: ToolContext) -> Model | None:
    """Return `None`: there is no model."""
