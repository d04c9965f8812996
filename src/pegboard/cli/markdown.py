"""Markdown: tables for a comment on a pull request, where foreign text cannot do anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one after it. Foreign cells must have passed `as_code`."""
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def as_code(text: str) -> str:
    """Return a text as code in a cell: nothing in it is read as Markdown, HTML, a link or the name of a person."""
    plain = " ".join(text.replace("`", "'").split())
    return f"`{plain}`".replace("|", "\\|") if plain else ""
