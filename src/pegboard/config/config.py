"""Config: the validated contents of an operator's files, with the place of every value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from pegboard.config.allowed_imports import AllowedImports
from pegboard.config.forms.alert_form import AlertForm
from pegboard.config.forms.audit_form import AuditForm
from pegboard.config.forms.budget_form import BudgetsForm
from pegboard.config.forms.connections_form import ConnectionsForm
from pegboard.config.forms.embedder_form import EmbedderForm
from pegboard.config.forms.identity_form import IdentityForm
from pegboard.config.forms.main_file import ConsoleForm, HookForm, LearnForm, ServingForm
from pegboard.config.forms.model_form import ModelForm
from pegboard.config.forms.predicate_form import PredicateForm
from pegboard.config.forms.profile_form import ProfileForm
from pegboard.config.forms.tasks_form import TasksForm
from pegboard.config.forms.workspace_form import WorkspaceForm
from pegboard.config.yaml.tree import At
from pegboard.discovery.example_requests import ExampleRequests
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.error import Problem
from pegboard.model.json_types import JSONValue
from pegboard.model.lint_rule import LintIgnore
from pegboard.model.rate_limit import RateLimit
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.config.forms.agent_form import AgentFile, AstromeshFile

LOCK_NAME = "pegboard.lock"
T_co = TypeVar("T_co", covariant=True)


class Declared(Struct, Generic[T_co], frozen=True, kw_only=True):
    """A value in a file, and its place."""

    value: T_co
    at: At


class ExampleFile(Struct, frozen=True, kw_only=True):
    """Example requests for tools, with their file and the name of the model that writes them."""

    path: Path
    model: str | None
    requests: Mapping[str, ExampleRequests]


class Refused(Struct, frozen=True, kw_only=True):
    """The names that refused declarations would have declared, so that references to them are not reported as well.

    `sections` are the sections that tools need and that were left out, fully or in part.
    """

    groups: set[str] = msgspec.field(default_factory=set[str])
    namespaces: set[str] = msgspec.field(default_factory=set[str])
    predicates: set[str] = msgspec.field(default_factory=set[str])
    agents: set[str] = msgspec.field(default_factory=set[str])
    profiles: set[str] = msgspec.field(default_factory=set[str])
    sections: set[str] = msgspec.field(default_factory=set[str])


class AgentDeclaration(Struct, frozen=True, kw_only=True):
    """The file of one agent: its declaration, its private tools, and the groups and tools that it takes."""

    file: Declared[AgentFile | AstromeshFile]
    tools: tuple[Declared[Any], ...] = ()
    groups: tuple[Declared[str], ...] = ()
    shared: tuple[Declared[str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Config:
    """One pegboard.yaml with the files that it names. Made by `load`; `build` makes a catalog from it.

    `files` are all files that were read, the main one first; `globs` lead to the others. Both are watched for changes.
    `env` are globs over the variables that it may name, `None` for all of them.
    `kinds` are the types of its tools, including those of plugins.
    `secrets` has every variable that was used and is not empty, `defaulted` each variable whose default was used, with
    the place. `imports` are the Python modules that it may name. `warnings` do not prevent loading; neither do
    `open_files`, which other users may write, unless `strict` is set.
    """

    path: Path
    files: tuple[Path, ...]
    globs: tuple[str, ...] = ()
    env: tuple[str, ...] | None = None
    name: str = "pegboard"
    python: tuple[Declared[str], ...] = ()
    settings: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])
    secrets: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    defaulted: Mapping[str, str] = field(default_factory=dict[str, str])
    predicates: Mapping[str, Declared[PredicateForm]] = field(default_factory=dict[str, Declared[PredicateForm]])
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: tuple[Declared[Any], ...] = ()
    profiles: Mapping[str, Declared[ProfileForm]] = field(default_factory=dict[str, Declared[ProfileForm]])
    hooks: tuple[Declared[HookForm], ...] = ()
    agents: tuple[AgentDeclaration, ...] = ()
    agent_store: Declared[str | Secret] | None = None
    models: Mapping[str, Declared[ModelForm | str]] = field(default_factory=dict[str, Declared[ModelForm | str]])
    embedder: Declared[EmbedderForm] | None = None
    examples: Declared[ExampleFile] | None = None
    learn: Declared[LearnForm] | None = None
    passage_embedder: Declared[EmbedderForm] | None = None
    bounds: Bounds = DEFAULT_BOUNDS
    default_limit: RateLimit | None = None
    limit_store: Declared[str | Secret] | None = None
    budgets: Declared[BudgetsForm] | None = None
    consent_store: Declared[str | Secret] | None = None
    consent_page: str | None = None
    connections: Declared[ConnectionsForm] | None = None
    audit: Declared[AuditForm] | None = None
    alerts: tuple[Declared[AlertForm], ...] = ()
    server: Declared[ServingForm] | None = None
    console: Declared[ConsoleForm] | None = None
    identity: Declared[IdentityForm] | None = None
    workspace: Declared[WorkspaceForm] | None = None
    skills: Mapping[str, Declared[Path]] = field(default_factory=dict[str, Declared[Path]])
    tasks: Declared[TasksForm] | None = None
    lint_ignores: tuple[LintIgnore, ...] = ()
    warnings: tuple[Problem, ...] = ()
    open_files: tuple[Problem, ...] = ()
    left_out: tuple[Problem, ...] = ()
    refused: Refused = field(default_factory=Refused)
    kinds: Mapping[str, Any] = field(default_factory=dict[str, Any])
    imports: AllowedImports = field(default_factory=AllowedImports)
    strict: bool = False

    @property
    def lacks_tools(self) -> bool:
        """Whether tools may be missing or different because something that they need was left out."""
        return bool(self.left_out) and bool(self.refused.namespaces or self.refused.sections)

    @property
    def space(self) -> str | None:
        """The space of callers without any other."""
        return None if self.workspace is None else self.workspace.value.space

    def __repr__(self) -> str:
        return f"<Config {str(self.path)!r}: {len(self.tools)} tools, {len(self.profiles)} profiles>"
