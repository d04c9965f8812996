"""Not yet: what the contracts describe and this version does not do. Whoever brings a piece deletes its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pegboard.config.yaml_tree import Step

_SECTIONS_OF_MANY = frozenset({"tools", "profiles", "hooks"})

# A key by its path, or `path=value` for one value of a key; `*` stands for an index or a chosen name.
# The text says what the piece will bring, so that the reader knows what to do without it.
NOT_YET: Final[Mapping[str, str]] = {
    "workspace": "there is no document store",
    "audit": "calls are not recorded; observe them with `catalog.observe`",
    "tasks": "no call outlives its request",
    "apiVersion": "agent files cannot be read; list tool files under `files:`",
    "kind": "agent files cannot be read; list tool files under `files:`",
    "metadata": "agent files cannot be read; list tool files under `files:`",
    "spec": "agent files cannot be read; put its tools under `tools:`",
    "tools.*.type=rag": "it searches the document store of `workspace:`, which is missing",
    "tools.*.type=agent": "it runs an agent file, and what runs those is missing",
    "tools.*.task": "no call outlives its request",
    "limits.agent_timeout_s": "there are no agents to run; `tool_timeout_s` is for tools",
    "limits.upload_bytes": "nothing can be uploaded",
    "profiles.*.limits": "limits hold for the process, under the top-level `limits:`",
    "hooks.*.use=https": "name a function: `python:module:function`",
}


def refusal(steps: Sequence[Step], value: str | None = None) -> str | None:
    """Return why a key, or one value of a key, is refused although it is documented; `None` where it is not."""
    spot = ".".join("*" if i == 1 and steps[0] in _SECTIONS_OF_MANY else str(step) for i, step in enumerate(steps))
    reason = NOT_YET.get(spot if value is None else f"{spot}={value}")
    if reason is None:
        return None
    said = f"{steps[-1]}: {'' if value is None else value}".strip()
    return f"`{said}` is not supported by this version of Pegboard yet: {reason}"


def kinds_to_come() -> list[str]:
    """Return the types of tools that are documented and not there yet: nobody else may bring them."""
    return [spot.partition("=")[2] for spot in NOT_YET if spot.startswith("tools.*.type=")]
