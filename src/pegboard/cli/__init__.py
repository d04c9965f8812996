"""cli: the command `pegboard`, a thin door of its own: it parses words, asks the catalog, and prints."""

from pegboard.cli.main import main

__all__ = ["main"]
