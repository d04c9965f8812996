"""schema: what a configuration may say, for editors."""

from __future__ import annotations

from pegboard.cli.options import SharedOptions
from pegboard.config import json_schema


def schema_command(*, options: SharedOptions) -> None:
    """Print the JSON Schema of the configuration file."""
    options.terminal.json(json_schema())
