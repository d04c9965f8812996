"""The inbox: a question waits for a person, whose answer the same call finds. One suite, on both databases."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pegboard import Bounds, CallContext, Catalog, RateLimit, ToolContext, ToolResult, Verdict
from pegboard.consent import sql_records
from pegboard.consent.grant_scope import grant_for, grant_text, matching_of, parameters_of
from pegboard.consent.json_form import consent_json
from pegboard.consent.limits import CONSENT_GRANT_CALLS
from pegboard.consent.memory_answers import MemoryConsents
from pegboard.consent.postgres_store import PostgresConsents
from pegboard.consent.sql_records import CONSENT_OPEN_QUESTIONS, ConsentStateError, SqlConsents
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.model.caller import Caller
from pegboard.model.consent import Grant
from pegboard.model.error import DefinitionError
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.tasks.tasks import IN_MEMORY, Tasks
from tests import forking
from tests.core.parts import Clock
from tests.timing import PATIENCE_S

ANN = ToolContext(user_id="ann", space_id="s1", session_id="one", budget=None)
Open = Callable[..., SqlConsents]


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


class Observer:
    """Keeps the records of calls that are over."""

    times_stages = False

    def __init__(self) -> None:
        self.records: list[Any] = []

    def started(self, call: Any) -> None: ...

    def finished(self, call: Any) -> None:
        self.records.append(call)


class Shop:
    """A catalog with an inbox, what was paid, and the records of its calls."""

    def __init__(self, store: Any = None, **options: Any) -> None:
        self.catalog, self.paid, self.observer = Catalog("shop", consent_store=store), list[str](), Observer()
        self.catalog.executor.record(self.observer)

        @self.catalog.tool(consent="always", **options)
        async def pay(to: str, amount: int = 1) -> str:
            """Pay somebody."""
            self.paid.append(f"{to} {amount}")
            return "paid"

    async def pay(self, ctx: ToolContext = ANN, **arguments: Any) -> ToolResult:
        return await self.catalog.view(ctx).call("pay", arguments or {"to": "bob"})

    def grant(self, calls: int, where: dict[str, Any] | None = None, **changes: Any) -> Grant:
        entry = self.catalog.snapshot().find("pay")
        assert entry is not None
        given = {"user_id": "ann", "space_id": "s1", "lasts_s": 60.0, "any_other": True, **changes}
        return Grant(
            tool="main.pay", definition_hash=entry.fingerprint, calls=calls, matching=matching_of(where or {}),
            parameters=parameters_of(entry.spec.input_schema), **given,
        )  # fmt: skip


def kind(result: ToolResult) -> str:
    return "ok" if result.error is None else result.error.kind


def question_of(result: ToolResult) -> str:
    assert result.error is not None, result
    assert result.error.kind == "consent_required", result
    consent_id = result.error.details["consent_id"]
    assert isinstance(consent_id, str)
    return consent_id


# ---------------------------------------------------------------- one call


async def test_a_question_is_filed_once_decided_by_a_person_and_then_the_same_call_passes_once(stores: Open) -> None:
    shop, people = Shop(stores()), stores()
    asked = question_of(await shop.pay())
    assert question_of(await shop.pay()) == asked, "the same question is not filed twice"
    assert [one.question for one in await people.listed()] == [
        'Allow this call of \'main.pay\'? \'pay\' needs approval for every call. Arguments: {"to": "bob", "amount": 1}'
    ]
    agreed = await people.decide(asked, is_yes=True, decided_by="cli:ann")
    assert (agreed.state, agreed.decided_by, agreed.uses_left) == ("agreed", "cli:ann", 1)
    assert [kind(await shop.pay()) for _ in range(2)] == ["ok", "consent_required"]
    assert shop.paid == ["bob 1"]
    assert [(one.consent, one.consent_id) for one in shop.observer.records[:3]] == [
        ("nobody", asked), ("nobody", asked), ("yes", asked),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        replace(ANN, user_id="eve"),
        replace(ANN, space_id="s2"),
        replace(ANN, session_id="two"),
        replace(ANN, caller=replace(ANN.caller, credential="key:other")),
        replace(ANN, caller=replace(ANN.caller, address="10.0.0.0/24")),
        ToolContext(),
    ],
)
async def test_a_yes_serves_nobody_else(other: ToolContext, tmp_path: Path) -> None:
    store = SqliteConsents(tmp_path / "consents.db")
    shop = Shop(store)
    await store.decide(question_of(await shop.pay()), is_yes=True, decided_by="cli:ann")
    assert kind(await shop.pay(other)) == "consent_required"
    assert kind(await shop.pay()) == "ok"
    assert shop.paid == ["bob 1"]


async def test_one_changed_byte_of_arguments_or_definition_voids_a_yes(stores: Open) -> None:
    shop, changed, people = Shop(stores()), Shop(stores(), description="Pay somebody!"), stores()
    await people.decide(question_of(await shop.pay()), is_yes=True, decided_by="cli:ann")
    assert kind(await shop.pay(to="bob ")) == "consent_required"
    assert kind(await shop.pay(to="bob", amount=2)) == "consent_required"
    assert kind(await changed.pay()) == "consent_required"
    assert shop.paid == changed.paid == []
    assert kind(await shop.pay(to="bob", amount=1)) == "ok", "defaults are part of the call, spelled out or not"


async def test_an_answer_comes_too_late_and_a_yes_ends(stores: Open) -> None:
    clock = Clock()
    store = stores(wall_clock=clock)
    shop = Shop(store)
    late = question_of(await shop.pay())
    clock.now += 86_401
    with pytest.raises(ConsentStateError, match="has expired"):
        await store.decide(late, is_yes=True, decided_by="cli:ann")
    asked = question_of(await shop.pay())
    assert asked != late
    await store.decide(asked, is_yes=True, decided_by="cli:ann", good_s=60)
    clock.now += 61
    assert kind(await shop.pay()) == "consent_required"
    assert shop.paid == []
    clock.now += 40 * 86_400
    await shop.pay(to="carol")
    assert await store.shown(asked) is None, "old records are swept"


async def test_what_was_seen_to_expire_stays_expired_when_the_clock_is_turned_back(stores: Open) -> None:
    clock = Clock()
    store = stores(wall_clock=clock)
    shop = Shop(store)
    late = question_of(await shop.pay(to="dave"))
    yes = question_of(await shop.pay())
    await store.decide(yes, is_yes=True, decided_by="cli:ann", good_s=60)
    await store.grant(shop.grant(2, {"to": "carol"}), decided_by="cli:ann")
    listed = await store.grant(shop.grant(2, {"to": "erin"}, credential="key:laptop"), decided_by="cli:ann")
    clock.now += 61
    assert [kind(await shop.pay(to=to)) for to in ("bob", "carol")] == ["consent_required"] * 2
    assert listed.id not in [one.id for one in await store.listed(is_open=False)]
    clock.now += 86_401
    with pytest.raises(ConsentStateError, match="has expired"):
        await store.decide(late, is_yes=True, decided_by="cli:ann")
    clock.now -= 86_401 + 61
    await store.give_back(yes)
    by_key = replace(ANN, caller=replace(ANN.caller, credential="key:laptop"))
    assert [kind(await shop.pay(to=to)) for to in ("bob", "carol")] == ["consent_required"] * 2
    assert kind(await shop.pay(by_key, to="erin")) == "consent_required"
    with pytest.raises(ConsentStateError):
        await store.decide(late, is_yes=True, decided_by="cli:ann")
    assert shop.paid == []


async def test_the_clock_of_the_postgresql_server_decides(postgres_url: str) -> None:
    store = PostgresConsents(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        name = sql.Identifier(server.info.dbname)
        try:
            asked = question_of(await Shop(store).pay())
            await store.decide(asked, is_yes=True, decided_by="cli:ann")
            # To later connections the server's clock is a day ahead; the clock of this process is not.
            server.execute("create schema later")
            server.execute(
                "create function later.clock_timestamp() returns timestamptz language sql as "
                "$$ select pg_catalog.clock_timestamp() + interval '1 day' $$"
            )
            server.execute(sql.SQL("alter database {} set search_path = public, later, pg_catalog").format(name))
            assert kind(await Shop(PostgresConsents(postgres_url)).pay()) == "consent_required"
        finally:
            server.execute(sql.SQL("alter database {} reset search_path").format(name))
            server.execute("drop schema if exists later cascade")
            server.execute("drop table if exists consents, used_answers")


async def test_a_no_is_remembered_in_its_session_until_a_person_takes_it_back(stores: Open) -> None:
    clock = Clock()
    store = stores(wall_clock=clock)
    shop = Shop(store)
    asked = question_of(await shop.pay())
    await store.decide(asked, is_yes=False, decided_by="cli:ann")
    assert [kind(await shop.pay()) for _ in range(2)] == ["consent_declined"] * 2
    assert shop.observer.records[-1].consent_id == asked
    assert kind(await shop.pay(replace(ANN, session_id="two"))) == "consent_required"
    assert kind(await shop.pay(to="carol")) == "consent_required"
    assert (await store.forget(asked)).state == "declined"
    again = question_of(await shop.pay())
    with pytest.raises(ValueError, match="at most 500 characters, not 501"):
        await store.decide(again, is_yes=False, decided_by="cli:ann", reason="x" * 501)
    await store.decide(again, is_yes=False, decided_by="cli:ann", reason=" Bob left. ")
    declined = await shop.pay()
    assert 'a person declined it and said: "Bob left.". Do not' in declined.text
    reasons = {consent_json(one)["declineReason"] for one in await store.listed(is_open=False)}
    assert reasons == {None, "Bob left."}
    clock.now += 86_401
    assert kind(await shop.pay()) == "consent_required"
    assert shop.paid == []


async def test_a_no_is_remembered_whichever_way_it_came_also_without_a_store(tmp_path: Path) -> None:
    asked: list[Any] = []
    ctx = replace(ANN, approve=asked.append)
    saying_no = replace(ANN, approve=lambda request: asked.append(request) is not None)
    for store in (None, SqliteConsents(tmp_path / "consents.db")):
        shop = Shop(store)
        asked.clear()
        assert kind(await shop.pay(ctx)) == "consent_required", "None passes on to the next way"
        assert [kind(await shop.pay(saying_no)) for _ in range(3)] == ["consent_declined"] * 3
        assert len(asked) == 2, "the person was asked once, and said no once"
        assert kind(await shop.pay(replace(saying_no, session_id="two"))) == "consent_declined"
        assert len(asked) == 3, "another session asks for itself"


async def test_a_no_to_a_caller_of_whom_nothing_is_known_holds_for_that_request_alone() -> None:
    shop, answers = Shop(), [False, True]
    ctx = ToolContext(approve=lambda request: answers.pop(0))
    assert [kind(await shop.pay(ctx)) for _ in range(2)] == ["consent_declined"] * 2
    assert kind(await shop.pay(ToolContext(approve=ctx.approve))) == "ok"


async def test_a_decision_is_made_once_and_unknown_ids_are_refused(stores: Open) -> None:
    store = stores()
    shop = Shop(store)
    asked = question_of(await shop.pay())
    await store.decide(asked, is_yes=True, decided_by="cli:ann")
    for attempt in (
        store.decide(asked, is_yes=False, decided_by="cli:eve"),
        store.decide("f" * 32, is_yes=True, decided_by="cli:eve"),
        store.grant(shop.grant(1), decided_by="cli:eve", question_id=asked),
        store.forget("f" * 32),
    ):
        with pytest.raises(ConsentStateError):
            await attempt
    assert await store.shown("f" * 32) is None
    for good_s in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(ValueError, match="at most"):
            await store.decide(asked, is_yes=True, decided_by="cli:ann", good_s=good_s)


@pytest.mark.parametrize("is_granted", [False, True])
async def test_of_eight_people_who_decide_at_once_on_two_workers_one_does(stores: Open, is_granted: bool) -> None:
    workers = [stores(), stores()]
    shop = Shop(workers[0])
    asked = question_of(await shop.pay())

    async def decided(number: int) -> str:
        store, who = workers[number % 2], f"cli:{number}"
        try:
            if is_granted and number % 4 == 0:
                return (await store.grant(shop.grant(1), decided_by=who, question_id=asked)).state
            return (await store.decide(asked, is_yes=number % 4 < 2, decided_by=who)).state
        except ConsentStateError:
            return ""

    [state] = filter(None, await asyncio.gather(*map(decided, range(8))))
    # Whatever it was counts, once, at either worker.
    again = [kind(await Shop(worker).pay()) for worker in workers]
    assert again == (["ok", "consent_required"] if state == "agreed" else ["consent_declined"] * 2)


# ---------------------------------------------------------------- given back


async def test_a_yes_that_a_later_guard_made_useless_is_not_spent(stores: Open) -> None:
    store = stores()
    shop = Shop(store, rate_limit=RateLimit(max_calls=1, window_s=60.0))
    refusing = list[bool]()

    @shop.catalog.before("pay")
    def closed(call: Any) -> Verdict | None:
        return Verdict.deny("closed") if refusing and refusing.pop() else None

    asked = question_of(await shop.pay())
    await store.decide(asked, is_yes=True, decided_by="cli:ann")
    refusing[:] = [True, False]
    assert kind(await shop.pay()) == "hook_refused", "the second time that it is asked, after the yes"
    found = await store.shown(asked)
    assert found is not None
    assert found.uses_left == 1
    assert [kind(await shop.pay()) for _ in range(2)] == ["ok", "rate_limited"]
    assert (await store.listed()) == [], "nobody is asked about what would not be run"


async def test_a_yes_of_the_host_that_served_no_call_is_there_for_the_next_and_only_one(tmp_path: Path) -> None:
    for store in (None, SqliteConsents(tmp_path / "consents.db")):
        shop, answers, refusing = Shop(store), [True], [True, False]

        @shop.catalog.before("pay")
        def closed(call: Any, refusing: list[bool] = refusing) -> Verdict | None:
            return Verdict.deny("closed") if refusing and refusing.pop() else None

        ctx = replace(ANN, approve=lambda request, answers=answers: answers.pop() if answers else None)
        kinds = [kind(await shop.pay(ctx)) for _ in range(3)]
        assert kinds == ["hook_refused", "ok", "consent_required"]
        assert shop.paid == ["bob 1"]


async def test_a_yes_that_ended_in_memory_is_no_yes() -> None:
    shop, answers, refusing, clock = Shop(), [True, False], [True, False], Clock()
    ports = shop.catalog.executor.ports
    shop.catalog.executor.swap(replace(ports, wall_clock=clock, consents=MemoryConsents(clock)))

    @shop.catalog.before("pay")
    def closed(call: Any) -> Verdict | None:
        return Verdict.deny("closed") if refusing and refusing.pop() else None

    ctx = replace(ANN, approve=lambda request: answers.pop(0))
    assert kind(await shop.pay(ctx)) == "hook_refused"
    clock.now += 3_601
    assert kind(await shop.pay(ctx)) == "consent_declined"
    clock.now += 86_401
    answers.append(True)
    assert kind(await shop.pay(ctx)) == "ok"


async def test_a_call_that_is_stopped_before_it_ran_gives_its_yes_back(tmp_path: Path) -> None:
    store = SqliteConsents(tmp_path / "consents.db")
    shop, reached = Shop(store), asyncio.Event()
    await store.decide(question_of(await shop.pay()), is_yes=True, decided_by="cli:ann")
    seen = list[int]()

    @shop.catalog.before("pay")
    async def slow(call: Any) -> None:
        seen.append(1)
        if len(seen) == 2:
            reached.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(shop.pay())
    await reached.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert kind(await shop.pay()) == "ok"
    assert shop.paid == ["bob 1"]


# ---------------------------------------------------------------- grants


async def test_a_grant_allows_so_many_calls_that_match_and_asks_nobody(stores: Open) -> None:
    clock = Clock()
    store = stores(wall_clock=clock)
    shop = Shop(store)
    grant = await store.grant(shop.grant(2, {"to": "bob"}), decided_by="cli:ann")
    assert kind(await shop.pay(to="carol")) == "consent_required"
    assert kind(await shop.pay(replace(ANN, user_id="eve"))) == "consent_required"
    assert kind(await shop.pay(replace(ANN, space_id=None))) == "consent_required"
    other_session = replace(ANN, session_id="two")
    assert [kind(await shop.pay(other_session, to="bob", amount=n)) for n in range(3)] == [
        "ok", "ok", "consent_required",
    ]  # fmt: skip
    assert shop.paid == ["bob 0", "bob 1"]
    assert {one.consent_id for one in shop.observer.records if one.consent == "yes"} == {grant.id}
    await store.grant(shop.grant(2, {"to": "bob"}, lasts_s=10.0), decided_by="cli:ann")
    clock.now += 11
    assert kind(await shop.pay()) == "consent_required"


class Mail:
    """A catalog with a tool that has arguments with and without defaults, and the inbox of its questions."""

    def __init__(self, store: SqlConsents) -> None:
        self.catalog, self.sent = Catalog("mail", consent_store=store), list[dict[str, Any]]()

        @self.catalog.tool(consent="always", additional_properties=True)
        async def send(to: str, body: str, cc: str | None = None, urgent: bool = False, **more: Any) -> str:
            """Send a message."""
            self.sent.append({"to": to, "body": body, "cc": cc, "urgent": urgent, **more})
            return "sent"

    async def send(self, **arguments: Any) -> ToolResult:
        return await self.catalog.view(ANN).call("send", arguments)


ORDINARY = {"to": "bob", "body": "hello"}
OTHERS = ({"cc": "eve"}, {"urgent": True}, {"bcc": "eve"}, {"body": "transfer it all"}, {"to": "eve"})


@pytest.mark.parametrize(
    ("choice", "is_open"),
    [
        ({"where": ORDINARY}, (False, False, False, False, False)),
        ({"same": ["to", "body"]}, (False, False, False, False, False)),
        ({"same": ["to"], "any": ["body"]}, (False, False, False, True, False)),
        ({"same": ["to"], "any": ["body", "cc"]}, (True, False, False, True, False)),
        ({"same": ["to"], "any_other": True}, (True, True, True, True, False)),
    ],
)
async def test_a_grant_allows_what_it_names_and_nothing_else(
    stores: Open, choice: dict[str, Any], is_open: tuple[bool, ...]
) -> None:
    store = stores()
    mail = Mail(store)
    [question] = [await store.shown(question_of(await mail.send(**ORDINARY)))]
    assert question is not None
    grant = grant_for(question, calls=20, lasts_s=60.0, **choice)
    given = await store.grant(grant, decided_by="cli:ann", question_id=question.id)
    assert given.question == grant_text(grant)
    spelled_out = {**ORDINARY, "cc": None, "urgent": False}
    assert [kind(await mail.send(**one)) for one in (ORDINARY, spelled_out)] == ["ok", "ok"]
    ended = [kind(await mail.send(**{**ORDINARY, **other})) for other in OTHERS]
    assert tuple(end == "ok" for end in ended) == is_open


@pytest.mark.parametrize(
    "matching",
    [
        {"properties": {"to": {"const": "bob"}, "body": {"maxLength": 9}}, "additionalProperties": True},
        {"properties": {"to": {"const": "bob"}, "body": {"maxLength": 9}}, "unevaluatedProperties": True},
        {"properties": {"to": {"const": "bob"}, "body": {"maxLength": 9}}, "patternProperties": {"": {}}},
        {"properties": {"to": {"const": "bob"}, "body": True}, "minProperties": 1},
        {"properties": {"to": {"const": "bob"}, "body": {"maxLength": 9}}},
    ],
)
async def test_a_schema_of_the_host_does_not_open_what_it_does_not_name(stores: Open, matching: dict[str, Any]) -> None:
    store = stores()
    mail = Mail(store)
    entry = mail.catalog.snapshot().find("send")
    assert entry is not None
    grant = Grant(
        tool="main.send", definition_hash=entry.fingerprint, calls=20, lasts_s=60.0, matching=matching, user_id="ann",
        space_id="s1", parameters=parameters_of(entry.spec.input_schema),
    )  # fmt: skip
    given = await store.grant(grant, decided_by="ann")
    assert "Arguments fit this JSON Schema: " in given.question
    assert "No other argument is allowed" in given.question
    assert kind(await mail.send(**ORDINARY)) == "ok"
    for other in ({"cc": "eve"}, {"urgent": True}, {"bcc": "eve"}, {"to": "eve"}):
        assert kind(await mail.send(**{**ORDINARY, **other})) == "consent_required"


async def test_a_question_of_an_earlier_version_can_be_granted_without_knowing_the_parameters(stores: Open) -> None:
    store = stores()
    mail = Mail(store)
    question = await store.shown(question_of(await mail.send(**ORDINARY)))
    assert question is not None
    earlier = replace(question, parameters=None)
    with pytest.raises(ValueError, match="have no 'bcc'"):
        grant_for(earlier, calls=1, lasts_s=60.0, same=["bcc"])
    with pytest.raises(ValueError, match="too long to store"):
        grant_for(replace(earlier, arguments=None), calls=1, lasts_s=60.0, same=["to"])
    same = list(earlier.arguments or {})
    await store.grant(grant_for(earlier, calls=9, lasts_s=60.0, same=same), decided_by="ann", question_id=earlier.id)
    assert kind(await mail.send(**ORDINARY)) == "ok"
    assert kind(await mail.send(**ORDINARY, bcc="eve")) == "consent_required"


async def test_a_grant_of_an_earlier_version_keeps_what_it_showed_and_is_listed_as_open(stores: Open) -> None:
    store = stores()
    mail = Mail(store)
    question = await store.shown(question_of(await mail.send(**ORDINARY)))
    assert question is not None
    grant = grant_for(question, calls=9, lasts_s=60.0, same=["to"], any_other=True)
    stored = await store.grant(grant, decided_by="ann", question_id=question.id)
    earlier = replace(stored, question="")
    form = consent_json(earlier)
    assert (form["any"], form["anyOther"]) == ([], True)
    assert form["scope"] == 'Fixed: {"to": "bob"}. OPEN: any value of every other argument.'
    assert kind(await mail.send(**ORDINARY, bcc="eve")) == "ok"


async def test_postgresql_tables_of_the_first_version_are_migrated_with_their_open_grants(postgres_url: str) -> None:
    entry = Mail(PostgresConsents(postgres_url)).catalog.snapshot().find("send")
    assert entry is not None
    try:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                "create table if not exists pegboard_schema_versions (store text primary key, version integer not null)"
            )
            connection.execute("delete from pegboard_schema_versions where store = 'consents'")
            connection.execute(sql_records.SCHEMA.sqlite[0].encode())
            connection.execute(
                "insert into consents (id, state, tool, definition_hash, matching, question, user_id, space_id, "
                "asked_at, expires_at, uses_left, uses) "
                "values ('old', 'agreed', 'main.send', %s, %s, '', 'ann', 's1', 0, "
                "extract(epoch from clock_timestamp()) + 3600, 5, 5)",
                [entry.fingerprint, '{"properties": {"to": {"const": "bob"}}, "required": ["to"]}'],
            )
        store = PostgresConsents(postgres_url)
        mail = Mail(store)
        [grant] = await store.listed(is_open=False)
        assert (grant.question, consent_json(grant)["anyOther"]) == ("", True)
        assert kind(await mail.send(**ORDINARY, bcc="eve")) == "ok"
        question = await store.shown(question_of(await mail.send(to="carol", body="hello")))
        assert question is not None
        assert question.parameters is not None
    finally:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("drop table if exists consents, used_answers")


async def test_a_grant_is_for_one_definition_and_for_one_credential_where_it_names_one(stores: Open) -> None:
    store = stores()
    shop, changed = Shop(store), Shop(store, description="Pay somebody!")
    await store.grant(shop.grant(9, credential="key:laptop"), decided_by="cli:ann")
    by_key = replace(ANN, caller=replace(ANN.caller, credential="key:laptop"))
    assert [kind(await one.pay(ctx)) for one, ctx in ((shop, ANN), (changed, by_key), (shop, by_key))] == [
        "consent_required", "consent_required", "ok",
    ]  # fmt: skip


async def test_a_grant_closes_the_question_that_it_came_from_and_a_person_can_take_it_away(stores: Open) -> None:
    store = stores()
    shop = Shop(store)
    asked = question_of(await shop.pay())
    grant = await store.grant(shop.grant(5), decided_by="cli:ann", question_id=asked)
    assert await store.listed() == []
    assert grant.is_grant
    assert [one.id for one in await store.listed(is_open=False, space_id="s1")] == [grant.id]
    assert await store.listed(is_open=False, space_id="s2") == []
    assert kind(await shop.pay()) == "ok"
    assert (await store.forget(grant.id)).uses_left == 4
    assert kind(await shop.pay()) == "consent_required"


async def test_a_grant_without_bounds_is_refused(tmp_path: Path) -> None:
    store = SqliteConsents(tmp_path / "consents.db")
    shop = Shop(store)
    for grant in (
        shop.grant(0),
        shop.grant(-1),
        shop.grant(CONSENT_GRANT_CALLS + 1),
        shop.grant(1, lasts_s=0.0),
        shop.grant(1, lasts_s=float("inf")),
    ):
        with pytest.raises(ValueError, match=r"calls|days"):
            await store.grant(grant, decided_by="cli:ann")
    assert await store.listed(is_open=False) == []


# ---------------------------------------------------------------- what is filed


async def test_a_filed_question_has_no_secret_and_hides_nothing(stores: Open) -> None:
    store = stores()
    shop = Shop(store)
    ctx = replace(ANN, secrets={"TOKEN": Secret("hunter2-canary")})
    asked = question_of(await shop.pay(ctx, to="hunter2-canary\u202e"))
    found = await store.shown(asked)
    assert found is not None
    assert "hunter2-canary" not in repr(found)
    assert "\\u202e" in found.question


async def test_every_argument_that_json_has_is_filed_as_it_is(stores: Open) -> None:
    store, seen = stores(), list[Any]()
    catalog = Catalog(consent_store=store)

    @catalog.tool(consent="always")
    async def take(value: Any) -> str:
        """Take anything."""
        seen.append(value)
        return "taken"

    view = catalog.view(ANN)
    values: list[Any] = ["\x00", "\ud800", 10**30, -0.0, 1e300, {"": [None, {"a'b%s:now": True}]}, "%(id)s :id", "😀"]
    for value in values:
        found = await store.shown(question_of(await view.call("take", {"value": value})))
        assert found is not None
        if value != "\ud800":
            assert found.arguments == {"value": value}
        await store.decide(found.id, is_yes=True, decided_by="o'brien; drop table consents")
        assert kind(await view.call("take", {"value": value})) == "ok"
    assert seen == values


async def test_a_grant_to_whoever_asked_serves_nobody_of_another_network(stores: Open) -> None:
    store = stores()
    shop = Shop(store)

    def nobody(address: str) -> ToolContext:
        return ToolContext(caller=Caller(credential="anonymous", address=address), budget=None)

    asked = question_of(await shop.pay(nobody("192.0.2.0/24")))
    mine = shop.grant(5, user_id=None, space_id=None, credential="anonymous")
    await store.grant(mine, decided_by="cli:ann", question_id=asked)
    assert kind(await shop.pay(nobody("198.51.100.0/24"))) == "consent_required"
    assert kind(await shop.pay(nobody("192.0.2.0/24"))) == "ok"


async def test_a_grant_to_whoever_asked_serves_the_values_that_it_names_alone(stores: Open) -> None:
    store = stores()
    shop = Shop(store)
    nobody = ToolContext(caller=Caller(credential="anonymous", address="192.0.2.0/24"), budget=None)
    asked = question_of(await shop.pay(nobody))
    mine = shop.grant(5, {"to": "bob"}, user_id=None, space_id=None, credential="anonymous")
    await store.grant(mine, decided_by="cli:ann", question_id=asked)
    assert kind(await shop.pay(nobody, to="eve")) == "consent_required"
    assert kind(await shop.pay(nobody)) == "ok"
    assert shop.paid == ["bob 1"]


async def test_a_question_that_nobody_would_read_is_not_filed(tmp_path: Path) -> None:
    store = SqliteConsents(tmp_path / "consents.db")
    catalog = Catalog(consent_store=store)

    @catalog.tool(consent="always")
    async def note(texts: list[str]) -> str:
        """Write notes."""
        return "noted"

    view = catalog.view(ANN)
    result = await view.call("note", {"texts": [f"{n} is a number" for n in range(2_000)]})
    assert (kind(result), "smaller arguments" in result.text) == ("consent_required", True)
    long = await view.call("note", {"texts": ["x" * 100_000]})
    found = await store.shown(question_of(long))
    assert found is not None
    assert (found.arguments, "100,000 characters" in found.question) == (None, True)


async def test_one_principal_cannot_fill_the_inbox(stores: Open) -> None:
    store = stores()
    shop = Shop(store)
    for number in range(CONSENT_OPEN_QUESTIONS):
        question_of(await shop.pay(replace(ANN, session_id=str(number))))
    refused = await shop.pay(to="one more")
    assert (kind(refused), "too many questions of yours" in refused.text) == ("consent_required", True)
    assert "consent_id" not in ((refused.error and refused.error.details) or {})
    question_of(await shop.pay(replace(ANN, user_id="eve")))


async def test_all_together_cannot_fill_the_inbox_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_records, "CONSENT_ALL_QUESTIONS", 3)
    shop = Shop(SqliteConsents(tmp_path / "consents.db"))
    for number in range(3):
        question_of(await shop.pay(replace(ANN, user_id=f"user {number}")))
    refused = await shop.pay()
    assert (kind(refused), "too many questions wait" in refused.text) == ("consent_required", True)


async def test_a_store_that_is_away_lets_nothing_run(tmp_path: Path) -> None:
    path = tmp_path / "consents.db"
    path.write_bytes(b"not a database, but long enough to be looked at" * 40)
    for store in (SqliteConsents(path), PostgresConsents("postgresql://127.0.0.1:1/none")):
        shop = Shop(store)
        ctx = replace(ANN, approve=lambda request: True)
        result = await shop.pay(ctx)
        assert kind(result) == "storage_unavailable"
        assert result.error is not None
        assert result.error.retryable
        assert shop.paid == []


async def test_a_yes_that_cannot_be_given_back_stays_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteConsents(tmp_path / "consents.db")
    shop = Shop(store)
    await store.decide(question_of(await shop.pay()), is_yes=True, decided_by="cli:ann")
    kept, rounds = store.path.read_bytes(), list[int]()

    @shop.catalog.before("pay")
    def closed(call: Any) -> Verdict | None:
        rounds.append(1)
        if len(rounds) != 2:
            return None
        kept_now = store.path.read_bytes()
        assert kept_now != kept, "the yes is used by now"
        store.path.write_bytes(b"no database" * 500)
        shop.paid.append(kept_now.hex())
        return Verdict.deny("closed")

    assert kind(await shop.pay()) == "hook_refused"
    assert "stays used" in caplog.text
    store.path.write_bytes(bytes.fromhex(shop.paid.pop()))
    assert kind(await shop.pay()) == "consent_required"
    assert shop.paid == []


def test_a_store_that_cannot_be_is_refused_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no folder"):
        SqliteConsents(tmp_path / "nowhere" / "consents.db")
    with pytest.raises(DefinitionError, match="URI"):
        PostgresConsents(Secret("postgresql://[::1"))


async def test_the_file_of_consents_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = SqliteConsents(tmp_path / "consents.db")
    await Shop(store).pay()
    assert store.path.stat().st_mode & 0o077 == 0


# ---------------------------------------------------------------- tasks


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_yes_serves_one_task_and_neither_a_second_one_nor_a_call(tmp_path: Path, is_granted: bool) -> None:
    store, paid = SqliteConsents(tmp_path / "consents.db"), list[str]()
    catalog = Catalog("shop", consent_store=store, tasks=Tasks(IN_MEMORY))
    goes_on = asyncio.Event()

    @catalog.tool(consent="always", task="optional")
    async def pay(to: str) -> str:
        """Pay somebody."""
        await goes_on.wait()
        paid.append(to)
        return "paid"

    view = catalog.view(ANN)
    asked = question_of(await view.call("pay", {"to": "bob"}, as_task=True))
    if is_granted:
        entry = catalog.snapshot().find("pay")
        assert entry is not None
        one = Grant(
            tool="main.pay", definition_hash=entry.fingerprint, calls=1, lasts_s=60.0, matching={}, user_id="ann",
            space_id="s1", any_other=True,
        )  # fmt: skip
        asked = (await store.grant(one, decided_by="cli:ann", question_id=asked)).id
    else:
        await store.decide(asked, is_yes=True, decided_by="cli:ann")
    begun = await view.call("pay", {"to": "bob"}, as_task=True)
    assert begun.task_id is not None
    for as_task in (True, False):
        assert kind(await view.call("pay", {"to": "bob"}, as_task=as_task)) == "consent_required"
    goes_on.set()
    done = await catalog.tasks.result(begun.task_id, ANN, timeout_s=PATIENCE_S)
    used = await store.shown(asked)
    assert used is not None
    assert (done.text, paid, used.uses_left) == ("paid", ["bob"], 0)
    await catalog.close()


class Deferred:
    """A shop whose payment is a task, and what happens to the task when it is about to run."""

    def __init__(self, folder: Path, tasks: str = IN_MEMORY) -> None:
        self.store, self.paid = SqliteConsents(folder / "consents.db"), list[str]()
        # Of its four places one caller has three at most.
        bounds = Bounds(calls_in_flight=4)
        self.catalog = Catalog("shop", consent_store=self.store, tasks=Tasks(tasks), bounds=bounds)
        self.asked, self.goes_on, self.reached = "", asyncio.Event(), asyncio.Event()
        self.when_run: Callable[[], Any] = lambda: None  # a hook, asked before the consent is looked at

        @self.catalog.tool(consent="always", task="required")
        async def pay(ctx: CallContext, to: str) -> str:
            """Pay somebody."""
            await ctx.step("pay", self.paid.append, to)
            self.reached.set()
            await self.goes_on.wait()
            return "paid"

        @self.catalog.before("pay")
        async def about_to_run(call: Any) -> Verdict | None:
            if call.ctx.request.steps is None:
                return None
            happened = self.when_run()
            return await happened if isinstance(happened, Awaitable) else happened

    async def begun(self) -> str:
        view = self.catalog.view(ANN)
        self.asked = question_of(await view.call("pay", {"to": "bob"}))
        await self.store.decide(self.asked, is_yes=True, decided_by="cli:ann")
        begun = await view.call("pay", {"to": "bob"})
        assert begun.task_id is not None
        return begun.task_id

    async def ended(self, task_id: str) -> str:
        return kind(await self.catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S))

    async def uses_left(self) -> int:
        record = await self.store.shown(self.asked)
        return 0 if record is None else record.uses_left


async def test_a_yes_is_looked_at_again_when_its_task_runs_and_goes_back_where_that_is_refused(tmp_path: Path) -> None:
    shop = Deferred(tmp_path)

    async def taken_back() -> None:
        await shop.store.forget(shop.asked)

    shop.when_run = taken_back
    assert await shop.ended(await shop.begun()) == "consent_required", "a person took it back meanwhile"
    shop.when_run = lambda: Verdict.deny("closed")
    assert (await shop.ended(await shop.begun()), await shop.uses_left()) == ("hook_refused", 1)
    when_judged_again = [None, Verdict.deny("closed")]
    shop.when_run = lambda: when_judged_again.pop(0)
    begun = await shop.catalog.view(ANN).call("pay", {"to": "bob"})
    assert (await shop.ended(begun.task_id or ""), await shop.uses_left()) == ("hook_refused", 1)
    shop.catalog.tasks.context_for = lambda call: None
    begun = await shop.catalog.view(ANN).call("pay", {"to": "bob"})
    assert (await shop.ended(begun.task_id or ""), await shop.uses_left()) == ("not_found", 1)
    assert shop.paid == []
    await shop.catalog.close()


async def test_a_task_waits_until_it_can_be_told_whether_its_yes_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.tasks.execution.TASK_LOOK_S", 0.0)
    shop, outages = Deferred(tmp_path), [ConnectionError("away")] * 2
    stands = shop.store.stands

    async def told(consent_id: str) -> bool:
        if outages:
            raise outages.pop()
        return await stands(consent_id)

    monkeypatch.setattr(shop.store, "stands", told)
    shop.goes_on.set()
    assert (await shop.ended(await shop.begun()), shop.paid, outages) == ("ok", ["bob"], [])
    await shop.catalog.close()


@pytest.mark.parametrize(
    "stage", ["at once", "in the queue", "before a guard", "in its queue, by the sweeper", "after"]
)
async def test_the_yes_of_a_task_that_is_cancelled_goes_back_unless_it_ran(tmp_path: Path, stage: str) -> None:
    shop, is_thinking = Deferred(tmp_path), asyncio.Event()

    async def think() -> None:
        is_thinking.set()
        await asyncio.Event().wait()

    if "queue" in stage:
        for _ in range(3):
            await shop.begun()
        async with asyncio.timeout(PATIENCE_S):
            while len(shop.paid) < 3:
                await asyncio.sleep(0)
    elif stage == "before a guard":
        shop.when_run = think
    task_id = await shop.begun()
    if stage in ("after", "before a guard"):
        await asyncio.wait_for((shop.reached if stage == "after" else is_thinking).wait(), PATIENCE_S)
    if "sweeper" in stage:
        shop.catalog.executor.swap(replace(shop.catalog.executor.ports, wall_clock=lambda: time.time() + 10 * 86_400))
        assert await shop.catalog.tasks.sweep() == 4
    else:
        # As often as one likes.
        for _ in range(3):
            await shop.catalog.tasks.cancel(task_id, ANN)
    await shop.catalog.close()
    assert await shop.uses_left() == (stage != "after")
    assert len(shop.paid) == {"in the queue": 3, "in its queue, by the sweeper": 3, "after": 1}.get(stage, 0)


async def test_a_yes_stays_used_where_its_task_had_begun_and_is_refused_when_it_goes_on(tmp_path: Path) -> None:
    first, second = (Deferred(tmp_path, f"sqlite:{tmp_path}/tasks.db") for _ in range(2))
    task_id = await first.begun()
    await asyncio.wait_for(first.reached.wait(), PATIENCE_S)
    began, is_thinking = first.asked, asyncio.Event()

    async def think() -> None:
        is_thinking.set()
        await asyncio.Event().wait()

    # Of two whose tool never ran one is cancelled, and one left to whoever goes on with it.
    first.when_run, waiting = think, dict[str, str]()
    for end in ("cancelled", "left"):
        waiting[end] = await first.begun()
        await asyncio.wait_for(is_thinking.wait(), PATIENCE_S)
        is_thinking.clear()
        if end == "cancelled":
            await first.catalog.tasks.cancel(waiting[end], ANN)
            assert await first.ended(waiting[end]) == "cancelled"
            async with asyncio.timeout(PATIENCE_S):
                while await first.uses_left() == 0:
                    await asyncio.sleep(0.01)  # another thread writes it
            await first.store.forget(first.asked)
    await first.catalog.close()
    assert await first.uses_left() == 0
    second.asked, second.when_run = began, lambda: Verdict.deny("closed")
    await second.catalog.tasks.wake()
    assert (await second.ended(task_id), await second.uses_left()) == ("hook_refused", 0)
    assert kind(await second.catalog.view(ANN).call("pay", {"to": "bob"})) == "consent_required"
    assert first.paid + second.paid == ["bob"]
    await second.catalog.close()


# ---------------------------------------------------------------- several processes

CALLER = """
import asyncio, sys
from pathlib import Path
from pegboard import Catalog, ToolContext
from pegboard.consent import postgres_store, sqlite_store
from pegboard.consent.postgres_store import PostgresConsents
from pegboard.consent.sqlite_store import SqliteConsents

# The other process, which has the lock, may stand still for longer than usual.
postgres_store.CONSENT_STORE_BUSY_S = sqlite_store.CONSENT_STORE_BUSY_S = 60.0
where, log, calls, at_once = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
store = PostgresConsents(where) if where.startswith("postgres") else SqliteConsents(Path(where))
catalog = Catalog("shop", consent_store=store)

@catalog.tool(consent="always")
async def pay(to: str, amount: int = 1) -> str:
    "Pay somebody."
    with log.open("a") as file:
        file.write("paid\\n")
    return "paid"

async def main():
    view = catalog.view(ToolContext(user_id="ann", space_id="s1", session_id="one", budget=None))
    print("ready", flush=True)
    sys.stdin.readline()
    async def some():
        for _ in range(calls):
            result = await view.call("pay", {"to": "bob"})
            print(result.error.details["consent_id"] if result.error else "ok", flush=True)
    await asyncio.gather(*(some() for _ in range(at_once)))
    sys.stdin.readline()

asyncio.run(main())
"""


class Process:
    """A process of its own that makes calls when it is told to."""

    def __init__(self, folder: Path, where: str, *, calls: int = 1, at_once: int = 1) -> None:
        (folder / "caller.py").write_text(CALLER)
        told, self._tell = os.pipe()
        self._heard, saying = os.pipe()
        words = ["python", "caller.py", where, str(folder / "paid"), str(calls), str(at_once)]
        self._process = forking.fork(words, files=(told, saying, saying), cwd=folder)
        os.close(told)
        os.close(saying)
        self._lines = os.fdopen(self._heard)
        assert self.line() == "ready"

    def line(self) -> str:
        return self._lines.readline().strip()

    def begin(self) -> None:
        os.write(self._tell, b"go\n")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._lines.close()
        os.close(self._tell)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store, for processes of their own."""
    if request.param == "sqlite":
        yield str(tmp_path / "consents.db")
        return
    yield (url := request.getfixturevalue("postgres_url"))
    with psycopg.connect(url) as connection:
        connection.execute("drop table if exists consents, used_answers")


def store_at(where: str) -> SqlConsents:
    return PostgresConsents(where) if where.startswith("postgres") else SqliteConsents(Path(where))


async def test_one_process_asks_and_is_killed_and_others_go_on_exactly_once(where: str, tmp_path: Path) -> None:
    first, *others = (Process(tmp_path, where) for _ in range(3))
    first.begin()
    asked = first.line()
    first.kill()
    await store_at(where).decide(asked, is_yes=True, decided_by="cli:ann")
    for other in others:
        other.begin()
    ends = sorted(other.line() for other in others)
    for other in others:
        other.kill()
    assert (ends[1], ends[0] != asked) == ("ok", True), "the other one asks anew"
    assert (tmp_path / "paid").read_text() == "paid\n"


async def test_a_grant_holds_when_two_processes_make_eight_calls_at_once_each(where: str, tmp_path: Path) -> None:
    grant = Shop().grant(20, {"to": "bob"})
    await store_at(where).grant(grant, decided_by="cli:ann")
    both = [Process(tmp_path, where, calls=3, at_once=8) for _ in range(2)]
    for one in both:
        one.begin()
    ends = [one.line() for one in both for _ in range(24)]
    for one in both:
        one.kill()
    assert (ends.count("ok"), len(set(ends) - {"ok"})) == (20, 1)
    assert (tmp_path / "paid").read_text() == "paid\n" * 20
