"""Options: what may be said of a tool beside its parameters, in a decorator or as class keywords."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import Any, TypedDict, cast

import orjson

from pegboard.core.names import check_namespace, check_tool_name, nearest
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.rate_limit import RateLimit
from pegboard.model.tool import Annotations, ConsentRule, ToolSpec

Strings = str | Sequence[str]


class BuilderKeywords(TypedDict, total=False):
    """The keywords of `@catalog.builder`, for type checkers and editors."""

    namespace: str
    title: str | None
    groups: Strings
    available: object
    factory: str | None
    internal_only: bool
    full_names: object
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    annotations: Mapping[str, Any] | None
    consent: ConsentRule
    task: str
    rate_limit: str | RateLimit | None
    timeout_s: float | None
    max_concurrency: int | None
    max_result_bytes: int | None
    inline: bool
    output: Any
    aliases: Mapping[str, str] | None
    additional_properties: bool | JSON
    icons: Sequence[JSON]
    meta: Mapping[str, Any] | None
    ui: str | None
    ui_visibility: Strings
    examples: Sequence[Any]
    repair: bool
    renamed_from: Strings
    deprecated: str | None
    replaced_by: str | None


class ToolKeywords(BuilderKeywords, total=False):
    """The keywords of `@catalog.tool` and class tools, for type checkers and editors."""

    name: str | None
    description: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOptions:
    """The same as a value, with what holds where nothing is said."""

    name: str | None = None
    namespace: str = "main"
    description: str | None = None
    title: str | None = None
    groups: Strings = ()
    available: object = None
    factory: str | None = None
    internal_only: bool = False
    full_names: object = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    annotations: Mapping[str, Any] | None = None
    consent: ConsentRule = "never"
    task: str = "forbidden"
    rate_limit: str | RateLimit | None = None
    timeout_s: float | None = None
    max_concurrency: int | None = None
    max_result_bytes: int | None = None
    inline: bool = False
    output: Any = None
    aliases: Mapping[str, str] | None = None
    additional_properties: bool | JSON = False
    icons: Sequence[JSON] = ()
    meta: Mapping[str, Any] | None = None
    ui: str | None = None
    ui_visibility: Strings = ()
    examples: Sequence[Any] = ()
    repair: bool = False
    renamed_from: Strings = ()
    deprecated: str | None = None
    replaced_by: str | None = None

    @classmethod
    def of(cls, keywords: Mapping[str, Any], *, where: str = "") -> ToolOptions:
        """Return the options for keywords.

        Raises:
            DefinitionError: there is no such keyword; the text has the nearest one.
        """
        return cls().extended(keywords, where=where)

    def extended(self, keywords: Mapping[str, Any], *, where: str = "") -> ToolOptions:
        """Return these options as a subclass inherits them: its own keywords win, `annotations` and `meta` merge.

        What makes one tool this tool (its name, its words, its former names) is not inherited.
        """
        known = [item.name for item in fields(self)]
        unknown = [
            Problem(where=where, message=f"unknown tool option {name!r}.{nearest(name, known, label='Options')}")
            for name in keywords
            if name not in known
        ]
        if unknown:
            raise DefinitionError(unknown)
        merged: JSON = {
            name: {**(getattr(self, name) or {}), **keywords[name]}
            for name in ("annotations", "meta")
            if isinstance(keywords.get(name), Mapping)
        }
        return replace(self, **{**_NOT_INHERITED, **keywords, **merged})

    def base_spec(self, *, name: str, description: str, origin: str) -> ToolSpec:
        """Return the declaration without schemas.

        Raises:
            DefinitionError: values that cannot be honoured, all of them.
        """
        problems = [Problem(where=origin, message=message) for message in _faults(self, self.name or name)]
        if problems:
            raise DefinitionError(problems)
        return ToolSpec(
            name=self.name or name, namespace=self.namespace, title=self.title, origin=origin,
            description=description if self.description is None else self.description,
            groups=as_groups(self.groups), available=self.available, factory=self.factory,
            internal_only=self.internal_only, full_names=self.full_names,
            annotations=Annotations(
                read_only=self.read_only, destructive=self.destructive, idempotent=self.idempotent,
                open_world=self.open_world, extra=dict(self.annotations or {}),
            ),
            consent=self.consent, task=self.task,  # pyright: ignore[reportArgumentType] - judged by _faults
            rate_limit=RateLimit.parse(self.rate_limit) if isinstance(self.rate_limit, str) else self.rate_limit,
            timeout_s=self.timeout_s, max_concurrency=self.max_concurrency, max_result_bytes=self.max_result_bytes,
            icons=tuple(self.icons), meta=self._shown_meta(), examples=tuple(self.examples), repair=self.repair,
            renamed_from=as_names(self.renamed_from), deprecated=self.deprecated, replaced_by=self.replaced_by,
        )  # fmt: skip

    def _shown_meta(self) -> JSON:
        shown: JSON = {} if self.ui is None else {"resourceUri": self.ui}
        if self.ui_visibility:
            shown["visibility"] = list(as_names(self.ui_visibility))
        said = dict(self.meta or {})
        return {**said, "ui": {**said.get("ui", {}), **shown}} if shown else said


_NOT_INHERITED: JSON = {
    "name": None, "description": None, "full_names": None, "examples": (), "renamed_from": (), "deprecated": None,
    "replaced_by": None, "aliases": None,
}  # fmt: skip


def as_names(names: Strings) -> tuple[str, ...]:
    """Return names as a tuple; a single string is one name, not letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def as_groups(groups: Strings) -> tuple[str, ...]:
    """Return groups as a tuple; no group at all means `core`."""
    return as_names(groups) or ("core",)


# ---------------------------------------------------------------- what cannot be honoured

_TYPES: tuple[tuple[str, type | tuple[type, ...], str], ...] = (
    ("internal_only inline repair", bool, "true or false"),
    ("read_only destructive idempotent open_world", (bool, type(None)), "true, false or None"),
    ("namespace", str, "text"),
    ("name description title factory deprecated replaced_by", (str, type(None)), "text"),
    ("annotations aliases meta", (dict, Mapping, type(None)), "a dict"),
    ("groups renamed_from ui_visibility icons examples", (str, list, tuple), "a list"),
    ("additional_properties", (bool, dict), "True, False or a JSON Schema"),
    ("rate_limit", (str, RateLimit, type(None)), 'like "10/60s", or a RateLimit'),
)


def _faults(options: ToolOptions, name: str) -> Iterator[str]:
    wrong = {
        key: f"{key}={getattr(options, key)!r} must be {wanted}."
        for keys, types, wanted in _TYPES
        for key in keys.split()
        if not isinstance(getattr(options, key), types)
    }
    yield from wrong.values()
    yield from _name_faults(options, name)
    yield from _guard_faults(options)
    if options.ui is not None and not str(options.ui).startswith("ui://"):
        yield f"ui={options.ui!r} must start with 'ui://'."
    if "ui_visibility" not in wrong and set(as_names(options.ui_visibility)) - {"model", "app"}:
        yield f"ui_visibility={options.ui_visibility!r}: only 'model' and 'app' are known."
    for key in ("annotations", "meta", "icons", "examples"):
        try:
            orjson.dumps(getattr(options, key))
        except TypeError as error:
            if key not in wrong:
                yield f"{key}={getattr(options, key)!r} is no JSON ({error})."


def _name_faults(options: ToolOptions, name: str) -> Iterator[str]:
    for check, value in ((check_tool_name, name), (check_namespace, options.namespace)):
        if isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may ignore the types
            try:
                check(value)
            except DefinitionError as error:
                yield str(error)
    if isinstance(options.deprecated, str):
        try:
            date.fromisoformat(options.deprecated)
        except ValueError:
            yield f"deprecated={options.deprecated!r} is no date; write for example '2027-01-01'."


def _guard_faults(options: ToolOptions) -> Iterator[str]:
    if not (callable(options.consent) or options.consent in ("never", "always", "destructive")):
        yield f"consent={options.consent!r}: say never, always, destructive, or give a function."
    if options.task not in ("forbidden", "optional", "required"):
        yield f"task={options.task!r}: say forbidden, optional or required."
    if isinstance(options.rate_limit, str):
        try:
            RateLimit.parse(options.rate_limit)
        except DefinitionError as error:
            yield f"rate_limit: {error}"
    for key, kinds in (("timeout_s", (int, float)), ("max_concurrency", int), ("max_result_bytes", int)):
        value: Any = getattr(options, key)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool) or value <= 0):
            yield f"{key}={value!r} must be a number more than 0."


# ---------------------------------------------------------------- where a declaration stands


def underlying(fn: Callable[..., Any]) -> Any:
    """Return the function behind a partial, a static method or an object that can be called."""
    bare: Any = fn
    while isinstance(bare, functools.partial | staticmethod):
        bare = bare.func if isinstance(bare, functools.partial) else bare.__func__  # pyright: ignore[reportUnknownMemberType] - any function
    if inspect.isroutine(bare) or isinstance(bare, type):
        return bare
    return getattr(cast("Any", type(bare)), "__call__", bare)


def origin_of(fn: Callable[..., Any]) -> str:
    """Return where a function stands, as `module:line`; without a line for code that has none."""
    bare = inspect.unwrap(underlying(fn))
    module = getattr(bare, "__module__", None) or "?"
    line = getattr(getattr(bare, "__code__", None), "co_firstlineno", None)
    return module if line is None else f"{module}:{line}"
