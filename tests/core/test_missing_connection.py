"""A tool whose caller has not connected their account: visible, not callable, with what to do."""

from __future__ import annotations

import asyncio

import pytest

from pegboard import AsyncPredicateError, Catalog, Profile, ToolContext
from pegboard.model.caller import Caller
from pegboard.model.decision import Fix
from tests.accounts import Accounts


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.add_source(Accounts())
    return catalog


async def test_a_tool_without_a_connection_is_visible_and_not_callable(catalog: Catalog) -> None:
    view = catalog.view(ToolContext(user_id="bob"))
    assert view.names() == ["read"]
    decision = await view.awhy("read")
    assert (decision.visible, decision.callable, decision.code) == (True, False, "visible")
    assert decision.blocked is not None
    assert (decision.blocked.kind, decision.blocked.reason) == (
        "connection_required", "'bob' has no account at 'mail'",
    )  # fmt: skip
    assert decision.fix == Fix("connection", "mail", "connect mail")
    assert str(decision) == (
        "visible, but refused (connection_required): 'bob' has no account at 'mail'. Fix: connect mail."
    )
    assert view.why("read") == decision


def test_the_synchronous_why_needs_the_answer_of_an_awaited_view(catalog: Catalog) -> None:
    with pytest.raises(AsyncPredicateError, match="connection to mail"):
        catalog.view(ToolContext(user_id="bob")).why("read")


async def test_with_a_connection_it_is_callable(catalog: Catalog) -> None:
    decision = await catalog.view(ToolContext(user_id="ann")).awhy("read")
    assert (decision.callable, decision.blocked, decision.fix) == (True, None, None)


async def test_a_store_that_does_not_answer_is_what_a_call_would_meet(catalog: Catalog) -> None:
    source = catalog.registry.sources["mail"]
    assert isinstance(source, Accounts)
    source.is_away = True
    decision = await catalog.view(ToolContext(user_id="ann")).awhy("read")
    assert decision.blocked is not None
    assert (decision.blocked.kind, decision.fix) == ("storage_unavailable", None)
    assert str(decision) == "visible, but refused (storage_unavailable): The store of connections does not answer."


HIDING = Profile(name="quiet", hide_unconnected=True)


async def test_a_profile_can_hide_tools_without_a_connection_and_why_says_so(catalog: Catalog) -> None:
    catalog.profile(HIDING)
    for user, names in (("ann", ["read"]), ("bob", [])):
        view = await catalog.aview(ToolContext(user_id=user), profile="quiet")
        assert view.names() == names
        assert [entry.wire_name for entry in view.tools()] == names
        assert ("read" in view) is bool(names)
    view = catalog.view(ToolContext(user_id="bob"), profile="quiet")
    decision = await view.awhy("read")
    assert (decision.code, decision.fix, decision.next) == (
        "connection", Fix("connection", "mail", "connect mail"), "visible",
    )  # fmt: skip
    assert "'bob' has no account at 'mail'" in decision.reason
    assert "profile 'quiet' hides tools without a connected account" in decision.reason
    assert view.why("read") == decision
    texts: list[str] = []
    for name in ("read", "nothing"):
        refused = await view.call(name, {})
        assert refused.error is not None
        assert refused.error.kind == "not_found"
        texts.append(refused.error.message.replace(name, "…"))
    assert texts[0] == texts[1]
    assert (await catalog.view(ToolContext(user_id="ann"), profile="quiet").call("read", {})).text == "a mail"
    assert await view.acodes() == {"read": "connection"}


async def test_a_hiding_profile_hides_tools_while_the_store_does_not_answer(catalog: Catalog) -> None:
    catalog.profile(HIDING)
    source = catalog.registry.sources["mail"]
    assert isinstance(source, Accounts)
    source.is_away = True
    view = await catalog.aview(ToolContext(user_id="ann"), profile="quiet")
    assert view.names() == []
    decision = view.why("read")
    assert (decision.code, decision.fix) == ("connection", Fix("connection", "mail", "try again later"))
    assert decision.reason.startswith("The store of connections does not answer; ")
    assert (await catalog.aview(ToolContext(user_id="ann"))).names() == ["read"]


async def test_a_store_that_does_not_answer_in_time_hides_and_is_no_missing_account(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_caller: Caller) -> str | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr("pegboard.core.judge.CONNECTION_ASKED_S", 0.01)
    monkeypatch.setattr(catalog.registry.sources["mail"], "missing", never)
    view = await catalog.aview(ToolContext(user_id="ann"))
    decision = view.why("read")
    assert decision.blocked is not None
    assert decision.blocked.kind == "storage_unavailable"
    assert view.connects_first(view["read"]) is None


async def test_a_profile_that_stops_hiding_shows_the_tools_in_the_same_view(catalog: Catalog) -> None:
    catalog.profile(HIDING)
    view = await catalog.aview(ToolContext(user_id="bob"), profile="quiet")
    catalog.registry.add_profile(Profile(name="quiet"))
    assert view.names() == []
    assert view.renewed().names() == ["read"]
