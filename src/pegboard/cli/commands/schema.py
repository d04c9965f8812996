"""schema: what a configuration may say, for editors."""

from __future__ import annotations

from pegboard.cli.options import Given
from pegboard.cli.project import config_module


def schema_command(*, options: Given) -> None:
    """Print the JSON Schema of the configuration file."""
    options.terminal.json(config_module.json_schema())
