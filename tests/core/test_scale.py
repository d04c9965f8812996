"""Scale: what a catalog of many tools costs to fill, to change and to ask, and that shortcuts change no answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Catalog, DuplicateToolError, Policy, ToolContext, ToolSpec
from pegboard.core.entry_table import EntryTable
from pegboard.core.selections import SELECTIONS_REMEMBERED
from pegboard.core.wire_names import Named, WireNames
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from tests.core.parts import ANN, FakeSource, echo, foreign
from tests.timing import steps

FEW, MANY = 200, 2_000


def spec(number: int, text: str = "") -> ToolSpec:
    city = {"type": "string", "description": f"the city of {number}"}
    return ToolSpec(
        name=f"tool_{number}",
        description=f"Look up number {number}. {text}",
        groups=("few" if number < FEW else "many",),
        input_schema={"type": "object", "properties": {"city": city}, "required": ["city"]},
    )


def filled(count: int) -> Catalog:
    catalog = Catalog()
    for number in range(count):
        catalog.register(spec(number), echo)
    return catalog


@pytest.mark.slow
def test_a_large_catalog_is_filled_in_step_with_its_size_and_changes_for_a_fiftieth_of_that() -> None:
    large = Catalog()

    def fill(start: int, end: int) -> Callable[[], None]:
        def work() -> None:
            for number in range(start, end):
                large.register(spec(number), echo)

        return work

    halves = [steps(fill(0, MANY // 2)), steps(fill(MANY // 2, MANY))]
    built = sum(halves) + steps(large.snapshot)
    assert halves[1] < 1.2 * halves[0]

    def change(number: int) -> int:
        return steps(lambda: (large.register(spec(5, f"changed {number}"), echo, replace=True), large.snapshot()))

    assert max(map(change, range(5))) < 0.02 * built

    small = filled(FEW)

    def listed_in(catalog: Catalog) -> int:
        catalog.view(ANN, include=["few"]).tools()
        catalog.register(spec(MANY), echo, replace=True)
        catalog.snapshot()
        return steps(lambda: catalog.view(ANN, include=["few"]).tools())

    assert len(large.view(ANN, include=["few"]).tools()) == FEW
    # No step for each of the tools that are not listed.
    assert listed_in(large) < listed_in(small) + (MANY - FEW) // 2


def test_a_name_in_a_policy_means_the_tools_that_a_pattern_of_the_same_letters_means() -> None:
    catalog = Catalog()
    for namespace, name in (("main", "pay"), ("fs_", "_read"), ("fs", "Read"), ("builtin", "pay"), ("a", "b__c")):
        catalog.register(ToolSpec(namespace=namespace, name=name, renamed_from=(f"old_{name}",)), echo)
    catalog.add_source(FakeSource(name="Git", listed=[foreign("Git", "log")]))
    catalog.mirror("Bash")
    known = [form for entry in catalog.snapshot().entries for form in (*entry.names, entry.spec.name)]
    said = [*known, *map(str.upper, known), *map(str.lower, known), "git", "GIT", "Bash", "old_pay", "fs", "main", "pa"]
    for name in dict.fromkeys(said):
        literal, pattern = (catalog.policy_faults(Policy(deny=(glob,))) for glob in (name, f"{name[:-1]}[{name[-1]}]"))
        # A toolset and a namespace are meant by their names alone; what a source lists is a toolset.
        assert (literal == ([], [])) is (pattern == ([], []) or name.casefold() == "git" or name in {"fs", "main"}), (
            name
        )


@pytest.mark.slow
def test_a_policy_that_names_tools_is_checked_without_holding_each_name_to_all_of_them() -> None:
    large, small = filled(MANY), filled(FEW)

    def checked_in(catalog: Catalog, mark: str) -> int:
        globs = tuple(f"tool_{number}{mark}" for number in range(FEW))
        return steps(lambda: catalog.policy_faults(Policy(deny=globs)))

    for catalog in (large, small):
        checked_in(catalog, "_first")
    assert checked_in(large, "_none") < 1.5 * checked_in(small, "_none")


def source_of(name: str, count: int) -> FakeSource:
    return FakeSource(name=name, listed=[foreign(name, f"tool_{number}") for number in range(count)])


def listed(catalog: Catalog, ctx: ToolContext = ANN) -> bytes:
    return catalog.view(ctx).export_bytes("mcp")


def test_how_a_source_is_is_asked_once_for_a_list_of_all_its_tools() -> None:
    @dataclass(kw_only=True)
    class Counting(FakeSource):
        asked: int = 0

        def state(self) -> SourceState:
            self.asked += 1
            return self.now

    catalog = Catalog()
    source = Counting(name="git", listed=source_of("git", FEW).listed)
    catalog.add_source(source)
    assert listed(catalog).count(b'"name":') == FEW
    source.asked = 0
    listed(catalog)
    assert source.asked == 1

    source.now = SourceState(quarantined=frozenset({"git.tool_7"}))
    assert listed(catalog).count(b'"name":') == FEW - 1
    assert b'"git__tool_7"' not in listed(catalog)
    source.now = SourceState(status="unreachable", is_up=False)
    assert listed(catalog) == b"[]"


@pytest.mark.slow
def test_one_source_that_changes_costs_little_beside_all_that_stay() -> None:
    catalog = Catalog()
    sources = [source_of(f"s{number}", 100) for number in range(20)]
    for source in sources:
        catalog.add_source(source)
    built = steps(lambda: listed(catalog))

    def change() -> int:
        sources[3].relist(source_of("s3", 100).listed)
        return steps(lambda: listed(catalog))

    assert max(change() for _ in range(5)) < 0.1 * built
    sources[3].relist([*sources[3].listed[:50], *source_of("s3", 101).listed[100:]])
    anew = Catalog()
    for source in sources:
        anew.add_source(source)
    assert listed(catalog) == listed(anew)


@pytest.mark.slow
def test_many_callers_with_policies_of_their_own_are_judged_once_each() -> None:
    callers = [ToolContext(policy=Policy(deny=(f"tool_{number}",))) for number in range(2 * SELECTIONS_REMEMBERED)]
    catalog = filled(FEW)
    catalog.predicate(name="never")(lambda ctx: False)
    catalog.register(replace(spec(FEW), available="never"), echo)
    catalog.add_source(source_of("git", 5))
    listed(catalog)

    def all_lists() -> list[bytes]:
        return [listed(catalog, ctx) for ctx in callers]

    first: list[bytes] = []
    judged = steps(lambda: first.extend(all_lists()))
    assert steps(all_lists) < 0.1 * judged
    assert all_lists() == first
    assert len({*first}) == FEW + 1, "those that deny what there is not see the same"
    assert b'"tool_7"' not in first[7]
    assert b'"tool_7"' in first[8]
    assert all(b"git__tool_4" in each and f'"tool_{FEW}"'.encode() not in each for each in first)


names = st.text("abAB_", min_size=1, max_size=3) | st.sampled_from(["a__b", "x" * 60])
spaces = st.sampled_from(["main", "builtin", "fs", "a"])
tools = st.builds(Named, spaces, names, st.booleans())


def by_identity(tool: Named) -> str:
    return f"{tool.namespace}.{tool.name}".casefold()


@given(
    st.lists(tools, max_size=8, unique_by=by_identity), st.lists(tools, max_size=4, unique_by=by_identity), st.data()
)
def test_names_that_follow_a_change_are_those_of_naming_all_anew(
    before: list[Named], added: list[Named], data: st.DataObject
) -> None:
    removed = data.draw(st.lists(st.sampled_from(before), unique=True)) if before else []
    stay = [tool for tool in before if tool not in removed]
    added = [tool for tool in added if by_identity(tool) not in set(map(by_identity, stay))]
    followed = WireNames.of(before).after(removed=removed, added=added)
    anew = WireNames.of([*stay, *added])
    assert followed is None or followed == anew


def test_the_name_that_one_of_two_kept_goes_to_the_other_when_it_leaves() -> None:
    kept, other = Named("main", "a", is_toolset=False), Named("fs", "a", is_toolset=False)
    both = WireNames.of([kept, other])
    assert both.by_tool == {kept: "a", other: "fs__a"}
    # Who stays is named anew then, so nobody may go by what follows from the change alone.
    assert both.after(removed=[kept], added=[]) is None
    assert both.after(removed=[other], added=[]) is None
    assert both.after(removed=[], added=[Named("git", "a", is_toolset=False)]) is None
    assert WireNames.of([other]).by_tool == {other: "a"}


changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "replace", "remove", "source", "group", "extra"]),
        st.sampled_from(["read", "write", "READ", "git__log", "9", "x" * 64]),
        st.sampled_from(["main", "fs", "FS", "builtin"]),
        st.sampled_from([("core",), ("a", "b"), ("b", "b", "core")]),
        st.sampled_from([None, "known", True]),
    ),
    max_size=8,
)


@given(changes)
def test_a_catalog_that_was_changed_answers_as_one_that_was_made_so(steps: list[tuple[Any, ...]]) -> None:
    changed, source = Catalog(), FakeSource(name="git", listed=[])
    changed.predicate(name="known")(lambda ctx: True)
    changed.add_source(source)
    policies = (Policy(), Policy(deny=("*read*",)), Policy(allow=("git__*", "write")))
    for kind, name, space, groups, available in steps:
        declared = ToolSpec(
            name=name, namespace=space, groups=groups, available=available, renamed_from=(f"old_{name}",)
        )
        try:
            if kind == "remove":
                changed.unregister(f"{space}.{name}")
            elif kind == "source":
                source.relist([foreign("git", name), foreign("git", "log")])
            elif kind == "group":
                changed.group("c")
            elif kind == "extra":
                changed.view(ANN, extra_tools=[declared.bind(echo)]).tools()
            else:
                changed.register(declared, echo, replace=kind == "replace")
        except (DuplicateToolError, KeyError):
            pass
        changed.snapshot()
        for policy in policies[: len(name) % 3]:
            # What was asked before a change, or some changes before, is followed.
            changed.view(ToolContext(policy=policy)).export_bytes("gemini")
    anew = Catalog()
    anew.predicate(name="known")(lambda ctx: True)
    anew.registry.swap(changed.registry.declarations)
    now, then = changed.snapshot(), anew.snapshot()
    assert [(entry.qualified_id, entry.wire_name) for entry in now.entries] == [
        (entry.qualified_id, entry.wire_name) for entry in then.entries
    ]
    assert now == then
    assert changed.view(ANN).names() == anew.view(ANN).names()
    for policy in policies:
        for target in ("gemini", "mcp"):
            lists = [each.view(ToolContext(policy=policy)).export_bytes(target) for each in (changed, anew)]
            assert lists[0] == lists[1]
    for groups in (["core"], ["a", "core"], ["b"]):
        known = [group for group in groups if group in changed.registry.known_groups()]
        assert changed.view(ANN, include=known).names() == anew.view(ANN, include=known).names()
    for entry in then.entries:
        for name in (entry.wire_name, entry.qualified_id, entry.qualified_id.upper(), *entry.spec.renamed_from):
            found, expected = now.find(name), then.find(name)
            assert (found and found.qualified_id) == (expected and expected.qualified_id)
            assert now.former_name(name) == then.former_name(name)


def entry(name: str) -> ToolEntry:
    return ToolSpec(name=name).bind(echo)


def test_tables_that_grew_from_one_see_each_their_own_entries() -> None:
    start = EntryTable().with_entries({"a": entry("a")})
    left, right = start.with_entries({"b": entry("b")}), start.with_entries({"c": entry("c")})
    assert [list(table) for table in (start, left, right)] == [["a"], ["a", "b"], ["a", "c"]]
    assert [("b" in table, "c" in table) for table in (start, left, right)] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip
    with pytest.raises(KeyError):
        start["b"]
    assert start.with_entries({}) is start
    replaced = left.with_entries({"a": entry("a2"), "d": entry("d")})
    assert [tool.spec.name for tool in replaced.values()] == ["a2", "b", "d"]
    assert [tool.spec.name for tool in left.without("a").values()] == ["b"]
    assert list(left) == ["a", "b"]
    with pytest.raises(KeyError):
        start.without("b")
