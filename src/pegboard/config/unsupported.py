"""Unsupported: documented keys and kinds of tools that this version refuses by name.

When you implement one, delete its rows here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pegboard.config.yaml.tree import Step

_SECTIONS_OF_MANY = frozenset({"tools", "profiles", "hooks"})

# A key by its path, or `path=value` for one value of a key; `*` matches an index or a chosen name.
# The text says what to do instead.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "spec.chain": "to call other agents, declare tools of `type: agent`",
    "spec.knowledge": "to search documents, declare tools of `type: rag`",
    "spec.program": "remove it; an agent consists of its model, prompt and tools",
    "spec.metrics": "remove it; `/metrics` counts runs of agents like calls",
    "spec.rag": "to search documents, declare tools of `type: rag`",
    "spec.model.fallback": "name one model; for fallback or routing, set `base_url` to a gateway",
    "spec.model.routing": "name one model; for fallback or routing, set `base_url` to a gateway",
    "spec.prompts.templates": "write one prompt, `system`",
    "spec.memory.semantic": "remove it; only the conversation of a session is remembered",
    "spec.memory.episodic": "remove it; only the conversation of a session is remembered",
    "spec.memory.conversational.backend": "set `agents: {store}` in the config",
    "spec.memory.conversational.ttl": "remove it; conversations are kept until their store is emptied",
    "spec.memory.conversational.strategy=summary": "use `sliding_window`, which keeps the latest turns unchanged",
    "spec.memory.conversational.strategy=token_budget": "use `sliding_window`, which keeps the latest turns unchanged",
    "spec.orchestration.pattern=plan_and_execute": "use `react`",
    "spec.orchestration.pattern=parallel_fan_out": "use `react`; the model may call several agents at once",
    "spec.orchestration.pattern=pipeline": "use `react`",
    "spec.orchestration.pattern=supervisor": "use `react`, and declare the other agents as tools of `type: agent`",
    "spec.orchestration.pattern=swarm": "use `react`, and declare the other agents as tools of `type: agent`",
    "tools.*.mcp.per_user": "write `auth: {mode: user}` next to `mcp:`, and each person has their own connection",
    "profiles.*.limits": "set `limits:` at the top level, for the whole process",
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
