"""Models: every key of pegboard.yaml, what may stand there, and what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, create_model, model_validator
from pydantic_core import PydanticCustomError

from pegboard.config.identity_forms import IdentityForm
from pegboard.config.unsupported import NOT_YET
from pegboard.config.value_types import (
    FLAG,
    MAPPING,
    TEXT,
    Anything,
    ConcealedText,
    FilledText,
    Flag,
    Form,
    Limit,
    Maybe,
    ModuleName,
    Names,
    Namespace,
    PositiveNumber,
    PositiveWhole,
    ProfileName,
    Reference,
    Text,
    ToolName,
    Variable,
    tag_of,
)
from pegboard.model.bounds import Bounds
from pegboard.model.hook import HookKind

ONE_KEY = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})


def one_key(said: Form, what: str) -> None:
    """Refuse a form that says nothing, or more than one thing."""
    if len(said.model_fields_set) != 1:
        known = ", ".join(field.alias or name for name, field in type(said).model_fields.items())
        raise PydanticCustomError(
            "one_key", "{what} has exactly one of the keys {known}", {"what": what, "known": known}
        )


class PredicateForm(Form):
    """One yes/no question on the context: exactly one key."""

    model_config = ONE_KEY

    secret: Maybe[Variable] = Field(
        None,
        description="The secret of this name is present and not empty; it may come from the environment.",
    )
    context: Maybe[FilledText] = Field(None, description="This field of the context is set, such as space_id.")
    setting: Maybe[FilledText] = Field(None, description="This entry of `settings:` is on.")
    python: Maybe[Reference] = Field(None, description="This function `(ctx) -> bool` says yes, sync or async.")
    all: Maybe[tuple[PredicateRef, ...]] = Field(None, description="All of these say yes.")
    any: Maybe[tuple[PredicateRef, ...]] = Field(None, description="At least one of these says yes.")
    not_: Maybe[PredicateRef] = Field(None, alias="not", description="This says no.")

    @model_validator(mode="after")
    def _says_one_thing(self) -> PredicateForm:
        one_key(self, "a predicate")
        return self


PredicateRef: TypeAlias = Annotated[
    Annotated[PredicateForm, Tag(MAPPING)] | Annotated[FilledText, Tag(TEXT)],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]


class AvailableForm(Form):
    """Several questions as one: exactly one key."""

    model_config = ONE_KEY

    all: Maybe[tuple[Available, ...]] = Field(None, description="All of these hold.")
    any: Maybe[tuple[Available, ...]] = Field(None, description="At least one of these holds.")
    not_: Maybe[Available] = Field(None, alias="not", description="This does not hold.")
    source: Maybe[FilledText] = Field(None, description="The source of this name is up.")

    @model_validator(mode="after")
    def _says_one_thing(self) -> AvailableForm:
        one_key(self, "available")
        return self

    def spelled(self) -> dict[str, object]:
        """Return the form in which core reads availability."""
        parts = {"all": self.all, "any": self.any, "not": self.not_, "source": self.source}
        return {key: availability(part) for key, part in parts.items() if part is not None}


Available: TypeAlias = Annotated[
    Annotated[AvailableForm, Tag(MAPPING)] | Annotated[FilledText, Tag(TEXT)] | Annotated[Flag, Tag(FLAG)],
    Discriminator(tag_of),
]


def availability(said: Any) -> object:
    """Return what core reads for a validated `Available`."""
    if isinstance(said, AvailableForm):
        return said.spelled()
    return [availability(part) for part in said] if isinstance(said, tuple) else said  # pyright: ignore[reportUnknownVariableType] - Available


class RenameForm(Form):
    """Other names for the meta tools of a profile."""

    searchTools: Maybe[ToolName] = Field(None, description="What `searchTools` is called.")  # noqa: N815 - its name
    getTools: Maybe[ToolName] = Field(None, description="What `getTools` is called.")  # noqa: N815 - its name
    useTools: Maybe[ToolName] = Field(None, description="What `useTools` is called.")  # noqa: N815 - its name

    def names(self) -> dict[str, str]:
        """Return the names that are said, by those they replace."""
        said = {"searchTools": self.searchTools, "getTools": self.getTools, "useTools": self.useTools}
        return {name: other for name, other in said.items() if other is not None}

    @model_validator(mode="after")
    def _says_three_names(self) -> RenameForm:
        named = {name: name for name in ("searchTools", "getTools", "useTools")} | self.names()
        if len({name.casefold() for name in named.values()}) < len(named):
            text = "two of the meta tools would have one name; give each a name of its own"
            raise PydanticCustomError("definition", "{said}", {"said": text})
        return self


class ProfileForm(Form):
    """What one kind of caller sees."""

    include: Maybe[Names] = Field(None, description="The groups whose tools it may see; without this key all groups.")
    allow: Maybe[Names] = Field(
        None, description="Globs over tool names, such as `fs__*`: only these tools. An empty list allows none."
    )
    deny: Names = Field((), description="Globs over tool names: never these tools. Deny wins over allow.")
    exposure: Literal["direct", "two_tool", "search", "auto"] = Field(
        "auto",
        description="How the tools are presented: `direct` lists each of them; `two_tool` lists getTools and useTools, "
        "`search` searchTools besides; `auto` is direct while the list costs no more than `token_budget`, else search.",
    )
    token_budget: PositiveWhole = Field(
        8_000, description="What the list may cost with `auto`, in tokens (its bytes / 4.3)."
    )
    pinned: Names = Field((), description="Globs over tool names: these stay in the list beside the meta tools.")
    rename: Maybe[RenameForm] = Field(None, description="Other names for the meta tools.")
    require_context: Flag = Field(
        False, description="Whether useTools wants to be told workspace, session, memory and goal in its `context`."
    )
    rate_limit: Maybe[Limit] = Field(None, description="A limit over all calls of one caller of this profile.")

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> ProfileForm:
        asked = ["token_budget"] if self.exposure != "auto" else []
        asked += ["pinned", "rename", "require_context"] if self.exposure == "direct" else []
        idle = [name for name in asked if name in self.model_fields_set]
        if idle:
            text = f"`{idle[0]}` changes nothing with `exposure: {self.exposure}`; remove one of the two"
            raise PydanticCustomError("definition", "{said}", {"said": text})
        return self


class HookForm(Form):
    """A function of yours at one point of every call that it matches."""

    on: HookKind = Field(description="When it runs. One that fails refuses the call when it stands before.")
    match: FilledText = Field("*", description="A glob over tool names.")
    use: Reference = Field(description="The function, as `python:module:function`.")
    required: Flag = Field(False, description="Whether a hook after the call that fails makes the call fail.")


class RateLimits(Form):
    """How calls are limited where a tool says nothing, and where they are counted."""

    store: Maybe[ConcealedText] = Field(
        None,
        description="A Redis or Valkey by URI, such as redis://localhost:6379, to share counts between processes; "
        "without it they are counted in this process.",
    )
    default: Maybe[Limit] = Field(
        None, description="The limit of every tool that has none of its own, such as 100/60s."
    )


def _limits() -> type[Form]:
    """Return a form with one key for each bound of core, of the type that the bound has."""
    defaults = Bounds()
    keys: dict[str, Any] = {}
    for item in fields(Bounds):
        if f"limits.{item.name}" in NOT_YET:
            continue
        value: int | float = getattr(defaults, item.name)
        words = item.name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
        unit = " in seconds" if item.name.endswith("_s") else " in bytes" if item.name.endswith("_bytes") else ""
        kind: Any = PositiveWhole if isinstance(value, int) else PositiveNumber
        keys[item.name] = (
            Maybe[kind],
            Field(None, description=f"The limit {words}{unit}; {value:,} by default."),
        )
    return create_model(
        "Limits", __base__=Form, __doc__="The limits of this process, by the names in core/bounds.", **keys
    )


if TYPE_CHECKING:
    LimitsForm: TypeAlias = Form
else:
    LimitsForm = _limits()


class ModelForm(Form):
    """A language model behind an endpoint that speaks OpenAI's chat completions."""

    provider: Literal["openai", "openai_compatible"] = Field(description="Whose it is; the second needs a base_url.")
    name: FilledText = Field(description="What the provider calls it.")
    base_url: Maybe[FilledText] = Field(None, description="Where it is, such as http://127.0.0.1:8000/v1.")
    api_key: Maybe[ConcealedText] = Field(None, description="The key; OPENAI_API_KEY of the environment without it.")
    timeout_seconds: PositiveNumber = Field(60.0, description="How long one answer may take, in seconds.")

    @model_validator(mode="after")
    def _says_where(self) -> ModelForm:
        if self.provider == "openai_compatible" and self.base_url is None:
            raise PydanticCustomError("definition", "{said}", {"said": "openai_compatible needs `base_url`"})
        return self


def _model_text(value: str) -> str:
    provider, _, name = value.partition(":")
    if provider != "openai" or not name:
        text = "expected `openai:name`, or a mapping with provider, name and base_url"
        raise PydanticCustomError("definition", "{said}", {"said": text})
    return value


ModelRef: TypeAlias = Annotated[
    Annotated[ModelForm, Tag(MAPPING)] | Annotated[Text, AfterValidator(_model_text), Tag(TEXT)],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]


class Fragment(Form):
    """What any file may hold: the main file, and those that it names under `files:`.

    Tools and hooks are validated one by one, by their own forms.
    """

    python: tuple[ModuleName, ...] = Field(
        (), description="Modules to import; what they register on pegboard.default_catalog is collected."
    )
    settings: Mapping[Text, Anything] = Field(
        default_factory=dict[str, Any], description="Values for your code, as `ctx.settings`, and for predicates."
    )
    predicates: Mapping[FilledText, PredicateForm] = Field(
        default_factory=dict[str, PredicateForm], description="Named yes/no questions, for `available:` of tools."
    )
    groups: Mapping[FilledText, Text | None] = Field(
        default_factory=dict[str, str | None], description="Groups of tools and what each is for."
    )
    tools: tuple[Any, ...] = Field((), description="The tools, each of a `type`.")
    profiles: Mapping[ProfileName, ProfileForm] = Field(
        default_factory=dict[str, ProfileForm], description="Named slices of the catalog, one for each kind of caller."
    )
    hooks: tuple[Any, ...] = Field((), description="Functions that run before, around or after calls.")


class MainFile(Fragment):
    """pegboard.yaml: every tool once, and who may use it."""

    name: Namespace = Field("pegboard", description="The name of this catalog, shown to clients.")
    plugins: tuple[FilledText, ...] = Field(
        (), description="Plugins to load, by the names of their entry points: they bring more types of tools."
    )
    files: tuple[FilledText, ...] = Field((), description="More files, as globs relative to this one.")
    models: Mapping[FilledText, ModelRef] = Field(
        default_factory=dict[str, Any], description="Language models by name; tools that name none use `default`."
    )
    limits: Maybe[LimitsForm] = Field(None, description="Limits of this process.")
    rate_limits: Maybe[RateLimits] = Field(None, description="Limits on calls.")
    identity: Maybe[IdentityForm] = Field(None, description="Who may come in over HTTP, and as whom.")
