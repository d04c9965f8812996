"""dialects: the parts of JSON Schema that model providers take, and tools rewritten for them, there and back."""

from pegboard.providers.compile.refusals import problems
from pegboard.providers.compile.rewriting import Rewritten, rewritten, target_name
from pegboard.providers.dialect import DIALECTS, TARGETS, Dialect, Loss, Refused, dialect

__all__ = [
    "DIALECTS",
    "TARGETS",
    "Dialect",
    "Loss",
    "Refused",
    "Rewritten",
    "dialect",
    "problems",
    "rewritten",
    "target_name",
]
