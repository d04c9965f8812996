"""schema: what a configuration may say, for editors."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.options import SharedOptions
from pegboard.config import agent_schema, json_schema


def schema_command(
    *,
    agent: Annotated[bool, Parameter(name="--agent", negative="", help="That of the file of an agent.")] = False,
    options: SharedOptions,
) -> None:
    """Print the JSON Schema of the configuration file, or of the file of an agent."""
    options.terminal.json(agent_schema() if agent else json_schema())
