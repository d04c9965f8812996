"""Runtime: the composition root. It makes the parts of a catalog and fills every port; nothing else knows them all."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from pegboard.agents.lazy_runtime import LazyAgentRuntime
from pegboard.authoring.builder import read_built
from pegboard.consent.memory import MemoryConsents
from pegboard.core.call.record import Guards
from pegboard.core.declarations import Declarations
from pegboard.core.defaults import Defaults
from pegboard.core.executor import Executor
from pegboard.core.ports import Embedder, LimitStore
from pegboard.core.registry import Registry
from pegboard.core.view import ViewParts
from pegboard.discovery.exposure import Discovery
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.context import ToolContext
from pegboard.model.secret import Secret
from pegboard.models.language_models import LanguageModels
from pegboard.providers import EXPORTERS
from pegboard.providers.repair import repair
from pegboard.resources import Resources

FLOODING_CALLERS = 10_000  # whose invalid calls are counted


def key_of_environment(registry: Registry) -> Callable[[str], Secret | None]:
    """Return what reads the key of a language model from the environment, and keeps it out of every result."""

    def key_of(variable: str) -> Secret | None:
        value = os.environ.get(variable)
        if not value:
            return None
        key, known = Secret(value), registry.declarations.secrets
        if key not in known:
            registry.change(secrets=(*known, key))
        return key

    return key_of


class Runtime(Struct, frozen=True, kw_only=True):
    """The parts of one catalog, each filled with what it needs of the others.

    `registry` holds what is declared, `defaults` knows what of that code declares by itself, `guards` what the stages
    of its calls share, `executor` runs them; `discovery` finds tools, `resources` is what there is beside them, and
    `agents` runs agents on `models`, and `view_parts` is what every View is made of.
    """

    registry: Registry
    defaults: Defaults
    guards: Guards
    executor: Executor
    discovery: Discovery
    resources: Resources
    agents: LazyAgentRuntime
    models: LanguageModels
    view_parts: ViewParts


def assemble(
    declared: Declarations,
    *,
    context_type: type[ToolContext],
    limit_store: LimitStore | None,
    embedder: Embedder | None,
    clock: Callable[[], float],
) -> Runtime:
    """Return the parts of a catalog that declares this.

    Without a `limit_store` limits are counted in memory; with one, memory decides while it does not answer.
    Without an `embedder` tools are found by words alone.
    """
    registry = Registry(declared, read_built=read_built, context_type=context_type)
    in_memory = MemoryLimitStore(clock=clock, max_keys=declared.bounds.ratelimit_keys)
    guards = Guards(
        registry=registry,
        limits=in_memory if limit_store is None else limit_store,
        local_limits=in_memory,
        consents=MemoryConsents(lambda: registry.wall_clock()),  # noqa: PLW0108 - it may be set anew
        # Whoever makes bad calls from many networks must not have everybody refused who is not known yet.
        invalid_calls=MemoryLimitStore(clock=clock, max_keys=FLOODING_CALLERS, forgets=True),
        clock=clock,
        repair=repair,
    )
    executor = Executor(guards)
    models = LanguageModels(key_of_environment(registry))
    view_parts = ViewParts(registry=registry, runner=executor, exporters=EXPORTERS)
    guards.agents = agents = LazyAgentRuntime(
        registry, view_parts, make_model=models.model, load_model=models.load, clock=clock, redactor=guards.redactor
    )
    return Runtime(
        registry=registry,
        defaults=Defaults(),
        guards=guards,
        executor=executor,
        discovery=Discovery.of(registry, embedder=embedder),
        resources=Resources(registry, executor),
        agents=agents,
        models=models,
        view_parts=view_parts,
    )
