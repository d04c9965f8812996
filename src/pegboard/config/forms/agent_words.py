"""Agent words: by what a file is known for that of an agent, and which variables have the keys of models.

They are asked of every config; the forms themselves, in `agent_form`, of one with agents.
"""

from __future__ import annotations

from collections.abc import Mapping

PEGBOARD, ASTROMESH = "pegboard/v1", "astromesh/v1"
KEYS_OF_AGENT_FILES = frozenset({"apiVersion", "kind", "metadata", "spec"})
KEY_VARIABLES: Mapping[str, str] = {
    "openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}  # fmt: skip
