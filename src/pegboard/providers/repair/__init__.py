"""repair: mend arguments that a model got slightly wrong, for tools that ask for it."""

from pegboard.providers.repair.argument_repair import repair

__all__ = ["repair"]
