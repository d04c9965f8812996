"""repairing: mend arguments that a model got slightly wrong, for tools that ask for it."""

from pegboard.repairing.repair import repair

__all__ = ["repair"]
