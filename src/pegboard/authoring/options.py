"""Options: the options of one tool, from decorator or class keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from msgspec import Struct, field

from pegboard.authoring.option_table import BY_NAME, OPTIONS, Strings, with_options
from pegboard.core.names import nearest
from pegboard.model.budget import Cost
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.rate_limit import RateLimit
from pegboard.model.tool import ConsentRule, OutputCheck, ToolSpec

# Options of other frameworks that people try for ours, and whose nearest name would mislead.
_ELSEWHERE: Mapping[str, str] = {
    "tags": "groups",
    "enabled": "available",
    "is_enabled": "available",
    "output_schema": "output",
    "needs_approval": "consent",
    "requires_approval": "consent",
}


class BuilderKeywords(TypedDict, total=False):
    """The keywords of `@catalog.builder`, for type checkers and editors: the rows of the table that apply to it."""

    namespace: str
    groups: Strings
    available: object
    rate_limit: str | Mapping[str, Any] | RateLimit | None
    cost: Mapping[str, Any] | Cost | None
    timeout_s: float | None
    max_concurrency: int | None
    max_result_bytes: int | None
    output_check: OutputCheck | None
    consent: ConsentRule
    four_eyes: bool
    task: str
    internal_only: bool
    title: str | None
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    annotations: Mapping[str, Any] | None
    repair: bool
    examples: Sequence[Any]
    renamed_from: Strings
    deprecated: str | None
    replaced_by: str | None
    icons: Sequence[JSON]
    meta: Mapping[str, Any] | None
    ui: str | None
    ui_visibility: Strings
    factory: str | None
    full_names: object


class ToolKeywords(BuilderKeywords, total=False):
    """The keywords of `@catalog.tool` and class tools, for type checkers and editors: every row of the table."""

    name: str | None
    description: str | None
    aliases: Mapping[str, str] | None
    additional_properties: bool | JSON
    output: Any
    inline: bool


class ToolOptions(Struct, frozen=True):
    """The options of one tool: `options["timeout_s"]` is the set value or the table's default."""

    declared: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __getitem__(self, name: str) -> Any:
        return self.declared.get(name, BY_NAME[name].default)

    @classmethod
    def of(cls, keywords: Mapping[str, Any], *, where: str = "") -> ToolOptions:
        """Return the options for keywords.

        Raises:
            DefinitionError: an unknown keyword; the message suggests the nearest one.
        """
        return cls().extended(keywords, where=where)

    def extended(self, keywords: Mapping[str, Any], *, where: str = "") -> ToolOptions:
        """Return these options as a subclass inherits them: its keywords win, mappings are merged.

        Options that identify one tool (name, description, former names) are not inherited.

        Raises:
            DefinitionError: an unknown keyword; the message suggests the nearest one.
        """
        unknown = [
            Problem(where=where, message=f"unknown tool option {name!r}.{_option_hint(name)}")
            for name in keywords
            if name not in BY_NAME
        ]
        if unknown:
            raise DefinitionError(unknown)
        inherited = {name: value for name, value in self.declared.items() if BY_NAME[name].inheritance != "own"}
        merged: JSON = {
            name: {**(inherited.get(name) or {}), **value}
            for name, value in keywords.items()
            if BY_NAME[name].inheritance == "merged" and isinstance(value, Mapping)
        }
        return ToolOptions({**inherited, **keywords, **merged})

    def replaced(self, **values: Any) -> ToolOptions:
        """Return these options with some replaced."""
        return ToolOptions({**self.declared, **values})

    def base_spec(self, *, name: str, description: str, origin: str) -> ToolSpec:
        """Return the declaration without the parts that come from code: schemas and aliases.

        `name` and `description` are the defaults for those options.

        Raises:
            DefinitionError: invalid values, all of them.
        """
        name = self["name"] or name
        declared = {**self.declared, "name": name}
        problems = [
            Problem(where=origin, message=fault)
            for option in OPTIONS
            if option.name in declared and (fault := option.check(option.name, declared[option.name]))
        ]
        if problems:
            raise DefinitionError(problems)
        if self["description"] is not None:
            description = self["description"]
        landing = {key: value for key, value in self.declared.items() if not BY_NAME[key].of_code}
        bare = ToolSpec(name=name, origin=origin)
        return with_options(bare, {**landing, "name": name, "description": description})


def _option_hint(name: str) -> str:
    """Return the hint for an unknown option: what it is called here, or the nearest name."""
    ours = _ELSEWHERE.get(name)
    return f" Here it is called {ours!r}." if ours else nearest(name, BY_NAME, label="Options")
