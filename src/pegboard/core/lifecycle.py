"""Lifecycle: shows a tool's end date and successor in lists and results, and redirects callers after the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

from pegboard.core.names import fold
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry, ToolSpec


def check_end(spec: ToolSpec) -> None:
    """Refuse an end date that is not a date, since every list compares it with today.

    Raises:
        DefinitionError: it is not a date.
    """
    try:
        if spec.deprecated is not None:
            date.fromisoformat(spec.deprecated)
    except (ValueError, TypeError):
        text = f"deprecated={spec.deprecated!r} is not a date; write for example '2027-01-01'."
        raise DefinitionError(text) from None


def with_end(entry: ToolEntry) -> ToolEntry:
    """Return the tool with its end date and successor in the description; other tools unchanged."""
    spec = entry.spec
    if spec.deprecated is None and spec.replaced_by is None:
        return entry
    described = f"{plain_description(spec)}\n\n{end_of(spec)}".strip()
    if described == spec.description:
        return entry
    return replace(entry, spec=replace(spec, description=described), fingerprint="")


def plain_description(spec: ToolSpec) -> str:
    """Return the description without the note about the tool's end."""
    return spec.description.partition("\n\nDeprecated: ")[0]


def end_of(spec: ToolSpec) -> str:
    """Return a sentence with the tool's end date and its successor."""
    when = "" if spec.deprecated is None else f" it ends on {spec.deprecated};"
    what = "no tool replaces it" if spec.replaced_by is None else f"use {spec.replaced_by!r} instead"
    return f"Deprecated:{when} {what}."


def has_ended(spec: ToolSpec, today: date) -> bool:
    """Tell whether a tool's end date has been reached; from that day on it is hidden."""
    return spec.deprecated is not None and today >= date.fromisoformat(spec.deprecated)


def after_end(spec: ToolSpec, *, known_as: str, replacement: str | None) -> str:
    """Return the message for callers of a tool after its end; `replacement` is a tool that they may use."""
    instead = "Choose another tool." if replacement is None else f"Call {replacement!r} instead."
    return f"{known_as!r} ended on {spec.deprecated} and was not run. {instead}"


def check_circles(specs: Mapping[str, ToolSpec]) -> None:
    """Refuse tools that replace each other in a circle, and former names that equal a tool's own or another's name.

    Raises:
        DefinitionError: with all such tools.
    """
    by_name = {name: spec for spec in specs.values() for name in called(spec)}
    problems = [
        Problem(where=spec.origin, path=spec.qualified_id, message=message)
        for spec in specs.values()
        for message in (*_replacing(spec, by_name), *_renaming(spec, by_name))
    ]
    if problems:
        raise DefinitionError(problems)


def called(spec: ToolSpec) -> tuple[str, str, str]:
    """Return the casefolded names of a declared tool that calls may use."""
    return fold(spec.name), fold(spec.qualified_id), fold(f"{spec.namespace}__{spec.name}")


def _replacing(spec: ToolSpec, by_name: Mapping[str, ToolSpec]) -> Iterable[str]:
    seen, at = [spec.qualified_id], spec
    while at.replaced_by is not None and (following := by_name.get(fold(at.replaced_by))) is not None:
        seen.append(following.qualified_id)
        if following.qualified_id == spec.qualified_id:
            yield f"replaced_by leads back to itself: {' → '.join(seen)}; end it somewhere"
        if seen.count(following.qualified_id) > 1:
            return
        at = following


def _renaming(spec: ToolSpec, by_name: Mapping[str, ToolSpec]) -> Iterable[str]:
    own = called(spec)
    for former in spec.renamed_from:
        other = by_name.get(fold(former))
        if fold(former) in own:
            yield f"renamed_from={former!r} is its own name; remove it"
        elif other is not None and any(fold(name) in own for name in other.renamed_from):
            yield f"renamed_from={former!r}: {other.qualified_id!r} was renamed from this one; one of the two is wrong"
        elif other is not None:
            yield still_called(former, other)


def still_called(former: str, other: ToolSpec) -> str:
    """Return why a former name is invalid: another tool has that name and receives its calls."""
    return (
        f"renamed_from={former!r} is a name of {other.qualified_id!r} ({other.origin}), so calls of it go there; "
        "remove it here, or rename that tool"
    )
