"""Following changes: after any change a catalog is as one that was made so, and what stayed is not looked at again."""

from collections.abc import Callable, Iterable

import pytest

from pegboard import Catalog, Policy, ToolContext, ToolSpec
from pegboard.core.selections import SELECTION_CHANGES
from pegboard.model.tool import ToolEntry
from tests.core.parts import ANN, FakeSource, echo, foreign

NO_SECOND = ToolContext(policy=Policy(deny=("*2", "nine")))
Change = Callable[[Catalog, FakeSource], object]


def spec(name: str, **options: object) -> ToolSpec:
    return ToolSpec(**{"name": name, "namespace": "zoo", **options})  # pyright: ignore[reportArgumentType] - as given


def made(entries: Iterable[ToolSpec], source: FakeSource) -> Catalog:
    catalog = Catalog()
    catalog.predicate(name="never")(lambda ctx: False)
    catalog.add_source(source)
    for each in entries:
        catalog.register(each, echo)
    return catalog


def seen(catalog: Catalog) -> list[object]:
    """Return what callers see, by every way in which something is kept of a snapshot."""
    snapshot = catalog.snapshot()
    return [
        [(entry.qualified_id, entry.wire_name) for entry in snapshot.entries],
        {name: entry.qualified_id for name, entry in snapshot.by_wire_name.items()},
        [catalog.view(ctx).export_bytes(target) for ctx in (ANN, NO_SECOND) for target in ("mcp", "gemini")],
        [catalog.view(ANN, include=[group]).names() for group in ("core", "few")],
        snapshot,
    ]


CHANGES: dict[str, Change] = {
    "one replaced": lambda catalog, _: catalog.register(spec("t1", description="anew"), echo, replace=True),
    "one hidden": lambda catalog, _: catalog.register(spec("t1", available="never"), echo, replace=True),
    "one that is hidden replaced": lambda catalog, _: catalog.register(spec("hidden"), echo, replace=True),
    "one added at the end": lambda catalog, _: catalog.register(spec("t9"), echo),
    "one added before all others": lambda catalog, _: catalog.register(spec("t9", namespace="aa"), echo),
    "one whose name no target takes": lambda catalog, _: catalog.register(spec("9t"), echo),
    "one taken out": lambda catalog, _: catalog.unregister("zoo.t1"),
    "one in a namespace written otherwise": lambda catalog, _: catalog.register(
        spec("t1", namespace="ZOO"), echo, replace=True
    ),
    "one that takes the name of another": lambda catalog, _: catalog.register(spec("t1", namespace="main"), echo),
    "one listed anew": lambda _, source: source.relist([foreign("git", "log"), *source.listed[1:]]),
    "one listed no more": lambda _, source: source.relist(source.listed[1:]),
    "listed in another order": lambda _, source: source.relist([*source.listed[::-1], foreign("git", "push")]),
    "listed twice": lambda _, source: source.relist([*source.listed, foreign("git", "log")]),
    "nothing listed": lambda _, source: source.relist([]),
    "nothing": lambda catalog, _: catalog.group("other"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_catalog_shows_what_one_made_so_shows(change: Change) -> None:
    source = FakeSource(name="git", listed=[foreign("git", name) for name in ("log", "diff", "nine")])
    own = [
        spec("t1"),
        spec("t2", groups=("few", "core")),
        spec("hidden", available="never"),
        spec("8t"),
        spec("t3", namespace="main"),
    ]
    catalog = made(own, source)
    seen(catalog)
    change(catalog, source)
    anew = Catalog()
    anew.registry.swap(catalog.registry.declarations)
    assert seen(catalog) == seen(anew)
    # A second change follows the first, whether somebody has asked in between or not.
    catalog.register(spec("t1", description="again"), echo, replace=True)
    catalog.snapshot()
    catalog.register(spec("last"), echo)
    anew = Catalog()
    anew.registry.swap(catalog.registry.declarations)
    assert seen(catalog) == seen(anew)


def test_who_asks_after_many_changes_sees_what_there_is() -> None:
    source = FakeSource(name="git", listed=[])
    catalog = made([spec("t1"), spec("t2")], source)
    assert catalog.view(NO_SECOND).names() == ["t1"]
    for number in range(SELECTION_CHANGES + 2):
        catalog.register(spec(f"more_{number}"), echo)
        catalog.snapshot()
    names = catalog.view(NO_SECOND).names()
    assert names == ["t1", *(f"more_{number}" for number in range(SELECTION_CHANGES + 2) if number % 10 != 2)]


def test_of_what_stayed_nothing_is_worked_out_again() -> None:
    source = FakeSource(name="git", listed=[foreign("git", name) for name in ("log", "diff")])
    catalog = made([spec(f"t{number}") for number in range(20)], source)
    asked: list[str] = []

    def looked_at(entry: ToolEntry) -> str:
        asked.append(entry.spec.name)
        return entry.spec.name.upper()

    def asked_now() -> list[str]:
        asked.clear()
        names = catalog.snapshot().column("name", looked_at)
        assert names == [entry.spec.name.upper() for entry in catalog.snapshot().entries]
        return [*asked]

    assert len(asked_now()) == 22
    catalog.register(spec("t3", description="anew"), echo, replace=True)
    assert asked_now() == ["t3"]
    catalog.unregister("zoo.t4")
    assert asked_now() == []
    source.relist([*source.listed, foreign("git", "push")])
    assert asked_now() == ["push"]
    assert [entry.spec.name for entry in catalog.view(ANN, extra_tools=[spec("own").bind(echo)]).tools()][-1] == "own"
    assert asked_now() == []


def test_views_with_extra_tools_of_two_moments_leave_each_what_its_caller_may_see() -> None:
    catalog, source = Catalog(), FakeSource(name="git", listed=[foreign("git", "log"), foreign("git", "wipe")])
    catalog.add_source(source)
    ctx = ToolContext(policy=Policy(deny=("git.wipe",)), budget=None)

    def names() -> list[str]:
        return catalog.view(ctx, extra_tools=[spec("own").bind(echo)]).names()

    catalog.view(ctx).names()
    assert names() == ["git__log", "own"]
    # The catalog goes on from a snapshot that the extended one went on from too.
    source.relist([foreign("git", "wipe")])
    assert names() == ["own"]
    source.relist([foreign("git", "wipe"), foreign("git", "log"), foreign("git", "push")])
    assert names() == ["git__log", "git__push", "own"]
