"""Documents: read another program's file in JSON, YAML or TOML, within bounds."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pegboard.cli import jsonc
from pegboard.cli.command_error import CommandError
from pegboard.cli.operator_file import FOREIGN_FILE_BYTES, read_operator_file
from pegboard.config.kinds.openapi import description_value
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace

FOREIGN_ENTRIES = 500  # entries in one import

_BOUNDS = replace(DEFAULT_BOUNDS, api_description_bytes=FOREIGN_FILE_BYTES)


def read_document(path: Path) -> JSONValue:
    """Return the contents of a file.

    Raises:
        CommandError: it cannot be read, or has another format.
    """
    if not path.exists():
        raise CommandError(f"There is no file {str(path)!r}.", kind="unreadable")
    text = read_operator_file(path).removeprefix("\ufeff")
    try:
        if path.suffix.lower() == ".toml":
            return tomllib.loads(text)
        if path.suffix.lower() in (".json", ".jsonc") and text.lstrip()[:1] in ("{", "[", "/"):
            return _json(text)
        return description_value(text, bounds=_BOUNDS)
    except (ValueError, DefinitionError, RecursionError) as error:
        # Do not quote a file of another format: it may be any file.
        reason = (
            str(error).splitlines()[0][:200]
            if isinstance(error, jsonc.JsoncError | DefinitionError)
            else "it is not valid TOML"
        )
        raise CommandError(f"{str(path)!r} cannot be read: {reason}.", kind="unreadable") from None


def _json(text: str) -> JSONValue:
    """Parse JSON, which may have comments, as in editors' settings."""
    try:
        return description_value(text, bounds=_BOUNDS)
    except DefinitionError:
        if "//" not in text and "/*" not in text and ",\n" not in text and ",]" not in text and ",}" not in text:
            raise
        return jsonc.read(text)
