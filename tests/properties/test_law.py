"""The law: for every tool, `why`, listed, found, schema served and callable agree, and each fix does what it says."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard import Catalog, Decision, Policy, Profile, ToolContext, ToolSpec, View
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from tests.core.parts import FakeSource, echo, foreign
from tests.sizes import examples

NAMESPACES = ("main", "fs", "builtin")
NAMES = ("read", "write", "send", "list_all")
GROUPS = ("core", "chat", "admin")
FACTORIES = ("mailer", "reviewer")
SOURCES = ("git", "jira")
GLOBS = (
    "*",
    "main.*",
    "fs.*",
    "fs__read",
    "READ",
    "*write*",
    "main.send",
    "list_?ll",
    "git",
    "git__*",
    "jira.read",
    "builtin.*",
)
SYNC, ASYNC = ("yes", "no", "raises", "no_bool"), ("later_yes", "later_no", "blocking_yes", "blocking_no")


@dataclass(frozen=True, kw_only=True)
class Peg:
    """The plan of one tool. `source` is the namespace of a source, or empty for our own code."""

    namespace: str
    name: str
    source: str
    groups: tuple[str, ...]
    internal: bool
    factory: str | None
    available: Any
    builder: str
    full_names: Any

    @property
    def qualified_id(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class World:
    """The plan of a catalog, of a caller and of what the caller asked for."""

    pegs: tuple[Peg, ...]
    states: dict[str, SourceState]
    include: tuple[str, ...] | None
    by_profile: bool
    policy: Policy
    own: Policy
    child: Policy | None
    internal: tuple[str, ...]
    factories: tuple[str, ...]
    extra: bool


def conditions(predicates: tuple[str, ...]) -> st.SearchStrategy[Any]:
    leaf = st.sampled_from([None, True, False, "always", {"source": "git"}, *predicates])
    inner = st.lists(leaf, min_size=1, max_size=3)
    nested = st.one_of(
        leaf,
        inner.map(lambda parts: {"all": parts}),
        inner.map(lambda parts: {"any": parts}),
        leaf.map(lambda part: {"not": part}),
    )
    return st.one_of(st.none(), nested, nested.map(lambda part: {"not": part}))


PLACES = [*((space, "") for space in NAMESPACES), *((source, source) for source in SOURCES)]


def pegs(predicates: tuple[str, ...]) -> st.SearchStrategy[Peg]:
    return st.builds(
        lambda place, name, groups, internal, factory, available, builder, full_names: Peg(
            namespace=place[0], source=place[1], name=name, groups=tuple(groups), internal=internal, factory=factory,
            available=available, builder="" if place[1] else builder, full_names=full_names,
        ),
        place=st.sampled_from(PLACES),
        name=st.sampled_from(NAMES),
        groups=st.sampled_from([*((group,) for group in GROUPS), GROUPS[:2], GROUPS[1:]]),
        internal=st.sampled_from([False, False, False, True]),
        factory=st.sampled_from([None, None, *FACTORIES]),
        available=conditions(predicates),
        builder=st.sampled_from(["", "", "works", "raises", "wrong"]),
        full_names=st.sampled_from([None, None, "Other", ["A", "B"]]),
    )  # fmt: skip


policies = st.builds(
    Policy,
    allow=st.one_of(st.none(), st.none(), st.lists(st.sampled_from(GLOBS), max_size=3).map(tuple)),
    deny=st.lists(st.sampled_from(GLOBS[1:]), max_size=2).map(tuple),
)
source_states = st.builds(
    lambda up, quarantined: SourceState(
        status="ok" if up else "unreachable",
        is_up=up,
        quarantined=frozenset(quarantined),
        changed=frozenset({"git.read"}),
    ),
    st.sampled_from([True, True, False]),
    st.lists(st.sampled_from([f"{s}.{n}" for s in SOURCES for n in NAMES]), max_size=2),
)


def worlds(predicates: tuple[str, ...]) -> st.SearchStrategy[World]:
    return st.builds(
        World,
        pegs=st.lists(pegs(predicates), min_size=1, max_size=7, unique_by=lambda peg: peg.qualified_id).map(tuple),
        states=st.fixed_dictionaries(dict.fromkeys(SOURCES, source_states)),
        include=st.one_of(st.none(), st.lists(st.sampled_from(GROUPS), max_size=3).map(tuple)),
        by_profile=st.booleans(),
        policy=st.one_of(st.just(Policy()), policies),
        own=st.one_of(st.just(Policy()), policies),
        child=st.one_of(st.none(), policies),
        internal=st.lists(st.sampled_from([*NAMES, "fs.read", "git.send"]), max_size=2).map(tuple),
        factories=st.lists(st.sampled_from(FACTORIES), unique=True, max_size=2).map(tuple),
        extra=st.booleans(),
    )


# ---------------------------------------------------------------- from plans to parts


def declare_predicates(catalog: Catalog) -> None:
    async def later_yes(ctx: ToolContext) -> bool:
        await asyncio.sleep(0)
        return True

    async def later_no(ctx: ToolContext) -> bool:
        return False

    plain = {"yes": lambda _: True, "no": lambda _: False, "raises": lambda _: 1 / 0, "no_bool": lambda _: "True"}
    for name, ask in plain.items():
        catalog.predicate(name=name)(ask)
    catalog.predicate(later_yes)
    catalog.predicate(later_no)
    catalog.predicate(name="blocking_yes", blocking=True)(lambda _: True)
    catalog.predicate(name="blocking_no", blocking=True)(lambda _: False)


def build_with(peg: Peg) -> Any:
    def build(ctx: ToolContext) -> ToolEntry:
        if peg.factory is not None:
            return ctx.factory(peg.factory)(peg)
        if peg.builder == "raises":
            raise ConnectionRefusedError("no backend")
        made = ToolSpec(name=peg.name, namespace=peg.namespace).bind(echo)
        return [made, made] if peg.builder == "wrong" else made  # type: ignore[return-value]

    return build


def catalog_of(world: World) -> tuple[Catalog, dict[str, FakeSource]]:
    catalog = Catalog()
    declare_predicates(catalog)
    for group in GROUPS:
        catalog.group(group)
    for namespace in NAMESPACES:
        # So that every namespace which a glob may name is declared.
        catalog.register(ToolSpec(name="peg", namespace=namespace, groups=("admin",), available=False), echo)
    sources = {name: FakeSource(name=name, now=state) for name, state in world.states.items()}
    for peg in world.pegs:
        said: dict[str, Any] = {"groups": peg.groups, "available": peg.available, "factory": peg.factory}
        if peg.source:
            sources[peg.source].listed.append(foreign(peg.source, peg.name, internal_only=peg.internal, **said))
        elif peg.builder:
            names = [peg.name, f"{peg.name}_too"] if peg.builder == "wrong" else peg.name
            catalog.builder(
                names, namespace=peg.namespace, internal_only=peg.internal, full_names=peg.full_names, **said
            )(build_with(peg))
        else:
            plain = ToolSpec(
                name=peg.name, namespace=peg.namespace, internal_only=peg.internal, full_names=peg.full_names, **said
            )
            catalog.register(plain, echo)
    for source in sources.values():
        catalog.add_source(source)
    return catalog, sources


def works(peg: Peg) -> ToolEntry:
    return ToolSpec(name=peg.name).bind(echo)


def context_of(world: World) -> ToolContext:
    ctx = ToolContext(policy=world.own, factories=dict.fromkeys(world.factories, works), budget=None)
    return ctx if world.child is None else ctx.child(policy=world.child)


def view_of(world: World, catalog: Catalog, ctx: ToolContext) -> View:
    extra = [ToolSpec(name="one_off", groups=("nobody",)).bind(echo)] if world.extra else []
    if not world.by_profile:
        return catalog.view(ctx, include=world.include, internal=world.internal, extra_tools=extra)
    catalog.profile(Profile(name="p", include=world.include, policy=world.policy))
    return catalog.view(ctx, profile="p", internal=world.internal, extra_tools=extra)


# ---------------------------------------------------------------- the law


async def assert_law(view: View, names: list[str]) -> None:
    listed = {tool.wire_name for tool in view.tools()}
    for name in names:
        found = view.find(name)
        result = await view.call(name, {})
        agree = {
            "why": view.why(name).visible,
            "listed": name in listed or any(name in tool.names for tool in view.tools()),
            "found": found is not None,
            "in": name in view,
            "schema": served(view, name),
            "callable": result.error is None or result.error.kind != "not_found",
            "why, awaited": (await view.awhy(name)).visible,
            "found, awaited": await view.afind(name) is not None,
        }
        assert len(set(agree.values())) == 1, (name, agree, view.why(name))


def served(view: View, name: str) -> bool:
    try:
        return view.schema(name)["type"] == "object"
    except KeyError:
        return False


def every_name(catalog: Catalog) -> list[str]:
    return [name for entry in catalog.snapshot().entries for name in entry.names] + [
        "one_off",
        "no_such_tool",
    ]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    # Thousands of failing predicates and builders are meant here.
    with caplog.at_level(logging.CRITICAL, logger="pegboard"):
        yield


@settings(
    max_examples=examples(1_000), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(world=worlds(SYNC))
def test_why_list_find_schema_and_call_agree(world: World) -> None:
    catalog, _ = catalog_of(world)
    view = view_of(world, catalog, context_of(world))
    asyncio.run(assert_law(view, every_name(catalog)))


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(world=worlds(SYNC + ASYNC))
def test_they_agree_with_async_predicates_too(world: World) -> None:
    async def check() -> None:
        catalog, _ = catalog_of(world)
        view = await view_of(world, catalog, context_of(world)).prepare()
        names = every_name(catalog)
        for name in names:
            # `prepare` answers for the selected tools; why a tool outside them is hidden may need more.
            await view.awhy(name)
        await assert_law(view, names)

    asyncio.run(check())


# ---------------------------------------------------------------- the oracle: each code by the words of the contract


def fits(glob: str, entry: ToolEntry) -> bool:
    spelled = f"{entry.spec.namespace}__{entry.spec.name}"
    named = [entry.qualified_id.lower(), entry.wire_name.lower(), spelled.lower()]
    return any(fnmatchcase(name, glob.lower()) for name in named) or (
        entry.is_toolset and glob.lower() == entry.spec.namespace
    )


def layers(policy: Policy | None) -> list[Policy]:
    return [] if policy is None else [policy, *layers(policy.within)]


def allows(policy: Policy, entry: ToolEntry) -> bool:
    return all(
        not any(fits(glob, entry) for glob in layer.deny)
        and (layer.allow is None or any(fits(glob, entry) for glob in layer.allow))
        for layer in layers(policy)
    )


def holds(condition: Any, states: dict[str, SourceState]) -> bool | None:
    """Return yes, no, or `None` for a predicate that failed: not even a `not` makes a yes of that."""
    match condition:
        case None | True | "always" | "yes":
            return True
        case "raises" | "no_bool":
            return None
        case {"all": parts}:
            found = {holds(part, states) for part in parts}
            return False if False in found else None if None in found else True
        case {"any": parts}:
            found = {holds(part, states) for part in parts}
            return True if True in found else None if None in found else False
        case {"not": part}:
            found = holds(part, states)
            return None if found is None else not found
        case {"source": name}:
            return states[name].is_up
        case _:
            return False


def expected_code(peg: Peg, entry: ToolEntry, world: World) -> str:
    named = peg.name in world.internal or peg.qualified_id in world.internal
    asked = [world.own, *([world.policy] if world.by_profile else []), *([world.child] if world.child else [])]
    state = world.states.get(peg.source, SourceState())
    checks = {
        "internal": peg.internal and not named,
        "group": world.include is not None and not set(world.include) & set(peg.groups),
        "policy": not all(allows(policy, entry) for policy in asked),
        "quarantine": peg.qualified_id in state.quarantined,
        "source": not state.is_up,
        "factory": peg.factory is not None and peg.factory not in world.factories,
        "available": holds(peg.available, world.states) is not True,
        "builder": peg.builder == "wrong" or (peg.builder == "raises" and peg.factory is None),
    }
    return next((code for code, hides in checks.items() if hides), "visible")


@settings(max_examples=examples(500), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(world=worlds(SYNC))
def test_the_code_is_the_first_that_hides_the_tool(world: World) -> None:
    catalog, _ = catalog_of(world)
    view = view_of(world, catalog, context_of(world))
    for peg in world.pegs:
        entry = next(item for item in catalog.snapshot().entries if item.qualified_id == peg.qualified_id)
        decision = view.why(peg.qualified_id)
        assert decision.code == expected_code(peg, entry, world), decision
        assert decision.visible == (decision.code == "visible") == (decision.fix is None)
        assert decision.visible or decision.reason


# ---------------------------------------------------------------- the fixes


def mended(policy: Policy, entry: ToolEntry) -> Policy:
    """Return the policy without the entries that deny the tool, and with the tool where an allow list lacks it."""
    allow = policy.allow
    if allow is not None and not any(fits(glob, entry) for glob in allow):
        allow = (*allow, entry.qualified_id)
    deny = tuple(glob for glob in policy.deny if not fits(glob, entry))
    return replace(policy, allow=allow, deny=deny, within=policy.within and mended(policy.within, entry))


def after_fix(decision: Decision, world: World, entry: ToolEntry) -> World:
    assert decision.fix is not None
    match decision.fix.kind:
        case "internal":
            return replace(world, internal=(*world.internal, decision.fix.subject))
        case "group":
            return replace(world, include=(*(world.include or ()), decision.fix.subject))
        case "factory":
            return replace(world, factories=(*world.factories, decision.fix.subject))
        case _:
            child = world.child and mended(world.child, entry)
            return replace(world, policy=mended(world.policy, entry), own=mended(world.own, entry), child=child)


@settings(
    max_examples=examples(1_000), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(world=worlds(SYNC))
def test_a_fix_passes_its_code_and_meets_exactly_next(world: World) -> None:
    catalog, _ = catalog_of(world)
    view = view_of(world, catalog, context_of(world))
    entries = {entry.qualified_id: entry for entry in catalog.snapshot().entries}
    for peg in world.pegs:
        decision = view.why(peg.qualified_id)
        if decision.code not in ("internal", "group", "policy", "factory") or peg.builder == "wrong":
            continue
        changed = after_fix(decision, world, entries[peg.qualified_id])
        met = view_of(changed, catalog, context_of(changed)).why(peg.qualified_id)
        assert (met.code != decision.code, met.code) == (True, decision.next), (decision, met)
