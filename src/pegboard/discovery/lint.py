"""Lint: finds tools that are hard to find, to distinguish, or to use with a provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from pegboard.core.lifecycle import has_ended
from pegboard.core.names import nearest
from pegboard.core.view import View
from pegboard.discovery.finder import Finder
from pegboard.discovery.search.terms import terms_of, words_of
from pegboard.model.bounds import Bounds
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.lint_rule import LintIgnore, LintLevel, LintRule
from pegboard.model.tool import ToolEntry
from pegboard.providers.compile.refusals import problems
from pegboard.providers.compile.schema_compiler import rewritten, target_name

LINT_QUERY_CHARS = 300  # characters of a description that are searched as a query

TARGETS = ("openai", "openai_strict", "anthropic", "gemini")
_LEAST_WORDS = 3
_DEEP = 5
_NEARLY_AS_GOOD = 0.85
_AS_GOOD = 0.95


class Finding(NamedTuple):
    """Something to fix: the tool, the rule, a description and the level."""

    tool: str
    rule: LintRule
    message: str
    level: LintLevel


# Failures are errors; what misleads a model is a warning; what may be intended is a note.
_LEVELS: Mapping[LintRule, LintLevel] = {
    "no description": "error",
    "weak description": "warning",
    "long description": "warning",
    "silent parameters": "warning",
    "stray words": "warning",
    "competing": "warning",
    "deep nesting": "note",
    "refused schema": "error",
    "past its end": "error",
    "no such successor": "error",
    "former name taken": "error",
    "idle ignore": "note",
}
# Texts of an upstream server or API are not ours to change.
_WORDS_OF_OTHERS = frozenset({"no description", "weak description", "long description", "silent parameters"})


def _finding(entry: ToolEntry, rule: LintRule, message: str) -> Finding:
    is_of_others = entry.is_foreign and rule in _WORDS_OF_OTHERS
    return Finding(entry.wire_name, rule, message, "note" if is_of_others else _LEVELS[rule])


def without_ignored(
    findings: Sequence[Finding], ignores: Sequence[LintIgnore], view: View
) -> tuple[list[Finding], list[tuple[Finding, str]]]:
    """Return the remaining findings, and the ignored ones, each with its reason.

    An ignore that matches nothing is a finding itself, since it could hide a future one.
    """
    names = {entry.wire_name: entry.names for entry in view.snapshot.entries}
    left: list[Finding] = []
    ignored: list[tuple[Finding, str]] = []
    used: set[int] = set()
    for finding in findings:
        called = names.get(finding.tool, (finding.tool,))
        fits = [place for place, ignore in enumerate(ignores) if ignore.fits(finding.rule, called)]
        used.update(fits)
        if fits:
            ignored.append((finding, ignores[fits[0]].reason))
        else:
            left.append(finding)
    shown = {entry.wire_name for entry in view.tools()}
    for place, ignore in enumerate(ignores):
        meant = {tool for tool, called in names.items() if ignore.fits(ignore.rule, called)}
        # Tools of other profiles are not visible here, so their ignores are not checked.
        if place not in used and (not meant or meant & shown):
            text = f"`lint: ignore:` of {ignore.rule!r} for {ignore.tool!r} ignores nothing; remove it"
            left.append(Finding(ignore.tool, "idle ignore", text, _LEVELS["idle ignore"]))
    return left, ignored


async def lint(view: View, finder: Finder, *, bounds: Bounds, today: date) -> list[Finding]:
    """Return all findings for the tools of a view, by tool."""
    await view.prepare()
    tools = view.tools()
    findings = [finding for entry in tools for check in _CHECKS for finding in check(entry)]
    selected = view.snapshot.selected(view.selection, view.ctx.caller.policy)
    findings += [finding for entry in selected for finding in _lifecycle(entry, view, today)]
    findings += [
        _finding(entry, "long description", f"the description is cut at {bounds.description_bytes} bytes")
        for entry in tools
        if len(entry.spec.description.encode()) > bounds.description_bytes
    ]
    findings += await competing(view, finder)
    order = {entry.wire_name: place for place, entry in enumerate((*selected, *tools))}
    return sorted(findings, key=lambda finding: order[finding.tool])


# ---------------------------------------------------------------- descriptions


def _description(entry: ToolEntry) -> Iterator[Finding]:
    spec = entry.spec
    if not spec.description.strip():
        yield _finding(entry, "no description", "say what it does and when to use it")
        return
    words = words_of(spec.description)
    # In scripts without spaces one word can be a sentence.
    is_short = len(words) < _LEAST_WORDS and spec.description.isascii()
    if is_short or not set(terms_of(words)) - set(terms_of(words_of(spec.name))):
        yield _finding(entry, "weak description", f"{spec.description.strip()!r} says no more than the name")


def _parameters(entry: ToolEntry) -> Iterator[Finding]:
    properties = entry.spec.input_schema.get("properties")
    parameters: Mapping[str, JSONValue] = properties if is_object(properties) else {}
    silent = [name for name, schema in parameters.items() if is_object(schema) and _says_nothing(schema)]
    if silent:
        yield _finding(entry, "silent parameters", f"no description: {', '.join(silent)}")


def _stray_words(entry: ToolEntry) -> Iterator[Finding]:
    properties = entry.spec.input_schema.get("properties")
    names = list(properties) if is_object(properties) else []
    for word in entry.stray_words:
        meant = nearest(word, names, label="It has")
        yield _finding(entry, "stray words", f"the docstring describes {word!r}, which is not a parameter.{meant}")


def _says_nothing(schema: JSON) -> bool:
    return not any(schema.get(key) for key in ("description", "title", "enum", "const", "$ref"))


# ---------------------------------------------------------------- schemas


def _depth(entry: ToolEntry) -> Iterator[Finding]:
    deepest = _levels(entry.spec.input_schema)
    if deepest > _DEEP:
        text = f"its parameters are nested {deepest} levels deep; models fill {_DEEP} or fewer more surely"
        yield _finding(entry, "deep nesting", text)


def _levels(schema: JSONValue) -> int:
    """Return the nesting depth of objects and lists along the deepest path."""
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
    """Report parts that providers refuse, although an export rewrites them if it can."""
    refusals: dict[str, list[str]] = {}
    for target in TARGETS:
        try:
            schema = rewritten(target, entry.spec.input_schema).schema
        except DefinitionError as error:
            refusals.setdefault(str(error), []).append(target)
            continue
        name = target_name(target, entry.wire_name, entry.qualified_id)
        for refused in problems(target, name, schema)[:1]:
            refusals.setdefault(f"{refused.path}: {refused.text}", []).append(target)
    for refusal, targets in refusals.items():
        yield _finding(entry, "refused schema", f"{', '.join(targets)} would refuse it: {refusal}")


# ---------------------------------------------------------------- lifecycle


def _lifecycle(entry: ToolEntry, view: View, today: date) -> Iterator[Finding]:
    spec = entry.spec
    if has_ended(spec, today):
        yield _finding(entry, "past its end", f"it ended on {spec.deprecated}: remove it")
    if spec.replaced_by is not None and view.snapshot.find(spec.replaced_by) is None:
        yield _finding(entry, "no such successor", f"replaced_by={spec.replaced_by!r} is not a declared tool")
    for former in spec.renamed_from:
        other = view.snapshot.find(former)
        if other is not None and other.qualified_id != spec.qualified_id:
            text = f"renamed_from={former!r} is a name of {other.wire_name!r}, so calls of it go there"
            yield _finding(entry, "former name taken", text)


_CHECKS: Sequence[Callable[[ToolEntry], Iterator[Finding]]] = (
    _description,
    _parameters,
    _stray_words,
    _depth,
    _refused,
)


# ---------------------------------------------------------------- competing tools


async def competing(view: View, finder: Finder) -> list[Finding]:
    """Return the pairs of competing tools: a search for one tool's own words finds the other as well.

    Each tool's name and description are searched for; a pair is reported once, at the tool that ranks lower.
    """
    tools = [entry for entry in view.tools() if entry.spec.description.strip()]
    asked = [f"{entry.spec.name} {entry.spec.description[:LINT_QUERY_CHARS]}" for entry in tools]
    shares: dict[tuple[str, str], float] = {}
    for entry, answer in zip(tools, await finder.search(view, asked, limit=4), strict=True):
        scores = {one.entry.wire_name: one.score for one in answer.tools}
        own = scores.pop(entry.wire_name, 0.0)
        for other, score in scores.items():
            shares[entry.wire_name, other] = score / own if own else 1.0
    by_name = {entry.wire_name: entry for entry in tools}
    pairs: list[Finding] = []
    for (tool, other), share in shares.items():
        back = shares.get((other, tool), 0.0)
        is_reported_there = (back, other) > (share, tool)
        if not is_reported_there and (share >= _AS_GOOD or min(share, back) >= _NEARLY_AS_GOOD):
            text = f"asked for in its own words, {other!r} is found as well; say in both when to use which"
            pairs.append(_finding(by_name[tool], "competing", text))
    return pairs


def as_json(findings: Sequence[Finding]) -> list[JSON]:
    """Return findings in wire form."""
    return [finding._asdict() for finding in findings]
