"""compile: rewrites a tool's schema for a provider, and converts a model's arguments back."""

from pegboard.providers.compile.refusals import problems
from pegboard.providers.compile.schema_compiler import Rewritten, name_pattern, rewritten, target_name
from pegboard.providers.dialect import Dialect, Loss, Refused
from pegboard.providers.targets import DIALECTS, TARGETS

__all__ = [
    "DIALECTS",
    "TARGETS",
    "Dialect",
    "Loss",
    "Refused",
    "Rewritten",
    "name_pattern",
    "problems",
    "rewritten",
    "target_name",
]
