"""Unsupported: documented keys and kinds of tools that this version refuses by name.

When you implement one, delete its rows here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pegboard.config.yaml.tree import Step

_SECTIONS_OF_MANY = frozenset({"tools", "profiles", "hooks"})

# A key by its path, or `path=value` for one value of a key; `*` matches an index or a chosen name.
# The text says what the feature will do, so that the reader knows how to work without it.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "spec.chain": "an agent calls others by tools of `type: agent`",
    "spec.knowledge": "documents are searched by tools of `type: rag`",
    "spec.program": "an agent is its model, prompt and tools",
    "spec.metrics": "runs are counted as calls are",
    "spec.rag": "documents are searched by tools of `type: rag`",
    "spec.model.fallback": "one model is asked; a gateway before it may have more",
    "spec.model.routing": "one model is asked; a gateway before it may have more",
    "spec.prompts.templates": "there is one prompt, `system`",
    "spec.memory.semantic": "a session's conversation is remembered, and nothing else",
    "spec.memory.episodic": "a session's conversation is remembered, and nothing else",
    "spec.memory.conversational.backend": "conversations are kept where the config says, under `agents: {store}`",
    "spec.memory.conversational.ttl": "conversations are kept until their store is emptied",
    "spec.memory.conversational.strategy=summary": "the last turns are remembered as they were",
    "spec.memory.conversational.strategy=token_budget": "the last turns are remembered as they were",
    "spec.orchestration.pattern=plan_and_execute": "the pattern is `react`",
    "spec.orchestration.pattern=parallel_fan_out": "the pattern is `react`; a model may call several agents at once",
    "spec.orchestration.pattern=pipeline": "the pattern is `react`",
    "spec.orchestration.pattern=supervisor": "the pattern is `react`; agents are tools of `type: agent`",
    "spec.orchestration.pattern=swarm": "the pattern is `react`; agents are tools of `type: agent`",
    "tools.*.mcp.per_user": "write `auth: {mode: user}` next to `mcp:`, and each person has their own connection",
    "profiles.*.limits": "limits hold for the process, under the top-level `limits:`",
}


def refusal(steps: Sequence[Step], value: str | None = None) -> str | None:
    """Return the reason for refusing a documented key, or one value of it; `None` if it is supported."""
    if steps[:2] == ("spec", "tools"):
        steps = steps[1:]
    spot = ".".join("*" if i == 1 and steps[0] in _SECTIONS_OF_MANY else str(step) for i, step in enumerate(steps))
    reason = UNSUPPORTED.get(spot if value is None else f"{spot}={value}")
    if reason is None:
        return None
    key = f"{steps[-1]}: {'' if value is None else value}".strip()
    return f"`{key}` is not supported by this version of Pegboard yet: {reason}"
