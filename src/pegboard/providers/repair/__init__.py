"""repair: corrects slightly wrong arguments of a model, for tools that opt in."""

from pegboard.providers.repair.argument_repair import repair

__all__ = ["repair"]
