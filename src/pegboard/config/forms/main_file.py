"""Main file: the top-level keys of pegboard.yaml, and of the files that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec.structs import asdict
from pydantic import AfterValidator, Discriminator, Field, Tag, create_model, model_validator

from pegboard.config.forms.alert_form import AlertForm
from pegboard.config.forms.audit_form import AuditForm
from pegboard.config.forms.budget_form import BudgetsForm
from pegboard.config.forms.connections_form import ConnectionsForm
from pegboard.config.forms.embedder_form import EmbedderForm
from pegboard.config.forms.identity_form import IdentityForm
from pegboard.config.forms.model_form import ModelForm
from pegboard.config.forms.predicate_form import PredicateForm
from pegboard.config.forms.profile_form import ProfileForm
from pegboard.config.forms.tasks_form import TasksForm
from pegboard.config.forms.value_types import (
    EXTENSIBLE,
    MAPPING,
    TEXT,
    Anything,
    ConcealedText,
    FilledText,
    Flag,
    Form,
    HookTarget,
    Limit,
    Maybe,
    ModuleGlob,
    ModuleName,
    Names,
    Namespace,
    PositiveNumber,
    PositiveWhole,
    ProfileName,
    Section,
    Text,
    VariableGlob,
    WrittenText,
    definition_error,
    is_url,
)
from pegboard.config.forms.workspace_form import WorkspaceForm
from pegboard.model.bounds import Bounds
from pegboard.model.hook import HookKind
from pegboard.model.lint_rule import LintRule


class AgentsForm(Form):
    """Settings that all agents share."""

    store: Maybe[ConcealedText] = Field(
        None, description="Where conversations are stored: sqlite:FILE or postgresql://HOST/NAME."
    )


class HookForm(Form):
    """Your own function, or a service, that runs for every matching call."""

    on: HookKind = Field(description="When the hook runs. If a `before` hook fails, the call is refused.")
    match: FilledText = Field("*", description="A glob over tool names.")
    use: HookTarget = Field(
        description="The function, as `python:module:function`, or the https URL of a service that receives each call "
        "as a signed message."
    )
    secret: Maybe[ConcealedText] = Field(
        None,
        description="The secret that signs messages to the service (HMAC-SHA256), such as ${HOOK_SECRET}. Required "
        "for a URL.",
    )
    required: Flag = Field(False, description="Whether the call fails if an `after` hook fails.")

    @model_validator(mode="after")
    def _is_signed(self) -> HookForm:
        if is_url(self.use) and not self.secret:
            raise definition_error(
                "a hook at a URL needs `secret`, such as `secret: ${HOOK_SECRET}`, to sign each message"
            )
        if not is_url(self.use) and self.secret is not None:
            raise definition_error("`secret` signs messages to a service; a Python function takes none. Remove it")
        if is_url(self.use) and self.on == "around":
            raise definition_error("a service cannot run `around` a call; use `on: before` or `on: after`")
        return self


class RateLimits(Form):
    """The rate limit of tools without their own, and the store that counts calls."""

    store: Maybe[ConcealedText] = Field(
        None,
        description="The Redis or Valkey server that counts calls for several processes, such as "
        "redis://localhost:6379. Default: each process counts only its own calls.",
    )
    default: Maybe[Limit] = Field(None, description="The limit of every tool without its own, such as 100/60s.")


class ConsentsForm(Form):
    """The store of people's answers, and the inbox of open questions."""

    store: ConcealedText = Field(
        description="Where people's answers and open questions are stored: sqlite:FILE for the processes of one "
        "machine, postgresql://HOST/NAME for several machines. redis://HOST:PORT only records which answers "
        "were used, and has no inbox. Without `consents:` each process keeps its answers in memory.",
    )
    url: Maybe[Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*[^\s/?#])?$")]] = Field(
        None,
        description="The URL of `pegboard serve`, without a trailing slash. The error of a refused call then "
        "contains the page URL/consents/ID, where a person decides.",
    )


class ServingForm(Form):
    """Secrets and a bus that all servers of this config share."""

    keys: tuple[ConcealedText, ...] = Field(
        (),
        description="Secrets of at least 32 bytes that encrypt state which clients send back, such as session ids. "
        "The first secret encrypts; all of them decrypt. Use the same keys on all servers behind one "
        "address. The workers of one `pegboard serve` need none.",
    )
    bus: Maybe[ConcealedText] = Field(
        None,
        description="The message bus of workers with the same keys: redis://HOST:PORT or postgresql://HOST/NAME.",
    )


class ConsoleForm(Form):
    """How people log in to the console, and what operators see there."""

    client_id: Maybe[FilledText] = Field(
        None,
        description="The client id of the console at the issuer of `identity.jwt`, where people log in. At the "
        "issuer, register the server's address followed by /console/login/callback.",
    )
    client_secret: Maybe[ConcealedText] = Field(None, description="The client's secret, if it has one.")
    scopes: Maybe[Names] = Field(
        None, description="The scopes to request. Default: `openid` and the scopes of `identity.jwt`."
    )
    bodies: Literal["nobody", "operators"] = Field(
        "nobody",
        description="Whether operators see the arguments and results of other people's tasks and questions.",
    )


class IgnoreForm(Form):
    """Findings of `pegboard lint` that are intended."""

    tool: FilledText = Field(description="A glob over tool names.")
    rule: LintRule = Field(description="The rule whose findings are ignored.")
    reason: FilledText = Field(description="Why the finding is intended.")


class LintForm(Form):
    """Findings that `pegboard lint` ignores."""

    ignore: tuple[IgnoreForm, ...] = Field((), description="The findings to ignore, each with a reason.")


def _limits() -> type[Form]:
    """Return a form with one key for each bound of core, with the type of the bound."""
    defaults: dict[str, int | float] = asdict(Bounds())
    keys: dict[str, Any] = {}
    for name, value in defaults.items():
        words = name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
        unit = " in seconds" if name.endswith("_s") else " in bytes" if name.endswith("_bytes") else ""
        kind: Any = PositiveWhole if isinstance(value, int) else PositiveNumber
        keys[name] = (
            Maybe[kind],
            Field(None, description=f"The limit {words}{unit}; {value:,} by default."),
        )
    return create_model(
        "Limits", __base__=Form, __doc__="The limits of this process, by the names in `pegboard.Bounds`.", **keys
    )


if TYPE_CHECKING:
    LimitsForm: TypeAlias = Form
else:
    LimitsForm = _limits()


def _model_text(value: str) -> str:
    provider, _, name = value.partition(":")
    if provider not in ("openai", "anthropic", "google") or not name:
        text = (
            f"{value[:80]!r} is not a model: expected `openai:name`, `anthropic:name` or `google:name`, "
            "or a mapping with provider, name and base_url"
        )
        raise definition_error(text)
    return value


ModelRef: TypeAlias = Annotated[
    Annotated[Section[ModelForm], Tag(MAPPING)] | Annotated[Text, AfterValidator(_model_text), Tag(TEXT)],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]


class ExamplesForm(Form):
    """A file of example requests, which tool search reads in addition to descriptions."""

    file: FilledText = Field(
        "search-examples.yaml",
        description="The file, relative to this one; `pegboard search --write-examples` writes it.",
    )
    model: Maybe[FilledText] = Field(
        None,
        description="The entry of `models:` that writes the requests. Default: `default`. Searching needs no model.",
    )


class LearnForm(Form):
    """A file that records, for each space, the tools called after each search, to rank later searches."""

    file: FilledText = Field(
        ".pegboard-search-use.sqlite",
        description="The file, relative to this one. It has word stems of requests, tool ids and hashes of callers.",
    )


class DiscoveryForm(Form):
    """Additional data for tool search."""

    embedder: Maybe[EmbedderForm] = Field(None, description="The embedder that compares requests and tools by meaning.")
    learn: Maybe[LearnForm] = Field(
        None, description="Record the tools called after each search, to rank later searches."
    )
    examples: Maybe[ExamplesForm] = Field(None, description="A file of example requests for each tool.")


class Fragment(Form):
    """The keys of every file: the main file, and those that it names under `files:`.

    Tools and hooks are validated one by one, by their own forms.
    """

    python: tuple[ModuleName, ...] = Field(
        (), description="Python modules to import. The tools that they declare on `pegboard.default_catalog` are added."
    )
    settings: Mapping[Text, Anything] = Field(
        default_factory=dict[str, Any],
        description="Values that your code reads as `ctx.settings`, and that predicates can check.",
    )
    predicates: Mapping[FilledText, Section[PredicateForm]] = Field(
        default_factory=dict[str, PredicateForm], description="Named conditions, to use under `available:` of tools."
    )
    groups: Mapping[FilledText, Text | None] = Field(
        default_factory=dict[str, str | None], description="Groups of tools, each with a description."
    )
    tools: tuple[Any, ...] = Field((), description="The tools, each with a `type`.")
    profiles: Mapping[ProfileName, Section[ProfileForm]] = Field(
        default_factory=dict[str, ProfileForm], description="Named selections of tools, one for each kind of caller."
    )
    hooks: tuple[Any, ...] = Field((), description="Functions that run before, around or after calls.")


class MainFile(Fragment):
    """pegboard.yaml: every tool once, and who may use it."""

    model_config = EXTENSIBLE

    name: Namespace = Field("pegboard", description="The name of this catalog, shown to clients.")
    plugins: tuple[WrittenText, ...] = Field(
        (), description="Plugins to load, by the names of their entry points; they add types of tools."
    )
    files: tuple[FilledText, ...] = Field((), description="More files, as globs relative to this one.")
    allow_imports: Maybe[tuple[ModuleGlob, ...]] = Field(
        None,
        description="Globs over module names: only these modules may be imported. Modules of Python itself and of "
        "Pegboard must always be listed.",
    )
    env: Maybe[tuple[VariableGlob, ...]] = Field(
        None,
        description="Globs over environment variables, and over files, such as `file:/run/secrets/*`: only these may "
        "be used in `${…}` or `secret:`.",
    )
    models: Mapping[FilledText, ModelRef] = Field(
        default_factory=dict[str, Any],
        description="Language models, each with a name. Tools that name no model use `default`.",
    )
    discovery: Maybe[Section[DiscoveryForm]] = Field(None, description="Tool search.")
    limits: Maybe[Section[LimitsForm]] = Field(None, description="Limits of this process.")
    rate_limits: Maybe[Section[RateLimits]] = Field(None, description="Limits on calls.")
    budgets: Maybe[Section[BudgetsForm]] = Field(None, description="Limits on calls, or on their cost, per period.")
    consents: Maybe[Section[ConsentsForm]] = Field(None, description="People's approvals of calls.")
    connections: Maybe[Section[ConnectionsForm]] = Field(None, description="People's own accounts at other services.")
    tasks: Maybe[Section[TasksForm]] = Field(None, description="Calls that continue after their request has ended.")
    audit: Maybe[Section[AuditForm]] = Field(None, description="The record of calls.")
    alerts: tuple[Section[AlertForm], ...] = Field((), description="Messages to you when something goes wrong.")
    server: Maybe[Section[ServingForm]] = Field(
        None, description="Keys and a message bus that all servers with this config share."
    )
    console: Maybe[Section[ConsoleForm]] = Field(
        None, description="The web pages for people: how people log in, and what operators see."
    )
    identity: Maybe[Section[IdentityForm]] = Field(None, description="Who may connect over HTTP, and their rights.")
    workspace: Maybe[Section[WorkspaceForm]] = Field(None, description="Documents that agents browse, search and read.")
    agents: Maybe[Section[AgentsForm]] = Field(None, description="Settings of all agents.")
    skills: Mapping[FilledText, FilledText] = Field(
        default_factory=dict[str, str],
        description="Skills by namespace. A skill is a folder with a SKILL.md that explains how to use the tools of "
        "the namespace. Its path is relative to this file.",
    )
    lint: Maybe[Section[LintForm]] = Field(None, description="Findings that `pegboard lint` ignores.")
