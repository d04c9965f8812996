"""Targets: the names of all export targets and their dialects."""

from __future__ import annotations

from typing import Final

from pegboard.core.names import nearest
from pegboard.model.error import DefinitionError
from pegboard.providers.anthropic import ANTHROPIC, ANTHROPIC_STRICT
from pegboard.providers.dialect import Dialect
from pegboard.providers.gemini import GEMINI
from pegboard.providers.mcp import MCP
from pegboard.providers.openai import OPENAI, OPENAI_RESPONSES, OPENAI_STRICT

_ALL = (OPENAI, OPENAI_STRICT, OPENAI_RESPONSES, ANTHROPIC, ANTHROPIC_STRICT, GEMINI, MCP)
DIALECTS: Final = {dialect.name: dialect for dialect in _ALL}
TARGETS: Final = tuple(DIALECTS)


def dialect_of(target: str) -> Dialect:
    """Return the dialect of a target.

    Raises:
        DefinitionError: an unknown target.
    """
    dialect = DIALECTS.get(target)
    if dialect is None:
        raise DefinitionError(f"Unknown export target {target!r}.{nearest(target, DIALECTS, label='Targets')}")
    return dialect
