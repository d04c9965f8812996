"""check: read the configuration as `serve` would, and print all of its problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions, Strict
from pegboard.cli.project import load
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.record import replace


def check_command(
    file: Annotated[Path | None, Parameter(help="The configuration file; the same as --config FILE.")] = None,
    /,
    *,
    strict: Strict = False,
    options: SharedOptions,
) -> Exit:
    """Check the configuration and print all its problems.

    Each is a line `file:line:column: path: what is wrong`, with the line of the file below it. Policy entries that
    match no tool are warnings.
    """
    if file is not None:
        if options.config is not None and options.config != file:
            raise CommandError(f"Two files are named, {str(options.config)!r} and {str(file)!r}. Check one at a time.")
        options = replace(options, config=file)
    counts: dict[str, int] = {}
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    try:
        project = load(options, strict=strict)
        counts, warnings = _counts(project.catalog), project.warnings()
    except DefinitionError as error:
        problems = error.problems
    if options.json:
        summary: JSON = {"ok": not problems, "counts": counts}
        options.terminal.json({**summary, "problems": _as_json(problems), "warnings": _as_json(warnings)})
    else:
        _print(options, problems=problems, warnings=warnings, counts=counts)
    return Exit.USAGE if problems else Exit.DONE


def _counts(catalog: Catalog) -> dict[str, int]:
    registry = catalog.registry
    return {
        "tools": len(catalog.snapshot().entries),
        "profiles": len(registry.profiles),
        "groups": len(registry.known_groups()),
        "predicates": len(registry.predicates),
        "sources": len(registry.sources),
    }


def _print(
    options: Options, *, problems: Sequence[Problem], warnings: Sequence[Problem], counts: dict[str, int]
) -> None:
    options.terminal.say_problems(problems)
    options.terminal.say_problems(warnings, label="warning: ")
    if problems:
        options.terminal.note(_many(len(problems), "problems") + " found.")
    else:
        options.terminal.say("OK: " + ", ".join(_many(count, name) for name, count in counts.items()))


def _as_json(problems: Sequence[Problem]) -> list[JSON]:
    return [{"where": item.where, "path": item.path, "message": item.message} for item in problems]


def _many(count: int, plural: str) -> str:
    return f"{count} {plural if count != 1 else plural.removesuffix('s')}"
