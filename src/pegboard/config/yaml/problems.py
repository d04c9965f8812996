"""Problems: collect the problems of a config, and sort them by file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pegboard.config.yaml.source_line import source_line
from pegboard.core.redaction import Redactor
from pegboard.model.error import Problem
from pegboard.model.record import replace
from pegboard.model.secret import Secret

PROBLEM_LINES = 100  # problems of a config that are shown with their lines; later ones are shown without


def unseen(config: Path, error: OSError) -> Problem:
    """Return the problem of a config with a path that the system refuses to examine.

    Any check of a path may end so, e.g. if a name is too long or a folder belongs to another user.
    """
    path = "something" if error.filename is None else repr(str(error.filename)[:200])
    return Problem(where=str(config), message=f"it names {path}, which cannot be looked at: {error.strerror or error}")


class Report:
    """The problems of one load. Only the first at each place is kept, since others follow from it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Problem] = {}
        self._lines: dict[str, list[str]] = {}

    def add(self, *problems: Problem) -> None:
        for problem in problems:
            self._found.setdefault((problem.where or problem.message, problem.path), problem)

    def may_show(self, file: str, text: str) -> None:
        """Allow problems to show lines of this file, because it is a config and not an arbitrary file."""
        # Lines as in YAML, where a form feed does not end a line.
        self._lines[file] = re.split(r"\r\n|\r|\n", text)

    def __bool__(self) -> bool:
        return bool(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def sorted(self, files: Iterable[Path], secrets: Mapping[str, Secret]) -> list[Problem]:
        """Return the problems by file, in the order of `files`, and by line; without secrets."""
        order = {str(file): index for index, file in enumerate(files)}
        redactor = Redactor(secrets.values())

        def key(problem: Problem) -> tuple[int, str, int, int]:
            file, line, column = _split(problem.where)
            return order.get(file, len(order)), file, line, column

        problems = sorted(self._found.values(), key=key)
        # Whether a line may be shown depends on those above it; for thousands of problems that would take minutes.
        return [
            self._shown(problem, redactor, with_line=number < PROBLEM_LINES) for number, problem in enumerate(problems)
        ]

    def _shown(self, problem: Problem, redactor: Redactor, *, with_line: bool) -> Problem:
        file, line, column = _split(problem.where)
        lines = self._lines.get(file, ()) if with_line else ()
        source, source_column = source_line(lines, line, column, path=problem.path, redactor=redactor)
        message = redactor.text(problem.message)
        return replace(problem, message=message, source=source, source_column=source_column)


def _split(where: str) -> tuple[str, int, int]:
    """Split `file:line:column`, `module:line` or a bare file."""
    numbers: list[int] = []
    rest = where
    while len(numbers) < 2 and rest.rpartition(":")[2].isdigit():
        rest, _, digits = rest.rpartition(":")
        numbers.insert(0, int(digits))
    line, column = (*numbers, 0, 0)[:2]
    return rest, line, column
