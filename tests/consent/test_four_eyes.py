"""Four eyes: two people other than the caller approve a call; and calls that run with the arguments of an approver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pegboard import Catalog, ToolContext
from pegboard.consent.grant_scope import grant_for
from pegboard.consent.postgres_store import PostgresConsents
from pegboard.consent.sql_records import ConsentStateError, SqlConsents
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.model.record import replace
from pegboard.tasks.tasks import IN_MEMORY, Tasks
from tests.consent.test_inbox import ANN, Open, Shop, kind, question_of
from tests.timing import PATIENCE_S


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """What opens the store of this test, as each process does."""
    if request.param == "sqlite":
        yield lambda **options: SqliteConsents(tmp_path / "consents.db", **options)
        return
    url = request.getfixturevalue("postgres_url")
    yield lambda **options: PostgresConsents(url, **options)
    with psycopg.connect(url) as connection:
        connection.execute("drop table if exists consents, used_answers")


async def approve(people: SqlConsents, consent_id: str, user: str, **options: Any) -> str:
    """Let a user approve; returns how many have."""
    return (await people.decide(consent_id, is_yes=True, decided_by=f"key:{user}", approver=user, **options)).progress


# ---------------------------------------------------------------- two people


async def test_a_call_passes_once_when_two_people_other_than_the_caller_have_approved(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    asked = question_of(await shop.pay())
    assert await approve(people, asked, "bob") == "1 of 2"
    refused = await shop.pay()
    assert question_of(refused) == asked
    assert refused.error is not None
    assert "two people other than the caller must agree first" in refused.error.message
    assert "(1 of 2 have agreed)" in refused.error.message
    assert await approve(people, asked, "eve") == "2 of 2"
    assert [kind(await shop.pay()), kind(await shop.pay())] == ["ok", "consent_required"]
    assert shop.paid == ["bob 1"]


async def test_one_person_counts_once_and_the_caller_never(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    asked = question_of(await shop.pay())
    await approve(people, asked, "bob")
    for user, why in (("bob", "1 of 2"), ("ann", "you are the caller"), ("", "names no user")):
        with pytest.raises(ConsentStateError, match=why):
            await approve(people, asked, user)
    assert (await shop.pay()).is_error
    assert shop.paid == []


async def test_one_no_is_enough(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    asked = question_of(await shop.pay())
    await approve(people, asked, "bob")
    await people.decide(asked, is_yes=False, decided_by="key:eve")
    assert kind(await shop.pay()) == "consent_declined"


async def test_two_people_who_approve_at_the_same_time_count_as_two(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    asked = question_of(await shop.pay())
    told = await asyncio.gather(approve(people, asked, "bob"), approve(stores(), asked, "eve"))
    assert sorted(told) == ["1 of 2", "2 of 2"]
    assert kind(await shop.pay()) == "ok"


async def test_neither_the_host_nor_the_client_of_the_caller_can_approve(stores: Open) -> None:
    shop, asked = Shop(stores(), four_eyes=True), list[str]()

    async def approve_all(request: Any) -> bool:
        asked.append(request.tool)
        return True

    ctx = ToolContext(user_id="ann", space_id="s1", session_id="one", budget=None, approve=approve_all)
    assert kind(await shop.pay(ctx)) == "consent_required"
    assert (asked, shop.paid) == ([], [])


async def test_no_grant_replaces_two_people(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    question_of(await shop.pay())
    [asked] = await people.listed()
    with pytest.raises(ValueError, match="one person cannot allow several calls"):
        await people.grant(
            grant_for(asked, calls=3, lasts_s=60.0, any_other=True), decided_by="key:bob", question_id=asked.id
        )
    # A grant without a question is of one person, too.
    await people.grant(shop.grant(3), decided_by="cli:bob")
    assert kind(await shop.pay()) == "consent_required"


async def test_an_approval_of_one_person_does_not_count_once_the_tool_needs_two(stores: Open) -> None:
    before, people = Shop(stores()), stores()
    await approve(people, question_of(await before.pay()), "bob")
    assert kind(await Shop(stores(), four_eyes=True).pay()) == "consent_required"


async def test_why_says_how_many_have_approved(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    view = shop.catalog.view(ANN)

    async def reason() -> str:
        blocked = (await view.awhy("pay")).blocked
        return "" if blocked is None else blocked.reason

    assert "two people other than the caller must agree first ('pay' needs approval for every call)" in await reason()
    blocked = view.why("pay").blocked
    assert blocked is not None
    assert "two people other than the caller must agree first" in blocked.reason
    asked = question_of(await shop.pay())
    assert "0 of 2 have" in await reason()
    await approve(people, asked, "bob")
    assert "agree first, 1 of 2 have" in await reason()
    await approve(people, asked, "eve")
    assert await reason() == ""


async def test_an_unknown_caller_and_a_catalog_without_an_inbox_are_told_what_is_missing(stores: Open) -> None:
    nobody = replace(ANN, caller=replace(ANN.caller, user_id=None))
    with_inbox, without = Shop(stores(), four_eyes=True), Shop(four_eyes=True)
    refused = {"names no user": await with_inbox.pay(nobody), "this catalog has none": await without.pay()}
    for said, result in refused.items():
        assert result.error is not None
        assert result.error.kind == "consent_required"
        assert said in result.error.message
    for shop, ctx in ((with_inbox, nobody), (without, ANN)):
        blocked = (await shop.catalog.view(ctx).awhy("pay")).blocked
        assert blocked is not None
        assert "nobody can be asked here" in blocked.reason


async def test_four_eyes_alone_asks_for_every_call() -> None:
    catalog = Catalog("plain")
    catalog.tool(name="wipe", four_eyes=True)(lambda: "wiped")
    assert kind(await catalog.view(ANN).call("wipe", {})) == "consent_required"


# ---------------------------------------------------------------- edited arguments


async def test_a_call_runs_with_the_arguments_of_the_approver_and_its_caller_is_told(stores: Open) -> None:
    shop, people = Shop(stores()), stores()
    asked = question_of(await shop.pay(to="bob", amount=500))
    decided = await people.decide(asked, is_yes=True, decided_by="key:eve", edited={"to": "bob", "amount": 5})
    assert (decided.edited, decided.edited_by) == ({"to": "bob", "amount": 5}, "key:eve")
    result = await shop.pay(to="bob", amount=500)
    assert shop.paid == ["bob 5"]
    assert result.text == f"paid\n{result.meta['edited']}"
    assert result.meta["edited"] == (
        'A person changed the arguments before they approved the call. It ran with {"amount":5,"to":"bob"}'
    )
    [*_, call] = shop.observer.records
    assert call.arguments == {"to": "bob", "amount": 5}
    # The approval was for one call, and for no call that its caller makes with these arguments.
    assert [kind(await shop.pay(to="bob", amount=one)) for one in (500, 5)] == ["consent_required"] * 2


async def test_edited_arguments_are_judged_like_those_of_a_call(stores: Open) -> None:
    shop, people = Shop(stores()), stores()
    asked = question_of(await shop.pay())
    await people.decide(asked, is_yes=True, decided_by="key:eve", edited={"to": "bob", "amount": "much"})
    assert kind(await shop.pay()) == "invalid_arguments"
    assert shop.paid == []


async def test_an_edit_drops_the_approval_of_the_arguments_before_it(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    asked = question_of(await shop.pay(to="bob", amount=500))
    assert await approve(people, asked, "bob") == "1 of 2"
    less = {"to": "bob", "amount": 5}
    assert await approve(people, asked, "eve", edited=less) == "1 of 2"
    # The same arguments from the other person are no new edit.
    assert await approve(people, asked, "bob", edited=less) == "2 of 2"
    assert kind(await shop.pay(to="bob", amount=500)) == "ok"
    assert shop.paid == ["bob 5"]


async def test_an_approval_of_unnamed_arguments_does_not_count_for_those_that_another_edited(stores: Open) -> None:
    shop, people = Shop(stores(), four_eyes=True), stores()
    asked = question_of(await shop.pay(to="bob", amount=500))
    more = {"to": "eve", "amount": 900}
    assert await approve(people, asked, "eve", edited=more) == "1 of 2"
    with pytest.raises(ConsentStateError, match="'eve' has edited the arguments"):
        await approve(people, asked, "bob")
    assert kind(await shop.pay(to="bob", amount=500)) == "consent_required"
    assert shop.paid == []


async def test_edited_arguments_that_are_too_long_to_store_are_refused(stores: Open) -> None:
    shop, people = Shop(stores()), stores()
    asked = question_of(await shop.pay())
    with pytest.raises(ValueError, match="at most 65,536 bytes"):
        await people.decide(asked, is_yes=True, decided_by="key:eve", edited={"to": "x" * 70_000})


async def test_a_task_runs_with_the_arguments_of_the_approver(stores: Open) -> None:
    shop, people = Shop(stores(), task="optional"), stores()
    tasks = Tasks(IN_MEMORY)
    catalog = Catalog("shop", consent_store=stores(), tasks=tasks)
    paid = list[str]()

    @catalog.tool(consent="always", task="optional")
    async def pay(to: str, amount: int = 1) -> str:
        """Pay somebody."""
        paid.append(f"{to} {amount}")
        return "paid"

    del shop
    async with catalog:
        view = catalog.view(ANN)
        asked = question_of(await view.call("pay", {"to": "bob"}, as_task=True))
        await people.decide(asked, is_yes=True, decided_by="key:eve", edited={"to": "bob", "amount": 5})
        begun = await view.call("pay", {"to": "bob"}, as_task=True)
        assert begun.task_id is not None
        await asyncio.wait_for(catalog.tasks.result(begun.task_id, ANN), PATIENCE_S)
    assert paid == ["bob 5"]
