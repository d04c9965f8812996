"""Model factory: the port that provides the language models of agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic_ai.models import Model

from pegboard.model.agent import ModelSpec

ModelFactory: TypeAlias = Callable[[ModelSpec], Model]
"""Returns the model of a declaration; `runtime.py` provides it."""
