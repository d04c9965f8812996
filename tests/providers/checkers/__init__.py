"""checkers: what each provider refuses, written from its public documents and knowing nothing of what we export."""

from collections.abc import Callable
from typing import Any

from tests.providers.checkers.anthropic import anthropic_faults, anthropic_strict_faults
from tests.providers.checkers.gemini import gemini_faults
from tests.providers.checkers.openai import openai_faults, openai_responses_faults, openai_strict_faults

CHECKERS: dict[str, Callable[[Any], list[str]]] = {
    "openai": openai_faults,
    "openai_strict": openai_strict_faults,
    "openai_responses": openai_responses_faults,
    "anthropic": anthropic_faults,
    "anthropic_strict": anthropic_strict_faults,
    "gemini": gemini_faults,
}
