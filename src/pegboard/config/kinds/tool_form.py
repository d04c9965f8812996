"""Tool: the keys that tools of every kind may have, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from pegboard.authoring.aliases import Declared as Name
from pegboard.authoring.aliases import resolve
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.predicate_form import Available, availability
from pegboard.config.forms.value_types import (
    Anything,
    FilledText,
    Flag,
    Form,
    Limit,
    Maybe,
    Names,
    PositiveNumber,
    Text,
    ToolName,
    rate_limit,
    reference,
)
from pegboard.config.parameters import read_schema
from pegboard.core.registry import judges
from pegboard.model.error import DefinitionError
from pegboard.model.tool import ConsentRule, ToolEntry, ToolSpec


def _consent_rule(value: str) -> str:
    if not (value in ("never", "always", "destructive") or value.startswith("python:")):
        raise PydanticCustomError("consent", "expected never, always, destructive or `python:module:function`")
    return reference(value) if value.startswith("python:") else value


Consent: TypeAlias = Annotated[
    Text,
    AfterValidator(_consent_rule),
    Field(json_schema_extra={"pattern": "^(never|always|destructive|python:[\\w.]+:[\\w.]+)$"}),
]


def _day(value: str) -> str:
    try:
        date.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("day", "expected a day, such as 2027-01-01") from None
    return value


Day: TypeAlias = Annotated[Text, AfterValidator(_day), Field(json_schema_extra={"format": "date"})]


class AnnotationsForm(Form):
    """Hints about a tool, in the words of Python or of MCP."""

    title: Maybe[Text] = Field(None, description="A name for people.")
    read_only: Maybe[Flag] = Field(None, description="It changes nothing.")
    destructive: Maybe[Flag] = Field(None, description="What it changes may be lost.")
    idempotent: Maybe[Flag] = Field(None, description="Twice is the same as once.")
    open_world: Maybe[Flag] = Field(None, description="It reaches beyond what this catalog knows.")
    readOnlyHint: Maybe[Flag] = Field(None, description="The same as read_only.")  # noqa: N815 - the wire's word
    destructiveHint: Maybe[Flag] = Field(None, description="The same as destructive.")  # noqa: N815 - the wire's word
    idempotentHint: Maybe[Flag] = Field(None, description="The same as idempotent.")  # noqa: N815 - the wire's word
    openWorldHint: Maybe[Flag] = Field(None, description="The same as open_world.")  # noqa: N815 - the wire's word

    def hints(self) -> dict[str, bool]:
        """Return the hints that are said, by their names in Python."""
        pairs = {
            "read_only": (self.read_only, self.readOnlyHint),
            "destructive": (self.destructive, self.destructiveHint),
            "idempotent": (self.idempotent, self.idempotentHint),
            "open_world": (self.open_world, self.openWorldHint),
        }
        said = {name: own if own is not None else wire for name, (own, wire) in pairs.items()}
        return {name: value for name, value in said.items() if value is not None}


class ToolForm(Form):
    """What may be said of any tool."""

    name: ToolName = Field(description="How it is called: 1 to 64 of A-Z a-z 0-9 _ -.")
    type: FilledText = Field(description="What kind of tool it is.")
    description: Maybe[Text] = Field(None, description="What it does and when to use it: the model reads this.")
    groups: Maybe[Names] = Field(None, description="The groups it belongs to; `core` without this key.")
    available: Maybe[Available] = Field(
        None, description="When it is there: a predicate, true, false, or several as one."
    )
    rate_limit: Maybe[Limit] = Field(None, description="How often it may be called, such as 10/60s.")
    timeout_seconds: Maybe[PositiveNumber] = Field(None, description="How long one call may take, in seconds.")
    consent: Maybe[Consent] = Field(
        None, description="Whether a person must say yes to a call; or a function of the arguments that tells."
    )
    internal_only: Maybe[Flag] = Field(None, description="It is for host code alone, and no caller sees it.")
    annotations: Maybe[AnnotationsForm] = Field(None, description="Hints about what it does.")
    repair: Maybe[Flag] = Field(None, description="Mend arguments that are slightly wrong, such as numbers in text.")
    aliases: Maybe[Mapping[FilledText, FilledText]] = Field(
        None, description="Other names that arguments are accepted under: `alias: parameter`."
    )
    output: Maybe[Mapping[Text, Anything]] = Field(None, description="The JSON Schema of its result.")
    examples: Maybe[tuple[Mapping[Text, Anything], ...]] = Field(None, description="Arguments of example calls.")

    renamed_from: Maybe[Names] = Field(None, description="Names that it had before; calls under them still work.")
    deprecated: Maybe[Day] = Field(None, description="The day on which it ends, such as 2027-01-01.")
    replaced_by: Maybe[FilledText] = Field(None, description="The tool to use instead.")

    @property
    def called(self) -> str:
        """The name under which it is declared, which no other tool may have."""
        return self.name

    def files_beside(self, folder: Path) -> Sequence[Path]:
        """Return the files that it is made of beside the config, in `folder`; they are watched too."""
        return ()


def overlaid(spec: ToolSpec, tool: Declared[ToolForm], build: BuildContext) -> ToolSpec:
    """Return `spec` with what the config says of the tool; what it does not say stays."""
    said, at = tool.value, tool.at
    changes: dict[str, Any] = {"name": said.name, "origin": at.origin}
    if said.description is not None:
        changes["description"] = said.description
    if said.groups is not None:
        changes["groups"] = said.groups or ("core",)
    if said.available is not None:
        changes["available"] = availability(said.available)
    if said.rate_limit is not None:
        changes["rate_limit"] = rate_limit(said.rate_limit)
    if said.timeout_seconds is not None:
        changes["timeout_s"] = said.timeout_seconds
    if said.consent is not None:
        changes["consent"] = _consent(said.consent, tool, build)
    if said.internal_only is not None:
        changes["internal_only"] = said.internal_only
    if said.repair is not None:
        changes["repair"] = said.repair
    if said.annotations is not None:
        changes["annotations"] = replace(spec.annotations, **said.annotations.hints())
        changes["title"] = said.annotations.title or spec.title
    if said.output is not None:
        schema, problems = read_schema(said.output, at / "output")
        build.report.add(*problems)
        changes["output_schema"] = None if problems else schema
    for name in ("renamed_from", "deprecated", "replaced_by"):
        if getattr(said, name) is not None:
            changes[name] = getattr(said, name)
    if said.examples is not None:
        changes["examples"] = tuple(dict(example) for example in said.examples)
    return replace(spec, **changes)


def check_examples(entry: ToolEntry, tool: Declared[ToolForm], build: BuildContext) -> None:
    """Report the examples whose arguments a call would refuse."""
    judge, _ = judges(entry, build.config.bounds)
    for index, example in enumerate(tool.value.examples or ()):
        for problem in judge.problems(judge.with_defaults(dict(example))):
            at = tool.at / "examples" / index
            build.report.add(
                at.problem(f"a call with these arguments would be refused: {problem.path}: {problem.message}")
            )


def check_aliases(spec: ToolSpec, tool: Declared[ToolForm], build: BuildContext) -> ToolSpec:
    """Return `spec` with the aliases of the config, each resolved to the parameter it stands for."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties", {})
    own = {alias: target for alias, target in spec.aliases.items() if target in properties}
    said = tool.value.aliases or {}
    names = [Name(name) for name in properties]
    try:
        made = resolve([*names, *starmap(Name, own.items()), *starmap(Name, said.items())], where=tool.at.origin)
    except DefinitionError as error:
        for problem in error.problems:
            meant = next(
                (
                    alias
                    for alias, to in said.items()
                    if f"{alias!r}" in problem.message or f"{to!r}" in problem.message
                ),
                "",
            )
            build.report.add((tool.at / "aliases" / meant).problem(problem.message, at_key=True))
        return spec
    return replace(spec, aliases=made)


def _consent(said: str, tool: Declared[ToolForm], build: BuildContext) -> ConsentRule:
    if said in ("never", "always", "destructive"):
        return said
    found = build.resolve(said, tool.at / "consent")
    return "always" if found is None else found
