"""Lint: what makes tools hard to find, to tell apart, or to use with a provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from pegboard.core.lifecycle import has_ended
from pegboard.core.view import View
from pegboard.discovery.finder import Finder
from pegboard.discovery.search.terms import terms_of, words_of
from pegboard.model.bounds import LINT_QUERY_CHARS, Bounds
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.tool import ToolEntry
from pegboard.providers.compile.refusals import problems

TARGETS = ("openai", "anthropic", "gemini")
_LEAST_WORDS = 3
_DEEP = 5
_NEARLY_AS_GOOD = 0.85
_AS_GOOD = 0.95


class Finding(NamedTuple):
    """Something to mend: which tool, by which rule, in words."""

    tool: str
    rule: str
    message: str


async def lint(view: View, finder: Finder, *, bounds: Bounds, today: date) -> list[Finding]:
    """Return everything that is wrong with the tools of a view, by tool."""
    await view.prepare()
    tools = view.tools()
    findings = [finding for entry in tools for check in _CHECKS for finding in check(entry)]
    selected = view.snapshot.selected(view.selection, view.ctx.caller.policy)
    findings += [finding for entry in selected for finding in _lifecycle(entry, view, today)]
    findings += [
        Finding(entry.wire_name, "long description", f"the description is cut at {bounds.description_bytes} bytes")
        for entry in tools
        if len(entry.spec.description.encode()) > bounds.description_bytes
    ]
    findings += await competing(view, finder)
    order = {entry.wire_name: place for place, entry in enumerate((*selected, *tools))}
    return sorted(findings, key=lambda finding: order[finding.tool])


# ---------------------------------------------------------------- words


def _description(entry: ToolEntry) -> Iterator[Finding]:
    spec = entry.spec
    if not spec.description.strip():
        yield Finding(entry.wire_name, "no description", "say what it does and when to use it")
        return
    words = words_of(spec.description)
    # Scripts without spaces say much in one word.
    is_short = len(words) < _LEAST_WORDS and spec.description.isascii()
    if is_short or not set(terms_of(words)) - set(terms_of(words_of(spec.name))):
        yield Finding(entry.wire_name, "weak description", f"{spec.description.strip()!r} says no more than the name")


def _parameters(entry: ToolEntry) -> Iterator[Finding]:
    properties = entry.spec.input_schema.get("properties")
    parameters: Mapping[str, JSONValue] = properties if is_object(properties) else {}
    silent = [name for name, schema in parameters.items() if is_object(schema) and _says_nothing(schema)]
    if silent:
        yield Finding(entry.wire_name, "silent parameters", f"no description: {', '.join(silent)}")


def _says_nothing(schema: JSON) -> bool:
    return not any(schema.get(key) for key in ("description", "title", "enum", "const", "$ref"))


# ---------------------------------------------------------------- schemas


def _depth(entry: ToolEntry) -> Iterator[Finding]:
    deepest = _levels(entry.spec.input_schema)
    if deepest > _DEEP:
        text = f"its parameters are nested {deepest} levels deep; models fill {_DEEP} or fewer more surely"
        yield Finding(entry.wire_name, "deep nesting", text)


def _levels(schema: JSONValue) -> int:
    """Return how many objects and lists stand inside each other, along the deepest way."""
    deepest = 0
    open_: list[tuple[JSONValue, int]] = [(schema, 0)]
    while open_:
        item, depth = open_.pop()
        if is_list(item):
            open_.extend((inner, depth) for inner in item)
        elif is_object(item):
            here = depth + (item.get("type") in ("object", "array"))
            deepest = max(deepest, here)
            open_.extend((inner, here) for inner in item.values())
    return deepest


def _refused(entry: ToolEntry) -> Iterator[Finding]:
    """Tell what providers refuse when a client passes the tool on as it is; an export rewrites it."""
    refusals: dict[str, list[str]] = {}
    for target in TARGETS:
        for refused in problems(target, entry.wire_name, entry.spec.input_schema)[:1]:
            refusals.setdefault(f"{refused.path}: {refused.text}", []).append(target)
    for refusal, targets in refusals.items():
        text = f"{', '.join(targets)} would refuse it as it is: {refusal}; an export for it rewrites that"
        yield Finding(entry.wire_name, "refused schema", text)


# ---------------------------------------------------------------- lifecycle


def _lifecycle(entry: ToolEntry, view: View, today: date) -> Iterator[Finding]:
    spec = entry.spec
    if has_ended(spec, today):
        yield Finding(entry.wire_name, "past its end", f"it ended on {spec.deprecated}: remove it")
    if spec.replaced_by is not None and view.snapshot.find(spec.replaced_by) is None:
        yield Finding(entry.wire_name, "no such successor", f"replaced_by={spec.replaced_by!r} is no declared tool")
    for former in spec.renamed_from:
        other = view.snapshot.find(former)
        if other is not None and other.qualified_id != spec.qualified_id:
            text = f"renamed_from={former!r} is a name of {other.wire_name!r}, so calls of it go there"
            yield Finding(entry.wire_name, "former name taken", text)


_CHECKS: Sequence[Callable[[ToolEntry], Iterator[Finding]]] = (_description, _parameters, _depth, _refused)


# ---------------------------------------------------------------- tools that compete


async def competing(view: View, finder: Finder) -> list[Finding]:
    """Return the pairs of tools that compete: asked for in the words of the one, the index finds the other as well.

    Every tool's own name and description are asked for; a pair is reported once, at the tool that loses.
    """
    tools = [entry for entry in view.tools() if entry.spec.description.strip()]
    asked = [f"{entry.spec.name} {entry.spec.description[:LINT_QUERY_CHARS]}" for entry in tools]
    shares: dict[tuple[str, str], float] = {}
    for entry, answer in zip(tools, await finder.search(view, asked, limit=4), strict=True):
        scores = {one.entry.wire_name: one.score for one in answer.tools}
        own = scores.pop(entry.wire_name, 0.0)
        for other, score in scores.items():
            shares[entry.wire_name, other] = score / own if own else 1.0
    pairs: list[Finding] = []
    for (tool, other), share in shares.items():
        back = shares.get((other, tool), 0.0)
        is_reported_there = (back, other) > (share, tool)
        if not is_reported_there and (share >= _AS_GOOD or min(share, back) >= _NEARLY_AS_GOOD):
            text = f"asked for in its own words, {other!r} is found as well; say in both when to use which"
            pairs.append(Finding(tool, "competing", text))
    return pairs


def as_json(findings: Sequence[Finding]) -> list[JSON]:
    """Return findings in wire form."""
    return [finding._asdict() for finding in findings]
