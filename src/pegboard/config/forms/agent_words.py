"""Agent words: the marks of an agent's file, and the variables with keys of models.

They are needed for every config; the forms, in `agent_form`, only for those with agents.
"""

from __future__ import annotations

from collections.abc import Mapping

PEGBOARD, ASTROMESH = "pegboard/v1", "astromesh/v1"
KEYS_OF_AGENT_FILES = frozenset({"apiVersion", "kind", "metadata", "spec"})
KEY_VARIABLES: Mapping[str, str] = {
    "openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}  # fmt: skip
