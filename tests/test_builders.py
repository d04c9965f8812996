"""Builders: what their declaration says, what holds for the tools they build, factories, names and copies."""

import logging
from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, RateLimit, Tool, ToolContext, ToolSpec
from pegboard.model.tool import ToolEntry


def echo(ctx: Any, args: Any) -> Any:
    return args


def spec(name: str = "review", **said: Any) -> ToolEntry:
    return ToolSpec(name=name, **said).bind(echo)


def built(made: object, **said: Any) -> Catalog:
    """Return a catalog whose one builder gives `made`."""
    catalog = Catalog()
    catalog.builder("review", **said)(lambda ctx: made)
    return catalog


# ---------------------------------------------------------------- guards


async def test_a_guard_said_at_the_builder_holds_for_what_it_builds():
    catalog = built(spec(), consent="always", rate_limit="1/60s", timeout_s=5, destructive=True, max_concurrency=3)
    entry = catalog.view(ToolContext()).tools()[0]
    assert (entry.spec.consent, entry.spec.rate_limit) == ("always", RateLimit(max_calls=1, window_s=60.0))
    assert (entry.spec.timeout_s, entry.spec.max_concurrency) == (5, 3)
    assert entry.spec.definition()["annotations"] == {"destructiveHint": True}
    result = await catalog.view(ToolContext()).call("review")
    assert result.error is not None
    assert result.error.kind == "consent_required"


async def test_a_guard_said_by_the_built_tool_holds_too_and_the_smaller_limit_wins():
    class Review(Tool, register=False, consent="always", timeout_s=9, max_result_bytes=10):
        def perform(self) -> str:
            return "x"

    entry = built(Review, timeout_s=5, max_result_bytes=100).view(ToolContext()).tools()[0]
    assert (entry.spec.consent, entry.spec.timeout_s, entry.spec.max_result_bytes) == ("always", 5, 10)


@pytest.mark.parametrize(
    ("at_builder", "at_tool"),
    [
        ({"consent": "destructive"}, {"consent": "always"}),
        ({"rate_limit": "1/1s"}, {"rate_limit": RateLimit(max_calls=9, window_s=1.0)}),
        ({}, {"available": False}),
        ({}, {"factory": "x"}),
        ({}, {"internal_only": True}),
        ({}, {"full_names": ["x"]}),
    ],
)
def test_a_built_tool_that_contradicts_its_declaration_is_hidden(at_builder: dict[str, Any], at_tool: dict[str, Any]):
    view = built(spec(**at_tool), **at_builder).view(ToolContext())
    assert view.tools() == ()
    decision = view.why("review")
    assert decision.code == "builder"
    assert "say it in one place, at the builder (tests.test_builders:" in decision.reason


def test_hints_words_and_meta_are_lent_where_the_tool_says_nothing():
    lent = {"title": "Review", "description": "Review it.", "read_only": True, "meta": {"team": "x"}}
    bare = built(spec(), **lent).view(ToolContext()).export("mcp")
    assert bare == [
        {
            "name": "review",
            "title": "Review",
            "description": "Review it.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"title": "Review", "readOnlyHint": True},
            "_meta": {"team": "x"},
        }
    ]
    own = built(spec(title="Mine", description="My words.", meta={"team": "y"}), **lent).view(ToolContext())
    assert [own.export("mcp")[0][key] for key in ("title", "description", "_meta")] == [
        "Mine",
        "My words.",
        {"team": "y"},
    ]


# ---------------------------------------------------------------- declaration


@pytest.mark.parametrize(
    ("names", "said", "text"),
    [
        ("review", {"output": {"type": "object"}}, "a builder cannot have output="),
        ("review", {"inline": True}, "a builder cannot have inline="),
        ("review", {"name": "other"}, "a builder cannot have name="),
        ([], {}, "a builder needs the names of what it builds"),
        ("re view", {}, "Tool name 're view'"),
        ("review", {"avialable": False}, "'available'"),
    ],
)
def test_a_builder_that_cannot_be_is_refused_with_its_place(names: Any, said: dict[str, Any], text: str):
    with pytest.raises(DefinitionError) as refused:
        Catalog().builder(names, **said)(lambda ctx: None)
    assert text in str(refused.value)


def test_each_name_of_several_has_its_own_words_before_anything_is_built():
    catalog = Catalog()
    catalog.builder(["one", "two"], description={"one": "First."})(lambda ctx: pytest.fail("built"))
    assert [(entry.spec.name, entry.spec.description) for entry in catalog.snapshot().entries] == [
        ("one", "First."),
        ("two", ""),
    ]


def test_names_that_cannot_be_told_leave_their_tools_out_and_the_others_in(caplog: pytest.LogCaptureFixture):
    catalog = built(spec())

    @catalog.builder(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    def _(ctx: ToolContext) -> list[ToolEntry]:
        return []

    with caplog.at_level(logging.WARNING, logger="pegboard"):
        assert catalog.view(ToolContext()).names() == ["review"]
    assert "are not known: its tools are left out" in caplog.text


@pytest.mark.parametrize("made", [None, 3, Tool, "review", [spec(), 3]])
def test_what_is_no_tool_hides_the_name(made: object):
    view = built(made).view(ToolContext())
    assert view.tools() == ()
    assert view.why("review").code == "builder"


def test_a_built_tool_of_another_name_is_an_error_also_when_it_is_alone():
    def other() -> None: ...

    for made in (other, spec("other"), [spec(), spec("other")]):
        view = built(made).view(ToolContext())
        assert view.tools() == ()
        assert view.why("review").code == "builder"


# ---------------------------------------------------------------- factories


async def test_an_entry_with_a_factory_exists_only_where_the_context_supplies_it():
    catalog = Catalog()

    @catalog.builder("review", groups="triggers", factory="make_review")
    def _(ctx: ToolContext) -> object:
        return ctx.factory("make_review")(ctx)

    def make_review(ctx: ToolContext) -> object:
        def review(url: str) -> str:
            return f"{ctx.user_id} reviews {url}"

        return review

    without = catalog.view(ToolContext())
    assert (without.names(), without.tools(), without.why("review").code) == ([], (), "factory")
    fix = without.why("review").fix
    assert fix is not None
    assert fix.subject == "make_review"
    given = catalog.view(ToolContext(user_id="ann", factories={"make_review": make_review}), include=["triggers"])
    assert given.names() == ["review"]
    assert (await given.call("review", {"url": "x"})).text == "ann reviews x"


# ---------------------------------------------------------------- per caller


async def test_an_extended_copy_is_one_callers_and_is_judged_by_its_own_schema():
    base = ToolSpec(name="review", input_schema={"type": "object", "properties": {"a": {"type": "string"}}})
    catalog = Catalog()

    @catalog.builder("review")
    def _(ctx: ToolContext) -> ToolEntry:
        if ctx.space_id is None:
            return base.bind(echo)
        return base.extended(extra_properties={"ref": {"type": "integer"}}, extra_required=["ref"]).bind(echo)

    wide, narrow = catalog.view(ToolContext(space_id="s")), catalog.view(ToolContext())
    assert wide.schema("review") == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "ref": {"type": "integer"}},
        "required": ["ref"],
    }
    assert narrow.schema("review") == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert (await wide.call("review", {"ref": 1})).structured == {"ref": 1}
    for view, args in ((wide, {}), (narrow, {"ref": 1})):
        result = await view.call("review", args)
        assert result.error is not None
        assert result.error.kind == "invalid_arguments"
    assert base.input_schema == {"type": "object", "properties": {"a": {"type": "string"}}}


def test_a_build_is_remembered_in_one_context_and_made_anew_in_the_next():
    ran: list[str | None] = []
    catalog = Catalog()

    @catalog.builder(["one", "two"])
    def _(ctx: ToolContext) -> list[ToolEntry]:
        ran.append(ctx.user_id)
        return [spec("one"), spec("two")]

    ann = ToolContext(user_id="ann")
    for view in (catalog.view(ann), catalog.view(ann)):
        assert [tool.spec.name for tool in view.tools()] == ["one", "two"]
    catalog.view(ToolContext(user_id="bob")).tools()
    catalog.view(ann.child()).tools()
    assert ran == ["ann", "bob", "ann"]
