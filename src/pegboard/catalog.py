"""Catalog: the public face. It delegates to the parts that `runtime` puts together."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from pegboard.authoring.declared_again import is_declared_again
from pegboard.authoring.definition import (
    ToolOptions,
    builder_entries,
    function_entry,
    named_later,
    origin_of,
    read_built,
    read_registered,
)
from pegboard.authoring.options import BuilderKeywords, ToolKeywords
from pegboard.authoring.tool_class import Tool
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.call.budget_stage import settle
from pegboard.core.declarations import Declarations, Mirror, MirroredSource
from pegboard.core.executor import Executor
from pegboard.core.first_listing import wait_for_listing
from pegboard.core.judge import Selection
from pegboard.core.limits import SHUTDOWN_GRACE_S, SOURCE_START_S
from pegboard.core.names import fold, nearest
from pegboard.core.ports import (
    AuditEvent,
    BudgetStore,
    ConsentRecords,
    DocumentStore,
    Embedder,
    LimitStore,
    Source,
    StartsSlowly,
    UsedAnswers,
)
from pegboard.core.predicates import predicate as question_of
from pegboard.core.registry import Registry
from pegboard.core.snapshot import Snapshot
from pegboard.core.unmatched_globs import unmatched
from pegboard.core.view import View
from pegboard.discovery.exposure import Discovery, exposed
from pegboard.discovery.finder import Found
from pegboard.discovery.limits import SEARCH_USUAL_HITS
from pegboard.lazy import LazyModule
from pegboard.model.agent import AgentEntry, AgentSpec, ModelSpec
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.budget import Budget
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError, PegboardError
from pegboard.model.fastmcp_names import CATALOG_NAMES, missing_attribute
from pegboard.model.hook import Hook, HookKind
from pegboard.model.json_types import JSON
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.profile import Profile
from pegboard.model.record import replace
from pegboard.model.result import ToolResult
from pegboard.model.secret import Secret
from pegboard.model.skill import Skill
from pegboard.model.tool import Handler, Runs, ToolEntry, ToolSpec
from pegboard.resources import Resources
from pegboard.runtime import Runtime, assemble, close_stores, in_memory_ports
from pegboard.telemetry import tracing

if TYPE_CHECKING:
    from pegboard.agents.runtime import AgentRuntime
    from pegboard.auth.rules import IdentityRules
    from pegboard.connections.connections import Connections
    from pegboard.resources import skill_reader
    from pegboard.tasks.tasks import Tasks
    from pegboard.workspace import document_operations, document_resources
    from pegboard.workspace import upload as uploading
    from pegboard.workspace.tools import fetch_web_page, toolset
    from pegboard.workspace.tools.lent_model import ModelOf
else:
    document_operations = LazyModule("pegboard.workspace.document_operations")
    document_resources = LazyModule("pegboard.workspace.document_resources")
    uploading = LazyModule("pegboard.workspace.upload")
    toolset = LazyModule("pegboard.workspace.tools.toolset")
    fetch_web_page = LazyModule("pegboard.workspace.tools.fetch_web_page")
    skill_reader = LazyModule("pegboard.resources.skill_reader")

POLICIES_CHECKED = 256  # policies that were checked for unknown names

F = TypeVar("F", bound=Callable[..., Any])
Names = str | Sequence[str] | Callable[[], Sequence[str]]
UNNAMED = "pegboard"
"""The name of a catalog without one."""
_EVERYTHING = Selection()


class Catalog:
    """All tools, each declared once. A view selects from them for one caller; every call on a view is guarded.

    >>> import asyncio
    >>> catalog = Catalog("office")
    >>> @catalog.tool(groups="math")
    ... def add(a: int, b: int) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> ann = ToolContext(user_id="ann")
    >>> view = catalog.view(ann, include=["math"])
    >>> view.names()
    ['add']
    >>> asyncio.run(view.call("add", {"a": 1, "b": 2})).structured
    3

    The examples of the methods continue the example below.

    Args:
        name: shown to clients; the `server` in allow-lists of SDKs.
        bounds: the limits of this process; `DEFAULT_BOUNDS` by default.
        context_type: a subclass of ToolContext, whose methods and properties can be used as predicates.
        limit_store: counts calls for rate limits; in memory by default.
        budget_store: counts calls and costs of budgets; in memory by default. `pegboard.limits.sql_budgets` and
            `redis_store` have stores that outlive the process.
        consent_store: stores people's answers, and questions that wait for one, for all processes that share it:
            `pegboard.consent.sqlite_store.SqliteConsents` or `postgres_store.PostgresConsents`. Without a store, each
            process keeps its own answers, and a question must be answered at once.
        embedder: adds search by meaning to the search by words; see `pegboard.core.ports.Embedder`. A search does not
            fail or wait long if it is away.
        tasks: stores calls that outlive their request; without it, no tool can run as a task.
        clock: a monotonic clock in seconds, for tests.
    """

    # Only for missing attributes; type checkers must go on reporting these.
    if not TYPE_CHECKING:  # pragma: no branch - always true when it runs

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property that fails says why itself
            raise missing_attribute(self, name, CATALOG_NAMES)

    def __init__(
        self,
        name: str = UNNAMED,
        *,
        bounds: Bounds | None = None,
        context_type: type[ToolContext] = ToolContext,
        limit_store: LimitStore | None = None,
        budget_store: BudgetStore | None = None,
        consent_store: UsedAnswers | None = None,
        embedder: Embedder | None = None,
        tasks: Tasks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        declared = Declarations(name=name, bounds=bounds or DEFAULT_BOUNDS)
        ports = in_memory_ports(declared.bounds, clock=clock).with_limits(limit_store)
        ports = replace(ports.with_budgets(budget_store), used_answers=consent_store)
        if isinstance(consent_store, ConsentRecords):
            ports = replace(ports, consents=consent_store)
        self.runtime = assemble(declared, ports, context_type=context_type, embedder=embedder)
        self._is_of_config = False
        self._connections: Connections | None = None
        if tasks is not None:
            self.use_tasks(tasks)
        self._default_loaders: list[Callable[[Catalog], object]] = []
        self._selections: dict[str, tuple[Profile, Selection]] = {}
        _catalogs.add(self)

    # ------------------------------------------------------------ parts

    @property
    def registry(self) -> Registry:
        """The declarations: tools, groups, profiles, sources.

        >>> list(catalog.registry.declarations.tools)
        ['main.add']
        """
        return self.runtime.registry

    @property
    def executor(self) -> Executor:
        """Runs every call, with all guards; no other code calls a handler.

        >>> catalog.executor.closing
        False
        """
        return self.runtime.executor

    @property
    def connections(self) -> Connections | None:
        """The accounts of people at the services behind sources; `connections:` of a config fills it.

        >>> catalog.connections is None
        True
        """
        return self._connections

    @connections.setter
    def connections(self, connections: Connections | None) -> None:
        self._connections = connections
        if connections is not None:
            connections.note_change = self._note_change

    def _note_change(self, event: AuditEvent, detail: JSON, by: str) -> None:
        # The audit of now: a reload of the config may have brought another one.
        audit = self.executor.ports.audit
        if audit is not None:
            audit.note(event, detail, by=by)

    @property
    def discovery(self) -> Discovery:
        """The search over all tools; all callers share its index.

        >>> catalog.discovery.bounds is catalog.registry.bounds
        True
        """
        return self.runtime.discovery

    @property
    def agents(self) -> AgentRuntime:
        """Runs the declared agents, e.g. `await catalog.agents.run("researcher", "…")`.

        Raises:
            DefinitionError: a package that agents need is not installed.

        >>> type(catalog.agents).__name__
        'AgentRuntime'
        """
        return self.runtime.agents.runtime

    @property
    def resources(self) -> Resources:
        """Resources, prompts and completions.

        >>> list(catalog.resources.specs)
        []
        """
        return self.runtime.resources

    @property
    def tasks(self) -> Tasks:
        """The calls that outlive their request.

        Raises:
            DefinitionError: the catalog has no store for tasks.

        >>> catalog.tasks
        Traceback (most recent call last):
        ...
        pegboard.model.error.DefinitionError: Tasks are not configured: ...
        """
        tasks = self.executor.ports.tasks
        if tasks is None:
            raise DefinitionError("Tasks are not configured: `tasks:` in a config, `Catalog(tasks=Tasks())` in Python.")
        return cast("Tasks", tasks)

    def use_tasks(self, tasks: Tasks) -> None:
        """Let tools run as tasks from now on, stored in `tasks`.

        Raises:
            DefinitionError: `tasks` belongs to another catalog.

        >>> reports = Catalog("reports")
        >>> reports.use_tasks(Tasks())
        >>> reports.tasks is reports.executor.ports.tasks
        True
        """
        tasks.attach(self.executor, self.view)
        self.executor.swap(replace(self.executor.ports, tasks=tasks))

    def use_documents(
        self,
        store: DocumentStore,
        *,
        model_of: ModelOf | None = None,
        analyst_model: ModelSpec | None = None,
        web_fetch: bool | Sequence[str] = False,
    ) -> None:
        """Declare tools to browse, search, read and query documents; each caller sees the spaces it may read.

        The tools are in the groups `navigation`, `search` and `document`. `store` is for example `Workspace(…).store`.
        `model_of` returns the model that writes SQL for questions about tables. `analyst_model` is the model of the
        agent that reads documents; without it, `analyze_document` is hidden. `web_fetch` adds `fetch_web_page` in the
        group `web`, for all public hosts or for those that match the globs.

        Raises:
            DefinitionError: a package that documents need is not installed.
            DuplicateToolError: the catalog already has tools for documents.

        >>> library = Catalog("library")
        >>> library.use_documents(Workspace("sqlite:documents.db").store)
        >>> "search_documents" in library.view(ann, include=["search"]).names()
        True
        """
        for name, description in toolset.GROUPS.items():
            self.group(name, description)
        self.registry.add(
            *toolset.entries(
                store,
                sql_s=self.registry.bounds.sql_s,
                model_of=model_of or toolset.no_model,
                analyst_model=analyst_model,
                analysis_s=self.registry.bounds.agent_timeout_s,
            ),
            document_resources.document_resource(store),
            uploading.upload_entry(store, [*toolset.GROUPS]),
            *document_operations.document_operations(store, [*toolset.GROUPS]),
        )
        if web_fetch is not False:
            hosts = None if web_fetch is True else tuple(web_fetch)
            self.group("web", "Pages of the web.")
            self.registry.add(fetch_web_page.fetch_tool_for(hosts, bounds=self.registry.bounds))
        self.registry.change(documents=store)

    @property
    def name(self) -> str:
        """The name that clients see; the `server` in allow-lists of SDKs.

        >>> catalog.name
        'office'
        """
        return self.registry.declarations.name

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Values that are removed from every result, error and log, in addition to the secrets of each context.

        >>> catalog.secrets
        ()
        """
        return self.registry.declarations.secrets

    def add_secrets(self, *secrets: Secret) -> None:
        """Remove these values, too, from every result, error and log.

        >>> keys = Catalog("keys")
        >>> keys.add_secrets(Secret("s3cr3t-token"))
        >>> len(keys.secrets)
        1
        """
        known = self.secrets
        self.registry.change(secrets=(*known, *(secret for secret in secrets if secret not in known)))

    @property
    def identity(self) -> IdentityRules | None:
        """The rules that decide who may connect over HTTP; with `None`, everybody who reaches the server may.

        >>> catalog.identity is None
        True
        """
        return self.registry.declarations.identity

    @identity.setter
    def identity(self, rules: IdentityRules | None) -> None:
        self.registry.change(identity=rules)

    # ------------------------------------------------------------ declare

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, /, *, replace: bool = False, **options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    def tool(
        self, fn: Callable[..., Any] | None = None, /, *, replace: bool = False, **options: Unpack[ToolKeywords]
    ) -> Any:
        """Declare a function as a tool, and return the function. `ToolKeywords` lists the options.

        Raises:
            DefinitionError: an option or annotation cannot be used.
            DuplicateToolError: the name is taken; `replace=True` replaces the tool. A function defined again, by
                a notebook cell or a reload of its module, replaces itself.

        >>> @catalog.tool(groups="math", rate_limit="10/60s")
        ... def halve(number: float) -> float:
        ...     "Halve a number."
        ...     return number / 2
        >>> asyncio.run(catalog.view(ann).call("halve", {"number": 3})).text
        '1.5'
        """
        parsed = ToolOptions.of(options)

        def declare(declared: Callable[..., Any]) -> Callable[..., Any]:
            entry = function_entry(declared, parsed)
            self._add_of(declared, entry, replace=replace)
            return declared

        return declare if fn is None else declare(fn)

    def _add_of(self, fn: Callable[..., Any], *entries: ToolEntry, replace: bool = False) -> None:
        """Add the tools of a function; if it was defined again, its earlier tools are replaced."""
        defaults = self.runtime.defaults
        earlier = [defaults.function_of(entry) for entry in entries]
        is_again = any(known is not None and is_declared_again(known, fn) for known in earlier)
        self.registry.add(*entries, replace_existing=replace or is_again)
        defaults.note_function(fn, *entries)

    def builder(
        self, names: Names, /, *, description: str | Mapping[str, str] = "", **options: Unpack[BuilderKeywords]
    ) -> Callable[[F], F]:
        """Declare tools that the decorated function, `build(ctx)`, makes for each context: one tool or several.

        `names` are the names of the tools it builds: one, a list, or a callable evaluated whenever names are needed.
        With `full_names=[]` it is a bundle, which may build any tools; `names()` lists none of them. A built tool is a
        function, a `Tool` class, or `ToolSpec.bind(handler)`.

        >>> shop = Catalog("shop")
        >>> @shop.builder("greet")
        ... def greeting(ctx):
        ...     def greet() -> str:
        ...         "Greet the caller."
        ...         return f"Hello {ctx.user_id}!"
        ...     return greet
        >>> asyncio.run(shop.view(ann).call("greet", {})).text
        'Hello ann!'
        """
        declared = ToolOptions.of(options)

        def declare(build: Callable[..., Any]) -> Callable[..., Any]:
            if callable(names):
                ask = names
                groups = tuple(as_list(declared["groups"] or ()))
                self.registry.add_named_later(ask, lambda _: named_later(build, ask, description, declared), groups)
            else:
                listed = (names,) if isinstance(names, str) else tuple(names)
                self._add_of(build, *builder_entries(build, listed, description, declared))
            return build

        return declare  # pyright: ignore[reportReturnType] - gives back what it was given

    def register(
        self,
        tool: type[Tool] | ToolSpec | ToolEntry,
        handler: Handler | Callable[..., Any] | None = None,
        *,
        runs: Runs | None = None,
        replace: bool = False,
    ) -> None:
        """Declare a `Tool` class, or a `ToolSpec` with its handler `(ctx, args) -> value`.

        Raises:
            DefinitionError: `tool` is something else, or a spec without a handler.
            DuplicateToolError: the name is taken; `replace=True` replaces the tool.

        >>> catalog.register(ToolSpec(name="ping", groups=("net",)), lambda ctx, args: "pong")
        >>> asyncio.run(catalog.view(ann).call("ping", {})).text
        'pong'
        """
        entry = read_registered(tool, handler, runs)
        is_replacing = isinstance(tool, type) and tool.is_replacing
        self.registry.add(entry, replace_existing=replace or is_replacing)
        if isinstance(tool, type):
            self.runtime.defaults.note_class(tool)
        else:
            self.runtime.defaults.forget(fold(entry.qualified_id))

    def replace_class(self, earlier: type[Tool], tool: type[Tool]) -> None:
        """Replace an earlier `Tool` class, also if the new one has another name.

        Raises:
            DuplicateToolError: a tool other than the replaced one has this name.

        >>> pets = Catalog("pets")
        >>> class Feed(Tool):
        ...     "Feed a pet."
        ...     def perform(self) -> str:
        ...         return "fed"
        >>> class FeedTwice(Tool):
        ...     "Feed a pet twice."
        ...     def perform(self) -> str:
        ...         return "fed twice"
        >>> pets.register(Feed)
        >>> pets.replace_class(Feed, FeedTwice)
        >>> pets.view(ann).names()
        ['feed_twice']
        """
        known, key = fold(earlier.tool_entry.qualified_id), fold(tool.tool_entry.qualified_id)
        self.register(tool, replace=key == known)
        self.runtime.defaults.forget_class(earlier)
        if key != known and known in self.registry.declarations.tools:
            self.registry.remove(known)

    def unregister(self, name: str) -> None:
        """Remove a tool, by name or qualified id.

        Raises:
            KeyError: no tool has this name.

        >>> catalog.register(ToolSpec(name="gone"), lambda ctx, args: None)
        >>> catalog.unregister("gone")
        >>> "gone" in catalog.view(ann)
        False
        """
        self.runtime.defaults.forget(self.registry.remove(name))

    def add_source(self, source: Source) -> None:
        """Add the tools of a source, and follow its changes.

        >>> from pegboard.sources.mcp.server_settings import ServerSettings
        >>> from pegboard.sources.mcp.supervised_source import McpSource
        >>> notes = McpSource(ServerSettings(name="notes", transport="http", url="https://notes.example.com/mcp"))
        >>> gateway = Catalog("gateway")
        >>> gateway.add_source(notes.only("read_*"))
        >>> list(gateway.registry.sources)
        ['notes']
        """
        if not self.runtime.defaults.keeps_source(source.name, self.registry):
            self.registry.add_source(source)

    def agent(self, spec: AgentSpec, *, tools: Iterable[Callable[..., Any] | ToolEntry] = ()) -> None:
        """Declare an agent. `tools` are its own: functions, or values of `agent_tool`; no other view has them.

        Raises:
            DefinitionError: the name is taken, or the agent runs an unknown agent, or itself through other agents.

        >>> model = ModelSpec(provider="openai", name="gpt-5-mini")
        >>> catalog.agent(AgentSpec(name="adder", model=model, prompt="Add.", groups=("math",)))
        >>> list(catalog.registry.declarations.agents)
        ['adder']
        """
        own = [tool if isinstance(tool, ToolEntry) else function_entry(tool, ToolOptions()) for tool in tools]
        namespace = spec.namespace or spec.name
        placed = [replace(entry, spec=replace(entry.spec, namespace=namespace), fingerprint="") for entry in own]
        self.registry.add_agent(AgentEntry(spec=spec, tools=tuple(placed)))

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Declare a function as a resource; see `Resources.resource`. Takes `mime_type` and the options of a tool.

        >>> @catalog.resource("note://today")
        ... def today() -> str:
        ...     "What to do today."
        ...     return "water the plants"
        >>> [spec.uri for spec in catalog.resources.specs]
        ['note://today']
        """
        return self.resources.resource(uri, **options)

    def prompt(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a function as a prompt; see `Resources.prompt`. Takes the options of a tool.

        >>> @catalog.prompt
        ... def review(text: str) -> str:
        ...     "Review a text."
        ...     return f"Review this text: {text}"
        >>> [spec.name for spec in catalog.resources.specs if hasattr(spec, "arguments")]
        ['review']
        """
        return self.resources.prompt(fn, **options)

    def completion(self, argument: str, /, **options: Any) -> Callable[[F], F]:
        """Declare suggestions for an argument of `prompt=` or `resource=`; see `Resources.completion`.

        >>> @catalog.completion("text", prompt="review")
        ... def texts(value: str) -> list[str]:
        ...     return [text for text in ("letter", "report") if text.startswith(value)]
        """
        return self.resources.completion(argument, **options)

    def mirror(
        self,
        name: str | None = None,
        groups: str | Sequence[str] = (),
        available: object = None,
        *,
        full_names: object = None,
        source: Source | None = None,
    ) -> None:
        """Declare a name for allow-lists only, e.g. of a tool that an SDK runs itself. It cannot be called here.

        Groups, policy and `available` decide who gets the name, as with a tool. With `source`, the names are those of
        all its tools, as `mcp__<source>__<tool>`; they keep their groups unless `groups` is given. The default group is
        `core`.

        Raises:
            DefinitionError: neither a name nor a source, or both; several names.

        >>> claude = Catalog("claude")
        >>> claude.mirror("WebSearch", groups="web")
        >>> claude.view(ann, include=["web"]).names()
        ['WebSearch']
        """
        if (name is None) is (source is None) or (source is not None and full_names is not None):
            raise DefinitionError("mirror() takes a name, or source= alone: the tools of a source have names already.")
        if source is not None:
            self.add_source(MirroredSource(source, tuple(as_list(groups)), available))
        elif not isinstance(name, str):
            text = (
                "mirror() takes one name. For several, give the group of names one name: mirror('sentry', full_names="
            )
            raise DefinitionError(f"{text}{name!r}).")
        else:
            self.registry.add_mirror(name, Mirror(tuple(as_list(groups)) or ("core",), full_names, available))

    def group(self, name: str, description: str = "") -> None:
        """Declare a group, which may have no tool yet.

        >>> catalog.group("mail", "Read and send e-mail.")
        >>> "mail" in catalog.registry.groups
        True
        """
        self.registry.add_group(name, description)

    def profile(self, profile: Profile) -> None:
        """Declare a profile.

        Raises:
            DefinitionError: it includes an unknown group, or its policy names an unknown namespace.

        >>> catalog.profile(Profile(name="intern", include=("math",), policy=Policy(deny=("halve",))))
        >>> catalog.view(ann, profile="intern").names()
        ['add']
        """
        self._check_groups(profile.include)
        self.registry.add_profile(profile)

    def budget(self, budget: Budget) -> None:
        """Declare a budget; it replaces one with the same name, and keeps what was counted.

        Raises:
            DefinitionError: it names an unknown profile.

        >>> catalog.budget(Budget(name="adding", per="day", calls=100, tools=("add",), each=("user",)))
        >>> catalog.view(ann).why("add").callable
        True
        """
        for profile in budget.profiles:
            if profile not in self.registry.profiles:
                known = nearest(profile, self.registry.profiles, label="Profiles")
                raise DefinitionError(f"The budget {budget.name!r} names the unknown profile {profile!r}.{known}")
        self.registry.change(budgets={**self.registry.declarations.budgets, budget.name: budget})

    @overload
    def predicate(self, fn: F, /) -> F: ...
    @overload
    def predicate(self, /, *, name: str | None = None, blocking: bool = False) -> Callable[[F], F]: ...
    def predicate(
        self, fn: Callable[..., Any] | None = None, /, *, name: str | None = None, blocking: bool = False
    ) -> Any:
        """Declare a condition `(ctx) -> bool` for `available`, sync or async; `blocking=True` runs it in a thread.

        Async methods and calls run a sync predicate in a thread the first time. If that takes less than a tenth of a
        second, the predicate runs on the event loop from then on; a slower one always runs in a thread.

        Raises:
            DefinitionError: the name is taken.

        >>> @catalog.predicate
        ... def is_admin(ctx):
        ...     return "admin" in ctx.roles
        >>> @catalog.tool(groups="ops", available="is_admin")
        ... def restart() -> str:
        ...     "Restart the service."
        ...     return "restarted"
        >>> "restart" in catalog.view(ann), "restart" in catalog.view(ToolContext(user_id="bob", roles=["admin"]))
        (False, True)
        """

        def declare(asked: Callable[..., Any]) -> Callable[..., Any]:
            called = name or asked.__name__
            earlier = self.runtime.defaults.predicates.get(called)
            is_again = earlier is not None and is_declared_again(earlier, asked)
            if called in self.registry.predicates and not is_again:
                raise DefinitionError(f"{origin_of(asked)}: there is a predicate {called!r} already.")
            question = question_of(called, asked, blocking=blocking, limit_s=self.registry.bounds.predicate_s)
            self.registry.add_predicate(called, question, replace_existing=is_again)
            self.runtime.defaults.predicates[called] = asked
            return asked

        return declare if fn is None else declare(fn)

    def before(self, match: str = "*") -> Callable[[F], F]:
        """Run `hook(call) -> Verdict | None` before each tool that the glob matches; if it fails, the call is refused.

        >>> guarded = Catalog("guarded")
        >>> guarded.register(ToolSpec(name="refund"), lambda ctx, args: "paid")
        >>> @guarded.before("refund")
        ... def only_in_office_hours(call):
        ...     return Verdict.deny("Refunds are made from 9 to 17.")
        >>> asyncio.run(guarded.view(ann).call("refund", {})).error.kind
        'hook_refused'
        """
        return self._hook("before", match, required=True)

    def around(self, match: str = "*") -> Callable[[F], F]:
        """Run `hook(call, proceed)` around each tool that the glob matches; it awaits `proceed()` and returns a value.

        >>> twice = Catalog("twice")
        >>> twice.register(ToolSpec(name="echo"), lambda ctx, args: "hi")
        >>> @twice.around("echo")
        ... async def repeat(call, proceed):
        ...     value = await proceed()
        ...     return f"{value} {value}"
        >>> asyncio.run(twice.view(ann).call("echo", {})).text
        'hi hi'
        """
        return self._hook("around", match, required=True)

    def after(self, match: str = "*", *, required: bool = False) -> Callable[[F], F]:
        """Run `hook(call, result) -> value | None` after a success; a value replaces the result.

        >>> loud = Catalog("loud")
        >>> loud.register(ToolSpec(name="echo"), lambda ctx, args: "hi")
        >>> @loud.after("echo")
        ... def shout(call, result):
        ...     return result.text.upper()
        >>> asyncio.run(loud.view(ann).call("echo", {})).text
        'HI'
        """
        return self._hook("after", match, required=required)

    def on_error(self, match: str = "*") -> Callable[[F], F]:
        """Run `hook(call, result)` after a failure.

        >>> failures = []
        >>> @guarded.on_error()
        ... def note(call, result):
        ...     failures.append(result.error.kind)
        >>> _ = asyncio.run(guarded.view(ann).call("refund", {}))
        >>> failures
        ['hook_refused']
        """
        return self._hook("on_error", match, required=False)

    def on_complete(self, match: str = "*") -> Callable[[F], F]:
        """Run `hook(call, result)` after every call, however it ended.

        >>> ended = []
        >>> @loud.on_complete("*")
        ... def count(call, result):
        ...     ended.append(result.is_error)
        >>> _ = asyncio.run(loud.view(ann).call("echo", {}))
        >>> ended
        [False]
        """
        return self._hook("on_complete", match, required=False)

    def _hook(self, kind: HookKind, match: str, *, required: bool) -> Callable[[F], F]:
        def declare(run: F) -> F:
            hook = Hook(kind=kind, run=run, match=match, required=required, name=getattr(run, "__qualname__", ""))
            same = (known for known in self.registry.hooks if (known.kind, known.match) == (kind, match))
            earlier = next((known for known in same if is_declared_again(known.run, run)), None)
            if earlier is None:
                self.add_hook(hook)
            else:
                self.registry.change(hooks=tuple(hook if known is earlier else known for known in self.registry.hooks))
            return run

        return declare

    def skill(self, namespace: str, folder: str | Path) -> Skill:
        """Describe how the tools of a namespace are used together, in a folder with a SKILL.md and other files.

        The folder is read now. MCP clients get the skill if the caller has a tool of the namespace.

        Raises:
            DefinitionError: the namespace already has a skill, or the folder is invalid.

        >>> catalog.skill("fs", "no/such/folder")
        Traceback (most recent call last):
        ...
        pegboard.model.error.DefinitionError: The skill of 'fs' needs a folder: there is none at 'no/such/folder'.
        """
        skill, known = skill_reader.read_skill(namespace, Path(folder)), self.registry.declarations.skills
        if namespaces := [entry.namespace for entry in known.values() if entry.name == skill.name]:
            raise DefinitionError(f"There is a skill {skill.name!r} already: that of the namespace {namespaces[0]!r}.")
        self.registry.change(skills={**known, namespace: skill})
        return skill

    def add_hook(self, hook: Hook) -> None:
        """Declare a hook that is already a `Hook` record.

        >>> from pegboard.model.hook import Hook
        >>> calls = []
        >>> loud.add_hook(Hook(kind="on_complete", run=lambda call, result: calls.append(result.text)))
        >>> _ = asyncio.run(loud.view(ann).call("echo", {}))
        >>> calls
        ['HI']
        """
        self.registry.add_hook(hook)

    def observe(self, observer: object) -> Callable[[], None]:
        """Send every event of every call to `observer`; return a function that ends this.

        The observer's methods may be async. A call waits for them for up to a tenth of a second. Once they
        have exceeded that, calls no longer wait for them.

        >>> class Log:
        ...     def __init__(self): self.tools = []
        ...     def on_tool_call(self, event): self.tools.append(event.tool)
        >>> log = Log()
        >>> end = loud.observe(log)
        >>> _ = asyncio.run(loud.view(ann).call("echo", {}))
        >>> end()
        >>> log.tools
        ['echo']
        """
        return self.executor.observe(observer)

    def trace_calls(self, tracer_provider: object | None = None) -> Callable[[], None]:
        """Make an OpenTelemetry span for each call from now on; return a function that ends this.

        `tracer_provider` is by default the one that the process has set; without one nothing is traced. Servers trace
        by themselves, so only host code that calls views needs this.

        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> end = loud.trace_calls(TracerProvider())
        >>> _ = asyncio.run(loud.view(ann).call("echo", {}))
        >>> end()
        """
        return tracing.trace_calls(self.executor, tracer_provider)

    def on_tool_defined(self, notify: Callable[[ToolEntry], object]) -> None:
        """Call `notify` with every tool that is declared from now on.

        >>> declared = []
        >>> loud.on_tool_defined(lambda entry: declared.append(entry.qualified_id))
        >>> loud.register(ToolSpec(name="sing"), lambda ctx, args: "la")
        >>> declared
        ['main.sing']
        """
        self.registry.on_defined(notify)

    def subscribe(self, notify: Callable[[], object]) -> Callable[[], None]:
        """Call `notify` after every change of the catalog; return a function that ends this.

        >>> changes = []
        >>> end = loud.subscribe(lambda: changes.append("changed"))
        >>> loud.group("choir")
        >>> end()
        >>> changes
        ['changed']
        """
        return self.registry.subscribe(notify)

    # ------------------------------------------------------------ whole

    def snapshot(self) -> Snapshot:
        """Return all tools at this moment, immutable and hashable.

        Raises:
            DefinitionError: with all faults at once, e.g. an unknown predicate.

        >>> [entry.qualified_id for entry in loud.snapshot().entries]
        ['main.echo', 'main.sing']
        """
        return self.runtime.registry.snapshot()

    def reset(self) -> None:
        """Remove tools and profiles, but keep guards; `load_defaults` restores what code declared.

        >>> before = Catalog("before")
        >>> before.register(ToolSpec(name="echo"), lambda ctx, args: "hi")
        >>> before.reset()
        >>> before.view(ann).names()
        []
        """
        self.runtime.defaults.set_aside(self.registry)
        self.registry.clear()

    def default_loader(self, load: Callable[[Catalog], object]) -> Callable[[Catalog], object]:
        """Register a function that declares the defaults on a catalog; returns it.

        >>> plain = Catalog("plain")
        >>> @plain.default_loader
        ... def defaults(catalog):
        ...     catalog.register(ToolSpec(name="echo"), lambda ctx, args: "hi", replace=True)
        """
        self._default_loaders.append(load)
        return load

    def load_defaults(self) -> None:
        """Run the registered default loaders. After a reset, also restore what code had declared before the reset.

        This restores tools declared by decorators, every `Tool` class that still exists, groups and profiles, but
        nothing that was passed to `register` or `add_source`. Tools that a test declares after the first reset are not
        restored.

        >>> plain.load_defaults()
        >>> plain.view(ann).names()
        ['echo']
        """
        defaults = self.runtime.defaults
        with defaults.loading(self.registry):
            for load in self._default_loaders:
                load(self)
        defaults.bring_back(self.registry)

    def stand_for_default(self) -> None:
        """Make `default_catalog` refer to this catalog from `start` to `close`. For a catalog read from a config.

        >>> Catalog("served").stand_for_default()
        """
        self._is_of_config = True

    async def __aenter__(self) -> Catalog:
        """Start the catalog; leaving the block closes it."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *, only: Iterable[str] | None = None, wait_s: float = SOURCE_START_S) -> None:
        """Start the sources, or `only` those named, and wait up to `wait_s` seconds until their tools are known.

        A source that fails or takes longer is named in a warning in the log. It is retried in the background, and the
        catalog works without its tools. `wait_s=0` does not wait. A closed catalog can be started again.

        >>> async def main():
        ...     async with loud:
        ...         return await loud.view(ann).call("echo", {})
        >>> asyncio.run(main()).text
        'HI'
        """
        self.executor.closing = False
        self.registry.is_served = True
        if self.executor.ports.tasks is not None:
            self.executor.ports.tasks.reopen()
        if self._is_of_config:
            default_catalog.stand_aside(self.runtime)
        sources = self.registry.sources
        begun: list[Source] = []
        for source in [sources[name] for name in (sources if only is None else only)]:
            try:
                await source.start()
                begun.append(source)
            except Exception:
                logging.getLogger("pegboard").exception("Source %r could not be started.", source.name)
        if wait_s > 0:
            await _wait_for_tools(begun, wait_s)

    async def close(self, *, grace_s: float = SHUTDOWN_GRACE_S) -> None:
        """Refuse new calls, give running ones `grace_s` to end, then stop them, the sources and the stores of limits.

        >>> async def stop():
        ...     await loud.start()
        ...     await loud.close(grace_s=0)
        >>> asyncio.run(stop())
        """
        await self.executor.close(grace_s=grace_s)
        await self.runtime.agents.close()
        await self.runtime.models.close()
        self.registry.is_served = False
        if self._is_of_config:
            default_catalog.stand_back(self.runtime)
        # Together: each may need a while to end its programs.
        await asyncio.gather(*map(_stop, self.registry.sources.values()))
        if self.executor.ports.audit is not None:
            await self.executor.ports.audit.close()
        if self.connections is not None:
            await self.connections.close()
        ports = self.executor.ports
        if self.executor.budgets.has_unpaid and (settling := settle(self.executor)) is not None:
            await settling
        await close_stores((ports.limits, ports.budgets))

    # ------------------------------------------------------------ select

    def view(
        self,
        ctx: ToolContext,
        *,
        include: Iterable[str] | None = None,
        profile: str | None = None,
        internal: Iterable[str] = (),
        extra_tools: Iterable[object] = (),
    ) -> View:
        """Return the tools that one caller may use now. Cheap: nothing is decided until it is needed.

        `include` names groups, `profile` names a profile; with neither, the view has all groups, which is for host code
        only. `internal` opens internal-only tools by name. `extra_tools` are one-off tools, exempt from groups but not
        from policy.

        Raises:
            DefinitionError: an unknown group, profile or namespace, or both `include` and `profile`.
            DuplicateToolError: the name of an extra tool is taken.

        >>> catalog.view(ToolContext(user_id="bob", policy=Policy(deny=("add",))), include=["math"]).names()
        ['halve']
        """
        if profile is not None and include is not None:
            raise DefinitionError(f"Give include= or profile={profile!r}, not both: a profile has its own groups.")
        declared = None if profile is None else self.runtime.registry.profile(profile)
        selection = self._selected_by(declared)
        own = ctx.caller.policy
        if not (selection.policy is OPEN_POLICY and own is OPEN_POLICY):
            self._check_policies(selection.policy, own)
        if include is None and not internal and not extra_tools:
            return View(self.runtime.view_parts, ctx, selection, profile=declared)
        groups = selection.include if include is None else tuple(as_list(include))
        if include is not None:
            self._check_groups(groups)
        extra = [entry for tool in extra_tools for entry in read_built(tool, None)]
        for entry in extra:
            if entry.spec.task != "forbidden":
                text = "is a tool of this view alone, which ends with it: it cannot be a task."
                raise DefinitionError(f"{entry.qualified_id!r} {text}")
        selection = replace(
            selection,
            include=groups,
            internal=frozenset(as_list(internal)),
            extra=frozenset(entry.qualified_id for entry in extra),
        )
        view = View(self.runtime.view_parts, ctx, selection, profile=declared, extra=extra)
        if extra:
            self.registry.build(extra)
        return view

    def _selected_by(self, profile: Profile | None) -> Selection:
        """Return the selection of a profile, as one value for all requests; without a profile, all groups."""
        if profile is None:
            return _EVERYTHING
        known = self._selections.get(profile.name)
        if known is None or known[0] is not profile:
            selection = Selection(profile=profile.name).of_profile(profile)
            known = self._selections[profile.name] = profile, selection
        return known[1]

    async def aview(
        self,
        ctx: ToolContext,
        *,
        include: Iterable[str] | None = None,
        profile: str | None = None,
        internal: Iterable[str] = (),
        extra_tools: Iterable[object] = (),
    ) -> View:
        """Return the view after awaiting the async predicates of the selected tools, together.

        >>> asyncio.run(catalog.aview(ann, include=["math"])).names()
        ['add', 'halve']
        """
        view = self.view(ctx, include=include, profile=profile, internal=internal, extra_tools=extra_tools)
        return await view.prepare()

    def exposed(self, view: View) -> View:
        """Return the view as the exposure of its profile shows it. Every server lists this view, and calls its tools.

        With exposure `direct` this is the view itself. The others list `searchTools`, `getTools` and `useTools` (as the
        exposure and the profile's `rename` say) and the profile's pinned tools. Every tool of the view can still be
        called by name.

        >>> catalog.profile(Profile(name="finder", include=("math",), exposure="search"))
        >>> catalog.exposed(catalog.view(ann, profile="finder")).names()
        ['searchTools', 'getTools', 'useTools']
        """
        return exposed(view, self.runtime.discovery)

    async def search(self, view: View, query: str, *, limit: int = SEARCH_USUAL_HITS, explain: bool = False) -> Found:
        """Return the view's tools that match a request, best first, each with a confidence.

        With `explain`, the result has an `explanation` of how each score was made.

        >>> found = asyncio.run(catalog.search(view, "sum of two numbers"))
        >>> found.tools[0].entry.wire_name
        'add'
        """
        answers = await self.discovery.finder.search(view, [query], limit=limit, explain=explain)
        self.discovery.finder.note(view, answers)
        return answers[0]

    def _check_groups(self, include: Sequence[str] | None) -> None:
        if include is None:
            return
        unknown = [group for group in include if group not in self.registry.groups]
        known = self.registry.known_groups() if unknown else frozenset[str]()
        for group in unknown:
            if group not in known:
                raise DefinitionError(
                    f"Unknown group {group!r}.{nearest(group, known, label='Groups')} "
                    f"A group that has no tool yet is declared with catalog.group({group!r}), or under `groups:`."
                )

    def _check_policies(self, *policies: Policy) -> None:
        registry = self.runtime.registry
        cache = (registry.newest.get("tools") or registry.snapshot()).cache
        checked: BoundedCache[int, Policy] | None = cache.get("checked policies")
        if checked is None:
            checked = cache["checked policies"] = BoundedCache[int, Policy](max_entries=POLICIES_CHECKED)
        for policy in policies:
            # Policies are usually the same objects, and comparing identity is much faster than comparing contents.
            if policy is OPEN_POLICY or checked.get(id(policy)) is policy:
                continue
            if policy != OPEN_POLICY:
                self._check_policy(policy)
                checked.remember(id(policy), policy)

    def _check_policy(self, policy: Policy) -> None:
        errors = self.policy_faults(policy)[0]
        if errors:
            fault = DefinitionError(f"Policy {policy.origin or ''}: " + "; ".join(errors))
            if not self.registry.leaves_faults_out:
                raise fault
            # The namespace existed when the policy was declared. An unknown name opens nothing.
            reported = self._by_policy("told policies")
            if policy not in reported:
                reported.remember(policy, None)
                logging.getLogger("pegboard").warning("%s", fault)

    def policy_faults(self, policy: Policy) -> tuple[list[str], list[str]]:
        """Return (errors, warnings) of a policy: globs in unknown namespaces, and globs that match nothing now.

        >>> catalog.policy_faults(Policy(deny=("refnd",)))
        ([], ...)
        """
        judged = self._by_policy("policy faults")
        cached = judged.get(policy)
        if cached is None:
            faults = unmatched(policy, self.snapshot(), self.registry.mirrored(), self.registry.namespaces())
            cached = judged.remember(policy, faults)
        return cached

    def _by_policy(self, name: str) -> BoundedCache[Policy, Any]:
        """Return the cached values of policies for this snapshot: a host may make a policy for each request."""
        cache = self.snapshot().cache
        values: BoundedCache[Policy, Any] | None = cache.get(name)
        if values is None:
            values = cache[name] = BoundedCache[Policy, Any](max_entries=POLICIES_CHECKED)
        return values

    # ------------------------------------------------------------ one-line forms

    def build_tools(
        self, ctx: ToolContext, *, include: Iterable[str] | None = None, extra_tools: Iterable[object] = ()
    ) -> tuple[ToolEntry, ...]:
        """Return the visible tools of a context, built.

        >>> [entry.wire_name for entry in catalog.build_tools(ann, include=["math"])]
        ['add', 'halve']
        """
        return self.view(ctx, include=include, extra_tools=extra_tools).tools()

    def tool_names(
        self,
        ctx: ToolContext,
        *,
        include: Iterable[str] | None = None,
        server: str | None = None,
        extra_tools: Iterable[object] = (),
    ) -> list[str]:
        """Return the names of the visible tools for an allow-list: `mcp__<server>__<tool>`.

        `server` is the catalog's name by default; a catalog without a name returns bare names.

        >>> catalog.tool_names(ann, include=["math"])
        ['mcp__office__add', 'mcp__office__halve']
        """
        own = None if self.name == UNNAMED else self.name
        return self.view(ctx, include=include, extra_tools=extra_tools).names(server or own)

    def available_tools(self, ctx: ToolContext) -> tuple[ToolEntry, ...]:
        """Return the visible tools of all groups.

        >>> "add" in [entry.wire_name for entry in catalog.available_tools(ann)]
        True
        """
        return self.view(ctx).tools()

    async def execute(
        self, name: str, args: object, ctx: ToolContext, callbacks: object = None, *, raise_errors: bool = False
    ) -> ToolResult:
        """Run one guarded call on the view of all groups.

        >>> asyncio.run(catalog.execute("add", {"a": "x", "b": 2}, ann)).error.kind
        'invalid_arguments'
        """
        return await self.view(ctx).call(name, args, callbacks=callbacks, raise_errors=raise_errors)

    def cancel(self, call_id: str) -> bool:
        """Stop a running call by its id; return False if there is none.

        >>> catalog.cancel("no-such-call")
        False
        """
        return self.executor.cancel(call_id)


async def _wait_for_tools(sources: Sequence[Source], wait_s: float) -> None:
    """Wait until these sources have tried to list their tools; the log names those without tools."""
    slow = [source for source in sources if isinstance(source, StartsSlowly)]
    have_tried = await wait_for_listing(slow, wait_s)
    for source, has_tried in zip(slow, have_tried, strict=True):
        state = source.state()
        if not has_tried or (state.status not in ("ok", "connecting") and not state.is_up):
            why = state.status if has_tried else f"still {state.status} after {wait_s:g} s"
            reason = f": {state.reason}" if state.reason else ""
            text = "Started without the tools of %r, which is %s%s. They are added when it answers."
            logging.getLogger("pegboard").warning(text, source.name, why, reason)


async def _stop(source: Source) -> None:
    try:
        await source.stop()
    except Exception:
        logging.getLogger("pegboard").exception("Source %r could not be stopped.", source.name)


def as_list(names: Iterable[str]) -> list[str]:
    """Return names as a list; a single string is one name, not letters."""
    return [names] if isinstance(names, str) else list(names)


_catalogs: weakref.WeakSet[Catalog] = weakref.WeakSet()


class DefaultCatalog(Catalog):
    """The catalog of modules that do not name one.

    It normally has its own parts. While a config is read, it represents the new catalog, in that context only. While a
    config's catalog is served, it represents that one, so that tools registered at run time reach its callers.
    """

    _while_read: ContextVar[Runtime | None] = ContextVar("pegboard_catalog_being_read", default=None)
    _shared: tuple[Runtime, ...] = ()
    """The last one is used outside of reading a config. Before it are our own and those of catalogs that began to be
    served earlier: several may be served at once and end in any order."""

    @property
    def runtime(self) -> Runtime:  # pyright: ignore[reportIncompatibleVariableOverride] - an attribute for all others
        """The parts of the catalog that this one represents now."""
        return self._while_read.get() or self._shared[-1]

    @runtime.setter
    def runtime(self, runtime: Runtime) -> None:
        # An isolated catalog within the reading of a config must not reach other contexts either.
        if self._while_read.get() is None:
            self._shared = (*self._shared[:-1], runtime)
        else:
            self._while_read.set(runtime)

    def stand_aside(self, served: Runtime) -> None:
        """Stand for a catalog that begins to be served."""
        if all(runtime is not served for runtime in self._shared):
            self._shared = (*self._shared, served)

    def stand_back(self, served: Runtime) -> None:
        """Stop mirroring a catalog that is no longer served; another served one, or our own, takes its place."""
        own, *others = self._shared
        self._shared = (own, *[runtime for runtime in others if runtime is not served])

    @contextmanager
    def written_to(self, catalog: Catalog) -> Generator[None]:
        """Write into `catalog` within the block, in this context only."""
        token = self._while_read.set(catalog.runtime)
        try:
            yield
        finally:
            self._while_read.reset(token)


default_catalog = DefaultCatalog()


def _define(tool: type[Tool], former: str | None) -> None:
    """Register a new class, or rename one in every catalog that has it, all or none.

    A class that is defined again, as when a notebook cell runs twice, replaces the earlier one.
    """
    if former is None:
        earlier: Any = default_catalog.runtime.defaults.namesake(tool)
        if earlier is not None:
            default_catalog.replace_class(earlier, tool)
        else:
            default_catalog.register(tool)
        return
    # Two catalogs may share one runtime: while a config is read, and in a test's isolated catalog.
    by_runtime = {id(catalog.runtime): catalog for catalog in tuple(_catalogs)}
    holding = [catalog for catalog in by_runtime.values() if catalog.runtime.defaults.holds(tool)]
    defining: list[Catalog] = []
    try:
        for catalog in holding:
            catalog.register(tool)
            defining.append(catalog)
    except PegboardError:
        for catalog in defining:
            catalog.registry.remove(tool.tool_entry.qualified_id)
        raise
    for catalog in holding:
        catalog.registry.remove(former)


Tool.on_define.append(_define)
