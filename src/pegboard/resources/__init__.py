"""resources: what a catalog has beside tools: resources, prompts, completions. Judged and read as tools are called.

Each is an entry of the catalog's one registry, under the namespaces `resource`, `prompt` and `completion`. So groups,
policy, predicates, limits, hooks, events and audit hold for them by the same code: there is no second judge and no
second door.
"""

from pegboard.core.unmatched_globs import BESIDE_TOOLS
from pegboard.model.resource import CompletionSpec, Offer, PromptArgument, PromptSpec, ResourceSpec
from pegboard.resources.prompt_messages import Message
from pegboard.resources.resources import Resources

NAMESPACES = BESIDE_TOOLS
__all__ = [
    "NAMESPACES", "CompletionSpec", "Message", "Offer", "PromptArgument", "PromptSpec", "ResourceSpec", "Resources",
]  # fmt: skip
