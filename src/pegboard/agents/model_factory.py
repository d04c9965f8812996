"""Model factory: the port through which agents get the language models that they run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic_ai.models import Model

from pegboard.model.agent import ModelSpec

ModelFactory: TypeAlias = Callable[[ModelSpec], Model]
"""Makes the model of a declaration; `runtime.py` fills it."""
