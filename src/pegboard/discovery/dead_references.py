"""Dead references: finds tool names in prompts, code and configs that do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from msgspec import Struct

from pegboard.authoring.option_table import as_names
from pegboard.core.lifecycle import has_ended
from pegboard.core.names import nearest_one
from pegboard.core.snapshot import Snapshot

# A name with its namespace: `ns__tool`, `ns.tool`, `mcp__server__ns__tool`.
_SPELLED = re.compile(
    r"(?<![\w./-])(?:mcp__[A-Za-z0-9-]+__)?([A-Za-z][A-Za-z0-9_-]*?)(__|\.)([A-Za-z][A-Za-z0-9_-]*)(?![\w-]|[./(]\w)"
)
# As in an SDK's allow-list: `mcp__server__tool`, where the server is a catalog, or an upstream server.
_LISTED = re.compile(r"(?<![\w./-])mcp__([A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_))*_?)__([A-Za-z0-9_-]+)(?![\w*?-])")
# A bare name counts only in quotes or backticks, and if it resembles an existing name.
_MARKED = re.compile(r"[`\"']([A-Za-z][A-Za-z0-9_-]{3,63})[`\"']")


class Reference(NamedTuple):
    """A name that does not exist: its line and column (from 1), the name, and the suggested correction."""

    line: int
    column: int
    name: str
    near: str | None
    note: str = ""


class Ended(NamedTuple):
    """A tool after its last day, and the tool that replaces it."""

    day: str
    replaced_by: str | None


class KnownNames(Struct, frozen=True, kw_only=True):
    """All existing names in every spelling, the former names of tools, and tools after their last day."""

    names: frozenset[str]
    ended: dict[str, Ended]
    former: dict[str, str]
    namespaces: dict[str, tuple[str, ...]]
    bare: frozenset[str]
    catalog: str = ""

    @classmethod
    def of(
        cls, snapshot: Snapshot, *, namespaces: Iterable[str] = (), more: Iterable[str] = (), catalog: str = ""
    ) -> KnownNames:
        """Read the names from a snapshot; `more` are other names, such as those of meta tools and mirrors.

        `catalog` is the catalog's name, which SDKs use as the name of the server.
        """
        names, former, bare, ended = set(more), dict[str, str](), set[str](), dict[str, Ended]()
        tools: dict[str, tuple[str, ...]] = dict.fromkeys(namespaces, ())
        for entry in snapshot.entries:
            spec = entry.spec
            if spec.deprecated is not None and has_ended(spec, snapshot.today()):
                ended |= dict.fromkeys((*entry.names, spec.name), Ended(spec.deprecated, spec.replaced_by))
                continue
            names |= {*entry.names, spec.name}
            bare.add(entry.wire_name)
            tools[spec.namespace] = (*tools.get(spec.namespace, ()), spec.name)
            former |= dict.fromkeys(spec.renamed_from, entry.wire_name)
            full_names: Any = spec.full_names
            if isinstance(full_names, str | list | tuple):
                names.update(as_names(cast("str | list[str]", full_names)))
        return cls(
            names=frozenset(names),
            # The plain name of one that has ended may be that of another in another namespace.
            ended={name: one for name, one in ended.items() if name not in names},
            former=former,
            namespaces=tools,
            bare=frozenset(bare),
            catalog=catalog,
        )


def dead_references(text: str, known: KnownNames) -> Iterator[Reference]:
    """Yield the names in a text that look like tools but do not exist, and the former names of tools."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield from sorted(_in_line(line, number, known), key=lambda reference: reference.column)


def _in_line(line: str, number: int, known: KnownNames) -> Iterator[Reference]:
    seen: set[tuple[int, int]] = set()
    for match in _SPELLED.finditer(line):
        namespace, mark, tool = match.groups()
        if namespace in known.namespaces and not (mark == "." and namespace == "main"):
            seen.add(match.span())
            yield from _judged(f"{namespace}{mark}{tool}", number, match.start() + 1, known)
    for match in _LISTED.finditer(line):
        server, tool = match.groups()
        if (server == known.catalog or server in known.namespaces) and match.span() not in seen:
            seen.add(match.span())
            yield from _judged_listed(match.group(), server, tool, number, match.start() + 1, known)
    for match in _MARKED.finditer(line):
        name = match.group(1)
        if not any(start <= match.start(1) < end for start, end in seen):
            yield from _judged_bare(name, number, match.start(1) + 1, known)


def _judged(name: str, line: int, column: int, known: KnownNames) -> Iterator[Reference]:
    if name in known.ended:
        yield _over(name, known.ended[name], line, column)
    elif name in known.former:
        yield _renamed(name, line, column, known)
    elif name not in known.names:
        namespace, mark, tool = name.partition("__") if "__" in name else name.partition(".")
        near = nearest_one(tool, known.namespaces[namespace])
        yield Reference(line, column, name, near and f"{namespace}{mark}{near}")


def _judged_listed(name: str, server: str, tool: str, line: int, column: int, known: KnownNames) -> Iterator[Reference]:
    """Check a name of an allow-list: of a tool of the catalog, or of an upstream server."""
    spellings = [tool] if server == known.catalog else []
    if server in known.namespaces:
        spellings.append(f"{server}__{tool}")
    if name in known.names or not known.names.isdisjoint(spellings):
        return
    over = next((known.ended[spelling] for spelling in spellings if spelling in known.ended), None)
    if over is not None:
        yield _over(name, over, line, column)
        return
    former = next((known.former[spelling] for spelling in spellings if spelling in known.former), None)
    if former is not None:
        yield Reference(line, column, name, f"mcp__{server}__{former.removeprefix(server + '__')}", "it was renamed")
        return
    near = nearest_one(
        tool, sorted({*(known.bare if server == known.catalog else ()), *known.namespaces.get(server, ())})
    )
    yield Reference(line, column, name, near and f"mcp__{server}__{near}")


def _judged_bare(name: str, line: int, column: int, known: KnownNames) -> Iterator[Reference]:
    if name in known.names or name in known.namespaces:
        return
    if name in known.ended:
        yield _over(name, known.ended[name], line, column)
    elif name in known.former:
        yield _renamed(name, line, column, known)
    elif "_" in name or "-" in name or not name.islower():
        near = _misspelt(name, known.bare)
        if near is not None:
            yield Reference(line, column, name, near)


def _misspelt(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which this is a misspelling: other case, other separators, a letter or two off."""
    near = nearest_one(name, sorted(known))
    if near is None:
        return None
    plain, meant = (re.sub(r"[_-]", "", word).casefold() for word in (name, near))
    slips = 1 if len(meant) < 8 else 2  # longer names may have more typos
    return near if plain == meant or _distance(plain, meant) <= slips else None


def _distance(one: str, other: str) -> int:
    """Return the edit distance: letters inserted, deleted or changed."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        above, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]


def _over(name: str, ended: Ended, line: int, column: int) -> Reference:
    return Reference(line, column, name, ended.replaced_by, f"it ended on {ended.day}")


def _renamed(name: str, line: int, column: int, known: KnownNames) -> Reference:
    return Reference(line, column, name, known.former[name], "it was renamed")
