"""Lifecycle: former names, ends and successors, as callers meet them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pegboard import Catalog, Policy, Profile, ToolContext, ToolSpec, Verdict
from pegboard.model.error import DefinitionError
from pegboard.model.record import replace
from tests.core.parts import FakeSource, foreign

END = "2027-01-01"


def at(day: str) -> Catalog:
    """Return a catalog on whose clock it is noon of a day."""
    catalog = Catalog()
    catalog.executor.swap(
        replace(
            catalog.executor.ports,
            wall_clock=lambda: datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC).timestamp(),
        )
    )
    return catalog


def mail(catalog: Catalog, **options: Any) -> None:
    @catalog.tool(**options)
    def send_mail(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"


async def test_a_tool_with_an_end_runs_until_then_and_says_so() -> None:
    catalog = at("2026-12-31")
    mail(catalog, deprecated=END, replaced_by="send_message")
    view = catalog.view(ToolContext())
    assert view.export("mcp")[0]["description"] == (
        "Send a mail.\n\nDeprecated: it ends on 2027-01-01; use 'send_message' instead."
    )
    result = await view.call("send_mail", {"to": "ann"})
    assert result.text == "sent to ann"
    assert result.meta == {"deprecated": "Deprecated: it ends on 2027-01-01; use 'send_message' instead."}


@pytest.mark.parametrize("day", ["2027-01-01", "2031-05-05"])
async def test_after_its_end_the_name_answers_with_the_replacement(day: str) -> None:
    catalog = at(day)
    mail(catalog, deprecated=END, replaced_by="send_message")
    catalog.register(ToolSpec(name="send_message"), lambda ctx, args: "sent")
    result = await catalog.view(ToolContext()).call("send_mail", {"to": "ann"})
    assert result.error is not None
    assert result.error.kind == "not_found"
    assert result.error.message == "'send_mail' ended on 2027-01-01 and was not run. Call 'send_message' instead."


async def test_a_successor_without_an_end_is_a_note() -> None:
    catalog = at("2031-05-05")
    mail(catalog, replaced_by="send_message")
    result = await catalog.view(ToolContext()).call("send_mail", {"to": "ann"})
    assert result.text == "sent to ann"
    assert result.meta["deprecated"] == "Deprecated: use 'send_message' instead."


@pytest.mark.parametrize("rule", ["mail", "MAI?", "main.mail", "main__mail"])
async def test_rules_and_hooks_for_a_former_name_go_on_meaning_the_tool(rule: str) -> None:
    catalog = at("2026-01-01")
    mail(catalog, renamed_from=["mail"])
    catalog.register(ToolSpec(name="other"), lambda ctx, args: "sent")
    assert catalog.view(ToolContext(policy=Policy(allow=(rule,)))).names() == ["send_mail"]
    denied = catalog.view(ToolContext(policy=Policy(deny=(rule,))))
    assert denied.names() == ["other"]
    assert denied.why("send_mail").reason == f"denied by {[rule]}"
    for name in ("send_mail", "mail"):
        result = await denied.call(name, {"to": "ann"})
        assert result.error is not None
        assert result.error.kind == "not_found"
    assert catalog.policy_faults(Policy(deny=(rule,))) == ([], [])
    catalog.before(rule)(lambda call: Verdict.deny("No mails today."))
    assert (await catalog.view(ToolContext()).call("send_mail", {"to": "ann"})).text == "No mails today."


async def test_a_former_name_works_in_a_batch_with_a_note() -> None:
    catalog = at("2026-01-01")
    mail(catalog, renamed_from=["mail"], deprecated=END)
    catalog.profile(Profile(name="all", exposure="search"))
    view = catalog.exposed(catalog.view(ToolContext(), profile="all"))
    for call in ({"agent": "main", "tool": "mail"}, {"tool": "mail"}):
        answer = (await view.call("useTools", {"calls": [{**call, "params": {"to": "ann"}}]})).structured
        item = answer["data"]["results"][0]
        assert (item["tool"], item["data"]) == ("send_mail", "sent to ann")
        assert item["meta"]["renamed"] == "'mail' is now called 'send_mail'"
        assert item["meta"]["deprecated"].startswith("Deprecated: it ends on 2027-01-01;")
    shown = (await view.call("getTools", {"request": [{"agent": "main", "tools": ["mail"]}]})).structured
    assert shown["data"]["tools"][0]["tool"] == "send_mail"
    assert "Deprecated: it ends on 2027-01-01" in shown["data"]["tools"][0]["description"]


async def test_what_a_builder_makes_ends_too() -> None:
    catalog = at("2031-05-05")

    @catalog.builder("built", deprecated=END)
    def _(ctx: ToolContext) -> Any:
        return ToolSpec(name="built").bind(lambda ctx, args: "made")

    view = catalog.view(ToolContext())
    result = await view.call("built", {})
    assert result.error is not None
    assert result.error.message == "'built' ended on 2027-01-01 and was not run. Choose another tool."
    assert (view.tools(), view.names(), view.find("built")) == ((), [], None)


@pytest.mark.parametrize("is_bundle", [False, True])
async def test_an_end_that_only_the_builder_knows_hides_what_it_made(is_bundle: bool) -> None:
    catalog = at("2031-05-05")

    @catalog.builder("built", full_names=[] if is_bundle else None)
    def _(ctx: ToolContext) -> Any:
        return ToolSpec(name="built", deprecated=END).bind(lambda ctx, args: "made")

    view = catalog.view(ToolContext())
    assert (view.tools(), view.find("built"), view.why("built").visible) == ((), None, False)
    result = await view.call("built", {})
    assert result.error is not None
    assert result.error.kind == "not_found"


def ending(day: str, *, replaced_by: str | None = "send_message") -> Catalog:
    catalog = at(day)
    mail(catalog, deprecated=END, replaced_by=replaced_by)
    catalog.register(ToolSpec(name="send_message", description="Send a message.", groups=("new",)), lambda c, a: "sent")
    catalog.profile(Profile(name="all", exposure="search"))
    return catalog


async def test_a_tool_past_its_day_leaves_list_export_and_search() -> None:
    for day, is_there in (("2026-12-31", True), (END, False), ("2031-05-05", False)):
        catalog = ending(day)
        view = catalog.view(ToolContext(), profile="all")
        found = await catalog.search(view, "send mail")
        listed = (
            "send_mail" in view.names(),
            "send_mail" in [tool.wire_name for tool in view.tools()],
            "send_mail" in [tool["function"]["name"] for tool in view.export("openai_strict")],
            b'"send_mail"' in view.export_bytes("mcp"),
            "send_mail" in [one.entry.wire_name for one in found.tools],
            "send_mail" in view,
            view.why("send_mail").visible,
        )
        assert set(listed) == {is_there}, (day, listed)


async def test_why_of_an_ended_tool_says_when_and_what_to_call() -> None:
    decision = ending("2027-06-01").view(ToolContext()).why("send_mail")
    assert (decision.code, decision.reason.partition(" (")[0]) == ("available", "ended on 2027-01-01")
    assert decision.fix is not None
    assert decision.fix.text == "call 'send_message', or give it a later end"
    bare = ending("2027-06-01", replaced_by=None).view(ToolContext()).why("send_mail")
    assert bare.fix is not None
    assert bare.fix.text == "remove it, or give it a later end"


async def test_the_replacement_is_named_to_those_alone_who_may_use_it() -> None:
    catalog = ending("2027-06-01")
    ended = "'send_mail' ended on 2027-01-01 and was not run."
    for include, said in (
        (["core", "new"], f"{ended} Call 'send_message' instead."),
        (["core"], f"{ended} Choose another tool."),
    ):
        result = await catalog.view(ToolContext(), include=include).call("send_mail", {"to": "a"})
        assert result.error is not None
        assert (result.error.kind, result.error.message) == ("not_found", said)
    # Who never saw the tool hears what is said of a name that does not exist.
    hidden, unknown = [
        (await catalog.view(ToolContext(), include=["new"]).call(name, {})).text for name in ("send_mail", "no_mail")
    ]
    assert hidden.replace("send_mail", "no_mail").partition(".")[0] == unknown.partition(".")[0]
    assert "ended" not in hidden


async def test_a_line_of_ended_tools_leads_to_the_one_that_lives() -> None:
    catalog = at("2027-06-01")
    for name, following, end in (("a", "b", END), ("b", "main__c", END), ("c", None, None)):
        catalog.register(ToolSpec(name=name, replaced_by=following, deprecated=end), lambda ctx, args: "x")
    with pytest.raises(KeyError, match="Call 'c' instead"):
        catalog.view(ToolContext())["a"]
    catalog.unregister("c")
    with pytest.raises(KeyError, match="Choose another tool"):
        catalog.view(ToolContext())["a"]


async def test_it_is_said_once_however_often_it_is_declared_again() -> None:
    catalog = at("2026-01-01")
    mail(catalog, deprecated=END)
    entry = catalog.snapshot().find("send_mail")
    assert entry is not None
    catalog.register(entry, replace=True)
    again = catalog.snapshot().find("send_mail")
    assert again is not None
    assert again.spec.description.count("Deprecated:") == 1
    assert (await catalog.view(ToolContext()).call("send_mail", {"to": "ann"})).meta == {
        "deprecated": "Deprecated: it ends on 2027-01-01; no tool replaces it."
    }


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (
            [("a", {"replaced_by": "b"}), ("b", {"replaced_by": "a"})],
            "replaced_by leads back to itself: main.b → main.a → main.b",
        ),
        ([("a", {"replaced_by": "A"})], "replaced_by leads back to itself: main.a → main.a"),
        ([("a", {"renamed_from": ("a",)})], "renamed_from='a' is its own name"),
        (
            [("a", {"renamed_from": ("b",)}), ("b", {"renamed_from": ("a",)})],
            "renamed_from='a': 'main.a' was renamed from this one",
        ),
    ],
)
def test_circles_are_refused(tools: list[tuple[str, dict[str, Any]]], said: str) -> None:
    catalog = Catalog()
    *first, last = tools
    for name, options in first:
        catalog.register(ToolSpec(name=name, **options), lambda ctx, args: "x")
    with pytest.raises(DefinitionError) as refused:
        catalog.register(ToolSpec(name=last[0], **last[1]), lambda ctx, args: "x")
    assert said in str(refused.value)


def test_a_line_of_successors_is_fine() -> None:
    catalog = Catalog()
    for name, following in (("a", "b"), ("b", "c"), ("c", None)):
        catalog.register(ToolSpec(name=name, replaced_by=following), lambda ctx, args: "x")
    assert catalog.view(ToolContext()).names() == ["a", "b", "c"]


async def test_what_a_source_lists_ends_too() -> None:
    catalog = at("2031-05-05")
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log", deprecated=END, replaced_by="git__show")]))
    view = catalog.view(ToolContext())
    assert view.export("mcp") == []
    result = await view.call("git__log", {})
    assert result.error is not None
    assert result.error.message == "'git__log' ended on 2027-01-01 and was not run. Choose another tool."
