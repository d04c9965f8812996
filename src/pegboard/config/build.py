"""Build: create a catalog from a config, section by section, and report faults that only the whole config shows."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.catalog import Catalog
from pegboard.config.agents import conversation_store, declare_agents
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Config, Declared
from pegboard.config.embedders import embedder_of, keys_of
from pegboard.config.forms.main_file import HookForm
from pegboard.config.forms.predicate_form import availability
from pegboard.config.forms.value_types import is_url
from pegboard.config.identity import console_faults_of, faults_of, rules_of
from pegboard.config.load import read
from pegboard.config.predicates import declare_predicates
from pegboard.config.profiles import check_profiles, declare_profiles
from pegboard.config.python_modules import (
    forget_home,
    homes_of_registrations,
    importing,
    is_imported,
    registrations_of,
)
from pegboard.config.task_store import tasks_of
from pegboard.config.yaml.problems import Report, unseen
from pegboard.core.names import fold
from pegboard.core.ports import LimitStore
from pegboard.core.predicates import compile_availability
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.hook import Hook
from pegboard.model.hops import server_id_of
from pegboard.model.probe import Part
from pegboard.model.record import replace
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.config import alerts, audits, consents, declared_budgets, probes, source_auth, workspace
    from pegboard.discovery.learning import search_use, use_store
    from pegboard.limits import redis_store
    from pegboard.sources import http_hook
else:
    alerts = LazyModule("pegboard.config.alerts")
    audits = LazyModule("pegboard.config.audits")
    consents = LazyModule("pegboard.config.consents")
    declared_budgets = LazyModule("pegboard.config.declared_budgets")
    probes = LazyModule("pegboard.config.probes")
    source_auth = LazyModule("pegboard.config.source_auth")
    workspace = LazyModule("pegboard.config.workspace")
    redis_store = LazyModule("pegboard.limits.redis_store")
    http_hook = LazyModule("pegboard.sources.http_hook")
    search_use = LazyModule("pegboard.discovery.learning.search_use")
    use_store = LazyModule("pegboard.discovery.learning.use_store")


Clock = Callable[[], float]


def build(config: Config, *, clock: Clock = time.monotonic) -> Catalog:
    """Return a new catalog with all declarations of a config. `clock` returns seconds, for rate limits and timeouts.

    Modules in the config's folder are executed again by each call, so that edits take effect.

    Raises:
        DefinitionError: with all problems, by file and line.
    """
    return _built(config, Report(), clock)


def load_catalog(
    path: str | Path,
    *,
    env: Mapping[str, str] | None = None,
    clock: Clock = time.monotonic,
    strict: bool = False,
    leave_out: bool = False,
) -> tuple[Catalog, Config]:
    """Read a config and create its catalog.

    Args:
        path: the config.
        env: the variables for its `${NAME}`; by default the environment of the process.
        clock: seconds, monotonic.
        strict: refuse a config, lock or key store that other users may write.
        leave_out: leave out declarations with unset variables, and list them in `Config.left_out`. Only for commands
            that read.

    Raises:
        DefinitionError: with the problems of reading and of building.
    """
    config, report = read(Path(path), env=os.environ if env is None else env, strict=strict, leave_out=leave_out)
    if strict and report:
        # Before any code that the config names can run.
        raise DefinitionError(report.sorted(config.files, config.secrets))
    return _built(config, report, clock), config


def _built(config: Config, report: Report, clock: Clock) -> Catalog:
    try:
        return _catalog_of(config, report, clock)
    except OSError as error:
        report.add(unseen(config.path, error))
        raise DefinitionError(report.sorted(config.files, config.secrets)) from None


def _server_id(config: Config) -> str:
    """Return an id that all workers on this machine share, and no other server on it has.

    Containers that share a host's name have the same path, but not the same folder.
    """
    path = config.path.absolute()
    folder = path.parent.stat()
    here = (platform.node(), f"{folder.st_dev}:{folder.st_ino}", str(path), config.name)
    return server_id_of(*(os.fsencode(part) for part in here))


def _catalog_of(config: Config, report: Report, clock: Clock) -> Catalog:
    limits = _limit_store(config, report)
    budgets = None if config.budgets is None else declared_budgets.budget_store_of(config, report)
    answers = None if config.consent_store is None else consents.consent_store_of(config, report)
    embedder = embedder_of(config, report)
    catalog = Catalog(
        config.name,
        bounds=config.bounds,
        clock=clock,
        limit_store=limits,
        budget_store=budgets,
        consent_store=answers,
        embedder=embedder,
    )
    if config.examples is not None:
        catalog.discovery.finder.use_requests(config.examples.value.requests)
    if config.learn is not None:
        file = config.path.absolute().parent / config.learn.value.file
        store = use_store.UseStore(file, catalog=config.name)
        try:
            store.check_place()
            catalog.discovery.learn_from(search_use.SearchUse(store, clock=clock), catalog.executor)
        except DefinitionError as error:
            report.add((config.learn.at / "file").problem(str(error)))
    catalog.runtime.agents.store = conversation_store(config, report)
    if config.audit is not None and (audit := audits.audit_of(config, report)) is not None:
        catalog.executor.record(audit)
        ports = catalog.executor.ports
        catalog.executor.swap(
            replace(ports, audit=audit, audit_required=audit.is_required, backpressure=audit.writer.backpressure)
        )
    if (tasks := tasks_of(config, report)) is not None:
        catalog.use_tasks(tasks)
    if config.connections is not None or "connections" in config.refused.sections:
        catalog.connections = source_auth.connections_of(config, report)
    catalog.registry.server_id = _server_id(config)
    catalog.add_secrets(*config.secrets.values(), *keys_of(config))
    catalog.registry.change(default_limit=config.default_limit, parts=partial(parts_of, config))
    if config.alerts:
        catalog.registry.change(alerts=alerts.alerts_of(config, report))
    with importing(config.path.absolute().parent) as collected:
        documents = None if config.workspace is None else workspace.store_of(config, report)
        context = BuildContext(config=config, catalog=catalog, report=report, collected=collected, documents=documents)
        _import_modules(context)
        _declare_groups(context)
        _declare_skills(context)
        _declare_workspace(context)
        declare_predicates(context)
        _declare_tools(context)
        declare_agents(context)
        declare_profiles(context)
        if config.budgets is not None:
            declared_budgets.declare_budgets(context)
        _declare_hooks(context)
        _declare_identity(context)
        check_profiles(context)
        _check_snapshot(context)
        if report:
            raise DefinitionError(report.sorted(config.files, config.secrets))
    catalog.stand_for_default()
    return catalog


def parts_of(config: Config, catalog: Catalog) -> Iterator[Part]:
    """Yield the parts of `config.probes`, which is imported only when something is probed."""
    return probes.parts_of(config, catalog)


def _limit_store(config: Config, report: Report) -> LimitStore | None:
    declared = config.limit_store
    if declared is not None:
        try:
            return redis_store.RedisLimitStore(
                declared.value, key_prefix=f"pegboard:{config.name}", silence_s=config.bounds.limit_store_s
            )
        except ImportError as error:
            report.add(declared.at.problem(needs_package(error.name, "redis")))
        except DefinitionError as error:
            report.add(declared.at.problem(str(error)))
    return None


def _import_modules(context: BuildContext) -> None:
    for declared in context.config.python:
        forget_home(declared.value)
        was_imported = is_imported(declared.value)
        if context.module(declared.value, declared.at, collect=True) is None:
            context.missed = True
        elif was_imported:
            try:
                registrations_of(declared.value, context.catalog)
            except DefinitionError as error:
                context.refused(error, declared.at)
    context.collected.update(homes_of_registrations(context.catalog))
    entries = context.catalog.registry.build().entries
    context.registered = {fold(entry.qualified_id.removeprefix("main.")): entry for entry in entries}


def _declare_groups(context: BuildContext) -> None:
    for name, description in context.config.groups.items():
        context.catalog.group(name, description)
    if context.config.left_out:
        # Profiles may name groups and namespaces of declarations that were left out.
        refused = context.config.refused
        context.catalog.registry.absent_namespaces = frozenset(refused.namespaces | refused.agents)
        names = refused.groups | (workspace.group_names() if "workspace" in refused.sections else set[str]())
        for name in names - context.config.groups.keys():
            context.catalog.group(name, "")


def _declare_skills(context: BuildContext) -> None:
    for namespace, declared in context.config.skills.items():
        try:
            context.catalog.skill(namespace, declared.value)
        except DefinitionError as error:
            context.refused(error, declared.at)


def _declare_workspace(context: BuildContext) -> None:
    declared = context.config.workspace
    if declared is not None and context.documents is not None:
        try:
            workspace.declare_workspace(context, declared, context.documents)
        except DefinitionError as error:
            context.refused(error, declared.at)


def _declare_tools(context: BuildContext) -> None:
    registry = context.catalog.registry
    for tool in context.config.tools:
        context.config.kinds[tool.value.type].declare(tool, context)
    for tool in context.config.tools:
        if tool.value.available is None:
            continue
        try:
            compile_availability(
                availability(tool.value.available),
                predicates=registry.predicates,
                sources=frozenset(registry.sources),
                context_type=ToolContext,
            )
        except DefinitionError as error:
            context.refused(error, tool.at / "available")


def _declare_hooks(context: BuildContext) -> None:
    for declared in context.config.hooks:
        hook = _hook_of(declared, context)
        if hook is not None:
            context.catalog.add_hook(hook)


def _hook_of(declared: Declared[HookForm], context: BuildContext) -> Hook | None:
    form = declared.value
    if is_url(form.use):
        settings = http_hook.HttpHookSettings(
            kind=form.on,
            url=form.use,
            secret=Secret(form.secret or ""),
            match=form.match,
            required=form.required,
            bounds=context.config.bounds,
        )
        try:
            return http_hook.http_hook(settings)
        except DefinitionError as error:
            context.refused(error, declared.at / "use")
            return None
    run = context.resolve(form.use, declared.at / "use")
    if run is None:
        return None
    name = form.use.removeprefix("python:")
    return Hook(kind=form.on, run=run, match=form.match, required=form.required, name=name)


def _declare_identity(context: BuildContext) -> None:
    context.report.add(*console_faults_of(context.config))
    declared = context.config.identity
    if declared is not None:
        profiles = (*context.catalog.registry.profiles, *context.config.refused.profiles)
        context.report.add(*faults_of(declared, profiles))
        path, keeps_tokens = context.config.path, context.exchanges_tokens
        context.catalog.identity = rules_of(declared.value, path, keeps_tokens=keeps_tokens)


def _check_snapshot(context: BuildContext) -> None:
    """Report problems that only the whole config shows, such as predicates that Python tools name."""
    reported = {tool.at.origin for tool in context.config.tools}
    try:
        context.catalog.snapshot()
    except DefinitionError as error:
        context.report.add(*(problem for problem in error.problems if problem.where not in reported))
