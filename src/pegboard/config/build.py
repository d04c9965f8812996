"""Wire: make a catalog of a config."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.catalog import Catalog
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Config, Declared
from pegboard.config.forms import ProfileForm, availability
from pegboard.config.identity import faults_of, rules_of
from pegboard.config.load import read
from pegboard.config.predicates import declare_predicates
from pegboard.config.problems import Report
from pegboard.config.python_modules import (
    forget_home,
    homes_of_registrations,
    importing,
    is_imported,
    registrations_of,
)
from pegboard.config.unreachable_tools import unreachable_tools
from pegboard.config.value_types import rate_limit
from pegboard.config.yaml_tree import At
from pegboard.core.availability import compile_availability
from pegboard.core.call.rate_limit import MemoryLimitStore
from pegboard.core.globs import unmatched
from pegboard.core.judge import applies
from pegboard.core.names import fold, nearest
from pegboard.core.ports import LimitStore
from pegboard.discovery.meta_tool_schemas import MetaNames
from pegboard.lazy import LazyModule
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.hook import Hook
from pegboard.model.policy import Policy
from pegboard.model.profile import Profile

if TYPE_CHECKING:
    from pegboard.limits import redis_store
else:
    redis_store = LazyModule("pegboard.limits.redis_store")


Clock = Callable[[], float]
_SHOWN = 20


def build(config: Config, *, clock: Clock = time.monotonic) -> Catalog:
    """Return a new catalog of all that the config declares. `clock` counts seconds, for rate limits and time-outs.

    Modules below the config's folder are executed anew by each call, so that edited ones are seen.

    Raises:
        DefinitionError: with all problems, by file and line.
    """
    return _catalog_of(config, Report(), clock)


def load_catalog(path: Path, *, env: Mapping[str, str], clock: Clock = time.monotonic) -> tuple[Catalog, Config]:
    """Read a config and make its catalog.

    Raises:
        DefinitionError: with the problems of both, together.
    """
    config, report = read(path, env=env)
    return _catalog_of(config, report, clock), config


def warnings(config: Config, catalog: Catalog) -> list[Problem]:
    """Return what is odd but allowed: globs that match no file or no tool now, tools that no profile sees."""
    found = list(config.warnings)
    for name, declared in config.profiles.items():
        idle = set(_unmatched(catalog, name)[1])
        found += [at.problem(f"{glob!r} matches no tool at present") for glob, at in _globs(declared) if glob in idle]
        found += _idle_pins(declared, catalog)
    for tool in config.tools:
        left_out: Sequence[tuple[str, str]] = getattr(catalog.registry.sources.get(tool.said.name), "rejected", ())
        found += [tool.at.problem(f"{name!r} was left out: {reason}") for name, reason in left_out[:_SHOWN]]
        if len(left_out) > _SHOWN:
            found.append(tool.at.problem(f"{len(left_out) - _SHOWN} more were left out"))
    return found + list(unreachable_tools(catalog))


def _catalog_of(config: Config, report: Report, clock: Clock) -> Catalog:
    limits = _limit_store(config, report, clock)
    catalog = Catalog(config.name, bounds=config.bounds, clock=clock, limit_store=limits)
    catalog.secrets.extend(config.secrets.values())
    catalog.guards.default_limit = config.default_limit
    with importing(config.path.absolute().parent) as collected:
        build = BuildContext(config=config, catalog=catalog, report=report, collected=collected)
        _import_modules(build)
        _declare_groups(build)
        declare_predicates(build)
        _declare_tools(build)
        _declare_profiles(build)
        _declare_hooks(build)
        _declare_identity(build)
        _check_whole(build)
        if report:
            raise DefinitionError(report.sorted(config.files, config.secrets))
    return catalog


def _limit_store(config: Config, report: Report, clock: Clock) -> LimitStore:
    declared = config.limit_store
    if declared is not None:
        try:
            return redis_store.RedisLimitStore(declared.said, key_prefix=f"pegboard:{config.name}")
        except ImportError as error:
            message = f"needs the package {error.name!r}, which is not installed; install `pegboard[redis]`"
            report.add(declared.at.problem(message))
        except DefinitionError as error:
            report.add(declared.at.problem(str(error)))
    return MemoryLimitStore(clock=clock, max_keys=config.bounds.ratelimit_keys)


def _import_modules(build: BuildContext) -> None:
    for declared in build.config.python:
        forget_home(declared.said)
        known = is_imported(declared.said)
        if build.module(declared.said, declared.at, collect=True) is None:
            build.missed = True
        elif known:
            try:
                registrations_of(declared.said, build.catalog)
            except DefinitionError as error:
                build.refused(error, declared.at)
    build.collected.update(homes_of_registrations(build.catalog))
    entries = build.catalog.registry.build().entries
    build.registered = {fold(entry.spec.name): entry for entry in entries if entry.spec.namespace == "main"}


def _declare_groups(build: BuildContext) -> None:
    for name, description in build.config.groups.items():
        build.catalog.group(name, description)


def _declare_tools(build: BuildContext) -> None:
    registry = build.catalog.registry
    for tool in build.config.tools:
        build.config.kinds[tool.said.type].declare(tool, build)
    for tool in build.config.tools:
        if tool.said.available is None:
            continue
        try:
            compile_availability(
                availability(tool.said.available),
                predicates=registry.predicates,
                sources=frozenset(registry.sources),
                context_type=ToolContext,
            )
        except DefinitionError as error:
            build.refused(error, tool.at / "available")


def _declare_profiles(build: BuildContext) -> None:
    registry = build.catalog.registry
    # The groups of a tool that is wrong in another point are declared all the same.
    known = registry.known_groups() | {group for tool in build.config.tools for group in tool.said.groups or ()}
    known |= build.config.refused.groups
    for name, declared in build.config.profiles.items():
        for index, group in enumerate(declared.said.include or ()):
            if group not in known:
                at = _name_at(declared.at / "include", index)
                build.report.add(at.problem(f"unknown group {group!r}.{nearest(group, known, label='Groups')}"))
        registry.profiles[name] = _profile(name, declared)


def _profile(name: str, declared: Declared[ProfileForm]) -> Profile:
    said, at = declared.said, declared.at
    return Profile(
        name=name,
        include=said.include,
        policy=_policy(said, at),
        exposure=said.exposure,
        pinned=said.pinned,
        rename={} if said.rename is None else said.rename.names(),
        require_context=said.require_context,
        token_budget=said.token_budget,
        rate_limit=rate_limit(said.rate_limit),
        origin=(at / "include").origin,
    )


def _policy(said: ProfileForm, at: At) -> Policy:
    """Return the policy of a profile. Each side is a layer of its own, so that `why` names the line of the rule."""
    deny = Policy(deny=said.deny, origin=(at / "deny").origin) if said.deny else None
    allow = Policy(allow=said.allow, origin=(at / "allow").origin) if said.allow is not None else None
    if deny is not None and allow is not None:
        return allow.intersect(deny)
    return deny or allow or Policy(origin=at.origin)


def _declare_hooks(build: BuildContext) -> None:
    for declared in build.config.hooks:
        said = declared.said
        run = build.resolve(said.use, declared.at / "use")
        if run is not None:
            name = said.use.removeprefix("python:")
            build.catalog.add_hook(Hook(kind=said.on, run=run, match=said.match, required=said.required, name=name))


def _declare_identity(build: BuildContext) -> None:
    declared = build.config.identity
    if declared is not None:
        build.report.add(*faults_of(declared, tuple(build.catalog.registry.profiles)))
        build.catalog.identity = rules_of(declared.said, build.config.path)


def _check_whole(build: BuildContext) -> None:
    """Check what only the whole can show: namespaces that policies name, and predicates that Python tools name."""
    for name, declared in build.config.profiles.items():
        for fault in _unmatched(build.catalog, name, more=build.config.refused.namespaces)[0]:
            # The fault starts with the glob, quoted.
            build.report.add(*(at.problem(fault) for glob, at in _globs(declared) if fault.startswith(repr(glob))))
        _check_meta_names(name, declared, build)
    reported = {tool.at.origin for tool in build.config.tools}
    try:
        build.catalog.snapshot()
    except DefinitionError as error:
        build.report.add(*(problem for problem in error.problems if problem.where not in reported))


def _check_meta_names(name: str, declared: Declared[ProfileForm], build: BuildContext) -> None:
    """Report a declared tool that a meta tool of the profile would hide by its name."""
    if declared.said.exposure == "direct":
        return
    registry = build.catalog.registry
    meta = {fold(meta) for meta in MetaNames.renamed(registry.profiles[name].rename)}
    for entry in registry.build().entries:
        if fold(entry.wire_name) in meta:
            text = f"{entry.wire_name!r} ({entry.spec.origin}) has the name of a meta tool; rename one, or say `direct`"
            build.report.add((declared.at / "exposure").problem(text))


def _unmatched(catalog: Catalog, profile: str, *, more: Set[str] = frozenset()) -> tuple[list[str], list[str]]:
    registry = catalog.registry
    return unmatched(registry.profiles[profile].policy, registry.build().entries, registry.namespaces() | more)


def _globs(declared: Declared[ProfileForm]) -> Iterator[tuple[str, At]]:
    for side, globs in (("allow", declared.said.allow or ()), ("deny", declared.said.deny)):
        for index, glob in enumerate(globs):
            yield glob, _name_at(declared.at / side, index)


def _idle_pins(declared: Declared[ProfileForm], catalog: Catalog) -> list[Problem]:
    entries = catalog.registry.build().entries
    return [
        _name_at(declared.at / "pinned", index).problem(f"{glob!r} matches no tool at present")
        for index, glob in enumerate(declared.said.pinned)
        if not any(applies(glob, entry) for entry in entries)
    ]


def _name_at(at: At, index: int) -> At:
    """Return the place of one name of a list that may also be written as a single text."""
    return at / index if (at / index).exists else at
