"""Runtime: the composition root. It makes the parts of a catalog and fills every port; no other module knows all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from msgspec import Struct

from pegboard.agents.lazy_runtime import LazyAgentRuntime
from pegboard.authoring.builder import read_built
from pegboard.consent.memory_answers import MemoryConsents
from pegboard.core.call.record import Ports
from pegboard.core.declarations import Declarations
from pegboard.core.defaults import Defaults
from pegboard.core.executor import Executor
from pegboard.core.ports import Embedder
from pegboard.core.registry import Registry
from pegboard.core.steady_clock import steady_time
from pegboard.core.view import ViewParts
from pegboard.discovery.exposure import Discovery
from pegboard.limits.memory import MemoryLimitStore
from pegboard.limits.memory_budgets import MemoryBudgetStore
from pegboard.model.bounds import Bounds
from pegboard.model.context import ToolContext
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.models.language_models import LanguageModels
from pegboard.providers import EXPORTERS
from pegboard.providers.repair import repair
from pegboard.resources import Resources

FLOODING_CALLERS = 10_000  # whose invalid calls are counted


def key_of_environment(registry: Registry) -> Callable[[str], Secret | None]:
    """Return a function that reads a model's API key from the environment and adds it to the redacted secrets."""

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

    `registry` holds the declarations, `defaults` remembers which of them come from code, and `executor` runs calls on
    its ports. `discovery` finds tools; `resources` holds resources, prompts and completions; `agents` runs agents on
    `models`. Every View is made from `view_parts`.
    """

    registry: Registry
    defaults: Defaults
    executor: Executor
    discovery: Discovery
    resources: Resources
    agents: LazyAgentRuntime
    models: LanguageModels
    view_parts: ViewParts


def in_memory_ports(bounds: Bounds, *, clock: Callable[[], float]) -> Ports:
    """Return the ports of a catalog without stores: this process counts limits and remembers consents."""
    in_memory = MemoryLimitStore(clock=clock, max_keys=bounds.ratelimit_keys)
    budgets = MemoryBudgetStore(max_counters=bounds.ratelimit_keys)
    return Ports(
        limits=in_memory,
        local_limits=in_memory,
        # A flood of invalid calls from many networks must not get every new caller refused.
        invalid_calls=MemoryLimitStore(clock=clock, max_keys=FLOODING_CALLERS, forgets=True),
        budgets=budgets,
        local_budgets=budgets,
        consents=MemoryConsents(steady_time),
        clock=clock,
        repair=repair,
    )


async def close_stores(stores: Iterable[object]) -> None:
    """Close the stores of limits and budgets that have connections."""
    for store in stores:
        if (close := getattr(store, "close", None)) is not None:
            await close()


def assemble(
    declared: Declarations, ports: Ports, *, context_type: type[ToolContext], embedder: Embedder | None
) -> Runtime:
    """Return the parts of a catalog that declares this and uses these ports, with its own agent runtime added.

    Without an `embedder` tools are found by words alone.
    """
    registry = Registry(declared, read_built=read_built, context_type=context_type)
    executor = Executor(registry, ports)
    models = LanguageModels(key_of_environment(registry))
    view_parts = ViewParts(registry=registry, runner=executor, exporters=EXPORTERS)
    agents = LazyAgentRuntime(
        registry,
        view_parts,
        make_model=models.model,
        load_model=models.load,
        clock=ports.clock,
        redactor=executor.redactor,
    )
    executor.swap(replace(ports, agents=agents))
    return Runtime(
        registry=registry,
        defaults=Defaults(),
        executor=executor,
        discovery=Discovery.of(registry, embedder=embedder),
        resources=Resources(registry, executor),
        agents=agents,
        models=models,
        view_parts=view_parts,
    )
