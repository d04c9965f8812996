"""Conditions: tools that hang on the same are judged together, and each answer is that of the tool by itself."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pegboard import Catalog, Policy, ToolContext, ToolSpec
from pegboard.model.source_state import SourceState
from tests.core.parts import FakeSource, echo, foreign

MANY = 60


def is_odd(ctx: ToolContext) -> bool:
    return ctx.user_id in ("ann", "cleo")


FORMS: tuple[Any, ...] = (
    None, True, False, "always", "is_early", is_odd, {"not": "is_early"}, {"all": ["is_early", is_odd]},
    {"any": [is_odd, {"not": "is_early"}]},
    {"any": ["is_early", is_odd]}, {"source": "git"}, {"not": {"source": "git"}},
)  # fmt: skip
STATES = (
    SourceState(),
    SourceState(quarantined=frozenset({"git.tool_1", "git.tool_3"})),
    SourceState(status="unreachable", is_up=False),
    SourceState(status="unreachable", is_up=False, quarantined=frozenset({"git.tool_0"})),
)
TOOLS = st.lists(
    st.tuples(
        st.sampled_from(FORMS), st.sampled_from([None, "mailer"]), st.sampled_from([None, "2001-01-01", "2999-01-01"])
    ),
    max_size=12,
)


def catalog_of(tools: list[tuple[Any, str | None, str | None]], git: FakeSource) -> Catalog:
    catalog = Catalog()
    catalog.predicate(name="is_early")(lambda ctx: (ctx.user_id or "z") < "c")
    catalog.add_source(git)
    for number, (available, factory, deprecated) in enumerate(tools):
        spec = ToolSpec(name=f"own_{number}", available=available, factory=factory, deprecated=deprecated)
        catalog.register(spec, echo)
    return catalog


@given(tools=TOOLS, state=st.sampled_from(STATES), denied=st.sampled_from(["none", "own_1", "git.tool_3", "own_*"]))
def test_a_list_has_just_the_tools_that_are_visible_one_by_one(
    tools: list[tuple[Any, str | None, str | None]], state: SourceState, denied: str
) -> None:
    git = FakeSource(name="git", listed=[foreign("git", f"tool_{number}") for number in range(5)], now=state)
    catalog = catalog_of(tools, git)
    for user in ("ann", "bob", "cleo", "dan"):
        for factories in ({}, {"mailer": print}):
            ctx = ToolContext(user_id=user, factories=factories, policy=Policy(deny=(denied,)))
            every = [entry.wire_name for entry in catalog.snapshot().entries]
            alone = [name for name in every if catalog.view(ctx).why(name).visible]
            view = catalog.view(ctx)
            assert [entry.wire_name for entry in view.tools()] == alone
            assert view.names() == alone
            assert view.names("peg") == [f"mcp__peg__{name}" for name in alone]


def test_a_condition_is_judged_once_for_all_tools_that_hang_on_it() -> None:
    catalog, asked = Catalog(), list[str]()

    class Counted(str):
        """A factory's name that says when it is looked for: nothing else is asked anew for each tool."""

        def __hash__(self) -> int:
            asked.append(self)
            return super().__hash__()

    mailer = Counted("mailer")
    for number in range(MANY):
        catalog.register(ToolSpec(name=f"tool_{number}", factory=mailer), echo)
    ready = ToolContext(factories={"mailer": print})
    assert len(catalog.view(ready).tools()) == MANY
    asked.clear()
    assert len(catalog.view(ready).tools()) == MANY
    assert catalog.view(ToolContext()).tools() == ()
    assert len(asked) == 2


def test_callers_for_whom_the_same_is_left_share_one_list() -> None:
    catalog = Catalog()
    catalog.predicate(name="is_ann")(lambda ctx: ctx.user_id == "ann")
    for number in range(MANY):
        catalog.register(ToolSpec(name=f"tool_{number}", available="is_ann" if number % 2 else None), echo)

    def listed(user: str, denied: str = "none") -> tuple[object, ...]:
        return catalog.view(ToolContext(user_id=user, policy=Policy(deny=(denied,)))).tools()

    assert len(listed("bob")) == MANY // 2
    assert listed("bob") is listed("cleo", "another")
    assert listed("ann") is not listed("bob")
    assert listed("bob") is listed("ann", "tool_*[13579]")


def test_names_are_a_list_of_ones_own_and_follow_each_change() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="plain"), echo)
    names = catalog.view(ToolContext()).names()
    names.append("mine")
    assert catalog.view(ToolContext()).names() == ["plain"]
    catalog.register(ToolSpec(name="other", full_names=lambda ctx: [f"{ctx.user_id}_a", f"{ctx.user_id}_b"]), echo)
    assert catalog.view(ToolContext(user_id="ann")).names() == ["plain", "ann_a", "ann_b"]
    assert catalog.view(ToolContext(user_id="bob")).names("peg") == ["mcp__peg__plain", "bob_a", "bob_b"]
    catalog.predicate(name="is_ann")(lambda ctx: ctx.user_id == "ann")
    catalog.builder("built", available="is_ann")(lambda ctx: [])
    assert "built" in catalog.view(ToolContext(user_id="ann")).names()
    assert "built" not in catalog.view(ToolContext(user_id="bob")).names()
