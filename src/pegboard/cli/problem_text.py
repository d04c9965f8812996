"""Problem text: format the problems of a declaration, each with the line of the file and a mark below the fault."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import groupby

from pegboard.core.safe_text import safe
from pegboard.model.error import Problem

_RED, _BOLD, _DIM, _OFF = "\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def problem_text(problems: Iterable[Problem], *, label: str = "", is_coloured: bool = False) -> str:
    """Return the lines for `problems`; consecutive problems in one line share its excerpt.

    Args:
        problems: in the order of output.
        label: the beginning of each problem.
        is_coloured: whether the output is a terminal with colours.
    """

    def painted(text: str, *styles: str) -> str:
        return f"{''.join(styles)}{text}{_OFF}" if is_coloured and text else text

    lines: list[str] = []
    for _, group in groupby(problems, key=lambda problem: (problem.where.rpartition(":")[0], problem.source)):
        together = list(group)
        for problem in together:
            where, rest = f"{safe(problem.where)}: " if problem.where else "", without_place(problem)
            lines.append(f"{label}{painted(where, _BOLD)}{safe(rest)}")
        source = together[0].source
        if not source:
            continue
        lines.append(f"{painted(f'{_line(together[0]):>6} | ', _DIM)}{_drawn(source)}".rstrip())
        columns = {_width(_drawn(source[: problem.source_column - 1])) for problem in together if problem.source_column}
        if columns:
            marks = "".join("^" if column in columns else " " for column in range(max(columns) + 1))
            lines.append(f"{painted('       | ', _DIM)}{painted(marks, _RED, _BOLD)}")
    return "".join(f"{line}\n" for line in lines)


def without_place(problem: Problem) -> str:
    """Return a problem's message without its place."""
    return ": ".join(part for part in (problem.path, problem.message) if part)


def _line(problem: Problem) -> str:
    """Return the line number of a problem."""
    numbers = [part for part in problem.where.split(":")[-2:] if part.isdigit()]
    return numbers[0] if numbers else ""


def _drawn(text: str) -> str:
    """Return text of a file as one safe line, with tabs as single spaces."""
    return safe(text.replace("\t", " "))


def _width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
