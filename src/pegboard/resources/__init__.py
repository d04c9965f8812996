"""offers: what a catalog has beside tools: resources, prompts, completions. Judged and read as tools are called.

Each is kept as an entry of a registry of its own, under the namespaces `resource`, `prompt` and
`completion`. So groups, policy, predicates, limits, hooks, events and audit hold for them by the
same code: there is no second judge and no second door.
"""

from pegboard.core.globs import BESIDE_TOOLS
from pegboard.model.resource import CompletionSpec, PromptArgument, PromptSpec, ResourceSpec, Spec
from pegboard.resources.prompt_messages import Message
from pegboard.resources.resource_registry import Offers

NAMESPACES = BESIDE_TOOLS
__all__ = [
    "NAMESPACES", "CompletionSpec", "Message", "Offers", "PromptArgument", "PromptSpec", "ResourceSpec", "Spec",
]  # fmt: skip
