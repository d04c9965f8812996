"""Unsupported: keys and kinds of tools that are documented, known, and refused by name in this version.

Whoever brings such a piece deletes its rows here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import Field

from pegboard.config.forms.value_types import FilledText, Maybe
from pegboard.config.kinds.described import DescribedForm
from pegboard.config.kinds.tool_form import ToolForm
from pegboard.config.yaml.tree import Step

_SECTIONS_OF_MANY = frozenset({"tools", "profiles", "hooks"})

# A key by its path, or `path=value` for one value of a key; `*` stands for an index or a chosen name.
# The text says what the piece will bring, so that the reader knows what to do without it.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "discovery.embedder.type=fastembed": "it needs a runtime of 150 MB and a model; serve the model (Ollama, "
    "llama.cpp, text-embeddings-inference) and name it by `type: openai` with its `base_url`",
    "audit": "calls are not recorded; observe them with `catalog.observe`",
    "tasks": "no call outlives its request",
    "apiVersion": "agent files cannot be read; list tool files under `files:`",
    "kind": "agent files cannot be read; list tool files under `files:`",
    "metadata": "agent files cannot be read; list tool files under `files:`",
    "spec": "agent files cannot be read; put its tools under `tools:`",
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
    reason = UNSUPPORTED.get(spot if value is None else f"{spot}={value}")
    if reason is None:
        return None
    key = f"{steps[-1]}: {'' if value is None else value}".strip()
    return f"`{key}` is not supported by this version of Pegboard yet: {reason}"


# ---- kinds of tools: their other keys are checked all the same


class AgentForm(DescribedForm):
    """A tool that is another agent."""

    agent: FilledText = Field(description="The agent, by its name.")
    context_transform: Maybe[FilledText] = Field(
        None, description="A template that makes the agent's context of the arguments."
    )


UNSUPPORTED_KINDS: Final[Mapping[str, type[ToolForm]]] = {"agent": AgentForm}
