"""dialects: the parts of JSON Schema that model providers take, and tools rewritten for them, there and back."""

from pegboard.dialects.dialect import DIALECTS, TARGETS, Dialect, Loss, Refused, dialect
from pegboard.dialects.problems import problems
from pegboard.dialects.rewriting import Rewritten, rewritten, target_name

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
