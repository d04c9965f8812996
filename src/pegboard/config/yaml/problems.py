"""Problems: what is wrong with a config, collected as it is found, and put in the order of its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pegboard.config.yaml.source_line import source_line
from pegboard.core.redaction import Redactor
from pegboard.model.error import Problem
from pegboard.model.record import replace
from pegboard.model.secret import Secret

PROBLEM_LINES = 100  # of a config, shown with the problems in them; the problems after those come without


def unseen(config: Path, error: OSError) -> Problem:
    """Return the problem of a config that names what the system does not even let be looked at.

    A name that is too long, a folder of somebody else: any check of any path may end so.
    """
    what = "something" if error.filename is None else repr(str(error.filename)[:200])
    return Problem(where=str(config), message=f"it names {what}, which cannot be looked at: {error.strerror or error}")


class Report:
    """The problems of one load, as they are found. At one place only the first counts: the rest follows from it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Problem] = {}
        self._lines: dict[str, list[str]] = {}

    def add(self, *problems: Problem) -> None:
        for problem in problems:
            self._found.setdefault((problem.where or problem.message, problem.path), problem)

    def may_show(self, file: str, text: str) -> None:
        """Let problems show their lines of this file: it is a config, and not anything that somebody named."""
        # The lines of YAML, which have no form feeds in them.
        self._lines[file] = re.split(r"\r\n|\r|\n", text)

    def __bool__(self) -> bool:
        return bool(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def sorted(self, files: Iterable[Path], secrets: Mapping[str, Secret]) -> list[Problem]:
        """Return the problems by file, in the order of `files`, and by line; without any secret."""
        order = {str(file): index for index, file in enumerate(files)}
        redactor = Redactor(secrets.values())

        def key(problem: Problem) -> tuple[int, str, int, int]:
            file, line, column = _split(problem.where)
            return order.get(file, len(order)), file, line, column

        found = sorted(self._found.values(), key=key)
        # Whether a line may be shown depends on those above it: of thousands of problems that would take minutes.
        return [
            self._shown(problem, redactor, with_line=number < PROBLEM_LINES) for number, problem in enumerate(found)
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
