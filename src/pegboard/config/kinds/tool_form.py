"""Tool form: the keys that tools of every kind may have, generated from the table of options, and their effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Struct
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, create_model
from pydantic_core import PydanticCustomError

from pegboard.authoring.aliases import ParameterName, resolve
from pegboard.authoring.option_table import BY_NAME, OPTIONS, YamlForm, with_options
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.consents import has_inbox
from pegboard.config.forms.predicate_form import Available, availability
from pegboard.config.forms.value_types import (
    MAPPING,
    TEXT,
    Anything,
    CostForm,
    FilledText,
    Flag,
    Form,
    Limit,
    Maybe,
    Names,
    Namespace,
    PositiveNumber,
    Text,
    ToolName,
    rate_limit,
    reference,
)
from pegboard.config.parameters import read_schema
from pegboard.config.yaml.tree import At
from pegboard.core.validated_entry import judges
from pegboard.model.budget import Cost
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import ConsentRule, ToolEntry, ToolSpec


def _consent_rule(value: object) -> object:
    # People often write `true`; the error then lists the valid words, and does not complain that it is not text.
    if not isinstance(value, str) or not (value in ("never", "always", "destructive") or value.startswith("python:")):
        raise PydanticCustomError("consent", "expected never, always, destructive or `python:module:function`")
    return reference(value) if value.startswith("python:") else value


Consent: TypeAlias = Annotated[
    str,
    BeforeValidator(_consent_rule),
    Field(json_schema_extra={"pattern": "^(never|always|destructive|python:[\\w.]+:[\\w.]+)$"}),
]


def _day(value: str) -> str:
    try:
        date.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("day", "expected a day, such as 2027-01-01") from None
    return value


Day: TypeAlias = Annotated[Text, AfterValidator(_day), Field(json_schema_extra={"format": "date"})]


def _consent(value: Any, at: At, build: BuildContext) -> ConsentRule:
    if value in ("never", "always", "destructive"):
        return value
    rule = build.resolve(value, at)
    return "always" if rule is None else rule


def _cost(value: CostForm, at: At, build: BuildContext) -> Cost | None:
    try:
        return Cost(amount=value.amount, unit=value.unit)
    except DefinitionError as error:
        build.report.add(at.problem(str(error)))
        return None


def _schema(value: Any, at: At, build: BuildContext) -> JSON | None:
    schema, problems = read_schema(value, at)
    build.report.add(*problems)
    return None if problems else schema


class _ValueForm(Struct, frozen=True, kw_only=True):
    """The type of a key, and the function that reads it as the value of its option; by default it is unchanged."""

    type: Any
    read: Callable[[Any, At, BuildContext], Any] = lambda value, at, build: value


Example: TypeAlias = Annotated[
    Annotated[Mapping[Text, Anything], Tag(MAPPING)] | Annotated[FilledText, Tag(TEXT)],
    Discriminator(lambda value: TEXT if isinstance(value, str) else MAPPING),
]

# The forms that the table of options names.
_VALUE_FORMS: Final[Mapping[YamlForm, _ValueForm]] = {
    "aliases": _ValueForm(type=Maybe[Mapping[FilledText, FilledText]]),
    "availability": _ValueForm(type=Maybe[Available], read=lambda value, at, build: availability(value)),
    "consent": _ValueForm(type=Maybe[Consent], read=_consent),
    "cost": _ValueForm(type=Maybe[CostForm], read=_cost),
    "day": _ValueForm(type=Maybe[Day]),
    "examples": _ValueForm(
        type=Maybe[tuple[Example, ...]],
        read=lambda value, at, build: tuple(one if isinstance(one, str) else dict(one) for one in value),
    ),
    "filled text": _ValueForm(type=Maybe[FilledText]),
    "flag": _ValueForm(type=Maybe[Flag]),
    "limit": _ValueForm(type=Maybe[Limit], read=lambda value, at, build: rate_limit(value)),
    "output check": _ValueForm(type=Maybe[Literal["strict", "warn", "relax"]]),
    "names": _ValueForm(type=Maybe[Names]),
    "namespace": _ValueForm(type=Maybe[Namespace]),
    "positive number": _ValueForm(type=Maybe[PositiveNumber]),
    "schema": _ValueForm(type=Maybe[Mapping[Text, Anything]], read=_schema),
    "task": _ValueForm(type=Maybe[Literal["forbidden", "optional", "required"]]),
    "text": _ValueForm(type=Maybe[Text]),
}
# In Python each hint is an option; in a config they are grouped under MCP's name for them.
_HINTS = "annotations"


def _yaml_keys(within: str) -> dict[str, Any]:
    """Return the fields for the options that the table puts in the mapping `within`; MCP's spellings come last."""
    hints = None if within else (Maybe[_AnnotationsForm], Field(None, description="Hints about the tool's effects."))
    keys: dict[str, Any] = {}
    wire_keys: dict[str, Any] = {}
    for option in OPTIONS:
        yaml = option.yaml
        if yaml is None:
            continue
        value = _VALUE_FORMS[yaml.form].type
        if yaml.within == within:
            keys[option.yaml_key] = (value, Field(None, description=yaml.meaning or option.meaning))
            if yaml.wire_key:
                wire_keys[yaml.wire_key] = (value, Field(None, description=f"The same as {option.yaml_key}."))
        elif not within:
            keys.setdefault(yaml.within, hints)
    return {**keys, **wire_keys}


_AnnotationsForm: Any = create_model(
    "AnnotationsForm",
    __base__=Form,
    __module__=__name__,
    __doc__="Hints about a tool, in the words of Python or of MCP.",
    **_yaml_keys(_HINTS),
)


class _NamedForm(Form):
    name: ToolName = Field(description="The name of this entry: 1 to 64 of A-Z a-z 0-9 _ -.")
    type: FilledText = Field(description="The kind of tool.")


# Keys are generated from the table, so a new option needs only a new row.
_OptionsForm = create_model("_OptionsForm", __base__=_NamedForm, __module__=__name__, **_yaml_keys(""))


class ToolForm(_OptionsForm):
    """The keys of any tool: its name, its type, and every option of the table that has a YAML key."""

    @property
    def called(self) -> str:
        """The declared name, which no other tool may have."""
        return self.name

    @property
    def when_repeated(self) -> str:
        """A hint for two tools with the same name."""
        return "Rename one"

    def files_in(self, folder: Path) -> Sequence[Path]:
        """Return its files in the config's folder `folder`, which are watched for changes."""
        return ()

    def option(self, name: str) -> Any:
        """Return the value of an option in the form; `None` if it is not set."""
        option = BY_NAME[name]
        yaml = option.yaml
        holder = getattr(self, yaml.within) if yaml is not None and yaml.within else self
        if yaml is None or holder is None:
            return None
        value = getattr(holder, option.yaml_key)
        return getattr(holder, yaml.wire_key) if value is None and yaml.wire_key else value


def keys_of_one_tool() -> list[str]:
    """Return the keys that apply to a single tool, so a source of many tools cannot have them."""
    keyed = [(option.yaml_key, option.yaml) for option in OPTIONS if option.yaml is not None]
    return list(dict.fromkeys(yaml.within or key for key, yaml in keyed if yaml.of_one_tool))


def guards_of_each_tool() -> list[str]:
    """Return the fields of a `ToolSpec` that a source copies to each of its tools."""
    return [
        option.name
        for option in OPTIONS
        if option.yaml is not None and not option.yaml.of_one_tool and option.name not in _OF_THE_SOURCE
    ]


# A source has its own description and time limit, and may set groups for some of its tools.
_OF_THE_SOURCE = ("description", "groups", "timeout_s")


def overlaid(spec: ToolSpec, tool: Declared[ToolForm], build: BuildContext) -> ToolSpec:
    """Return `spec` with the options of the config; unset options keep their values.

    Aliases are left to `check_aliases`, which needs the parameters.
    """
    values: dict[str, Any] = {"name": tool.value.name}
    for option in OPTIONS:
        value = tool.value.option(option.name)
        if option.yaml is not None and value is not None and option.name != "aliases":
            at = tool.at / option.yaml.within if option.yaml.within else tool.at
            values[option.name] = _VALUE_FORMS[option.yaml.form].read(value, at / option.yaml_key, build)
    if values.get("four_eyes") and not has_inbox(build.config):
        text = 'two people decide in an inbox, and there is none; add `consents: {store: "sqlite:./pegboard.db"}`'
        build.report.add((tool.at / "four_eyes").problem(text))
    return replace(with_options(spec, values), origin=tool.at.origin)


def check_examples(entry: ToolEntry, tool: Declared[ToolForm], build: BuildContext) -> None:
    """Report the examples whose arguments a call would refuse."""
    judge = judges(entry, build.config.bounds)[0]
    declared: Sequence[JSON | str] = tool.value.option("examples") or ()
    for index, example in enumerate(declared):
        if isinstance(example, str):
            continue  # a request in words
        arguments = judge.with_defaults(dict(example))
        for problem in () if judge.is_valid(arguments) else judge.problems(arguments):
            at = tool.at / "examples" / index
            build.report.add(
                at.problem(f"a call with these arguments would be refused: {problem.path}: {problem.message}")
            )


def check_aliases(spec: ToolSpec, tool: Declared[ToolForm], build: BuildContext) -> ToolSpec:
    """Return `spec` with the aliases of the config, each resolved to its parameter."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties", {})
    own = {alias: target for alias, target in spec.aliases.items() if target in properties}
    declared: Mapping[str, str] = tool.value.option("aliases") or {}
    names = [ParameterName(name) for name in properties]
    aliases = [*starmap(ParameterName, own.items()), *starmap(ParameterName, declared.items())]
    try:
        return replace(spec, aliases=resolve([*names, *aliases], where=tool.at.origin))
    except DefinitionError as error:
        for problem in error.problems:
            suggestion = next(
                (
                    alias
                    for alias, target in declared.items()
                    if f"{alias!r}" in problem.message or f"{target!r}" in problem.message
                ),
                "",
            )
            build.report.add((tool.at / "aliases" / suggestion).problem(problem.message, at_key=True))
        return spec
