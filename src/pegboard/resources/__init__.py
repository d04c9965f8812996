"""resources: the resources, prompts and completions of a catalog. They are judged and read like tools.

Each is an entry in the same registry, under the namespaces `resource`, `prompt` and `completion`. So groups, policy,
predicates, limits, hooks, events and audit apply to them through the same code.
"""

from pegboard.core.unmatched_globs import BESIDE_TOOLS
from pegboard.model.resource import CompletionSpec, Offer, PromptArgument, PromptSpec, ResourceSpec
from pegboard.resources.prompt_messages import Message
from pegboard.resources.resources import Resources

NAMESPACES = BESIDE_TOOLS
__all__ = [
    "NAMESPACES", "CompletionSpec", "Message", "Offer", "PromptArgument", "PromptSpec", "ResourceSpec", "Resources",
]  # fmt: skip
