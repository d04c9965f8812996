"""Tasks, sources, audit, matrix and live calls: what is there, for whom, and what an empty page says."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from pegboard import CallContext, Catalog, Profile, Tasks, http_app
from pegboard.auth.rules import ConsoleRules
from pegboard.config import load_catalog
from pegboard.model.error import ERROR_KINDS, CallError
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.task import TaskRecord
from pegboard.server.console.outcome_words import OUTCOME_WORDS, outcome_in_words, outcome_meant
from pegboard.server.console.tasks_page import STUCK_S
from pegboard.tasks.tasks import OPERATOR
from tests.auth.parts import bearer
from tests.core.parts import FakeSource, foreign
from tests.server.console.browsing import Browser, console, text_of
from tests.server.console.test_console_decisions import Bank
from tests.server.console.test_console_login import Office
from tests.server.doors import listening
from tests.timing import PATIENCE_S


class Noted:
    """An audit that keeps the changes that it is told."""

    is_up, times_stages = True, False

    def __init__(self) -> None:
        self.changes: list[tuple[str, Any, str]] = []

    def note(self, event: Any, detail: Any, *, by: str = "") -> None:
        self.changes.append((event, detail, by))

    async def close(self) -> None:
        pass


class Picky(FakeSource):
    """A source that left a tool out."""

    rejected = (("bad name", "it is not a name"),)


def source(name: str, state: SourceState) -> FakeSource:
    return Picky(name=name, listed=[foreign(name, "fetch")], now=state)


async def test_sources_show_their_state_and_what_the_lock_holds_back_the_worst_first() -> None:
    catalog = Catalog("office")
    held = SourceState(quarantined=frozenset({"held.new"}), changed=frozenset({"held.other"}),
                       flagged=frozenset({"held.other"}))  # fmt: skip
    away = SourceState(status="unreachable", is_up=False, reason="refused")
    for one in (source("good", SourceState()), source("held", held), source("away", away)):
        catalog.add_source(one)
    async with console(catalog) as browser:
        await browser.log_in()
        page = text_of((await browser.get("/sources")).text)
        assert page.index("away unreachable") < page.index("held works") < page.index("good works")
        for part in ("refused Its tools are hidden", "held.new is new", "held.other suspicious has changed",
                     "1 tool left out bad name : it is not a name"):  # fmt: skip
            assert part in page, part


SHOP = """
from pegboard import default_catalog

@default_catalog.tool
def add(a: int, b: int) -> int:
    return a + b

@default_catalog.tool(internal_only=True)
def sweep() -> str:
    return "swept"

@default_catalog.tool(consent="always")
def wipe(disk: str) -> str:
    return "wiped"
"""


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncGenerator[Browser]:
    """A browser of a server with an audit, after a good call and a refused one."""
    tmp_path.chmod(0o700)
    (tmp_path / "audited_shop.py").write_text(SHOP)
    path = tmp_path / "pegboard.yaml"
    path.write_text(
        'python: [audited_shop]\naudit: {store: "sqlite:./audit.db"}\nconsents: {store: "sqlite:./consents.db"}\n'
    )
    catalog, config = load_catalog(path)
    async with console(catalog, config=config) as browser:
        for arguments in ({"a": 1, "b": 41}, {"a": "one"}):
            await browser.client.post("/v1/tools/add/call", json=arguments)
        await browser.log_in()
        yield browser


@pytest.mark.parametrize(("kept", "shows"), [("redacted", True), ("redacted", False), ("none", True)])
async def test_operators_who_may_see_bodies_read_the_arguments_that_the_audit_keeps(
    tmp_path: Path, kept: str, shows: bool
) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "pegboard.yaml").write_text(
        f'audit: {{store: "sqlite:./audit.db", bodies: {kept}}}\n'
        "tools: [{name: echo, type: internal, handler: 'python:tests.cli.workshop:echo', description: Say it again.}]\n"
    )
    catalog, config = load_catalog(tmp_path / "pegboard.yaml")
    async with console(catalog, config=config, rules=ConsoleRules(shows_bodies=shows)) as browser:
        await browser.client.post("/v1/tools/echo/call", json={"text": "<i>blue"})
        await browser.log_in()
        page = await rows_of(browser, "/audit", 1)
        [call] = re.findall(r'href="/console(/audit/[^"]+)"', page)
        one = (await browser.get(call)).text
        is_shown = shows and kept == "redacted"
        assert ('{"text": "<i>blue"}' in text_of(page), "blue" in page) == (is_shown, is_shown)
        assert ('Arguments { "text": "<i>blue" }' in text_of(one), "blue" in one) == (is_shown, is_shown)
        assert "<i>" not in page + one


async def rows_of(browser: Browser, path: str, count: int) -> str:
    """Return the page of the audit when it has so many rows: they are written by a thread."""
    async with asyncio.timeout(PATIENCE_S):
        while (page := (await browser.get(path)).text).count("/console/audit/") < count:
            await asyncio.sleep(0.01)
    return page


async def test_the_audit_shows_calls_and_one_call_in_full(audited: Browser) -> None:
    page = await rows_of(audited, "/audit", 2)
    assert "main.add anonymous" in text_of(page)
    assert "2 rows : wrong arguments 1, ok 1." in text_of(page)
    assert "1 row . Show all" in text_of((await audited.get("/audit?a_kind=ok")).text)
    found = await audited.get("/audit?a_kind=ok&a_tool=main.*")
    [call] = re.findall(r'href="/console(/audit/[^"]+)"', found.text)
    one = text_of((await audited.get(call)).text)
    for part in ("name add", "door http", "decision visible", "Stages", "run "):
        assert part in one
    # Arguments and results belong to callers.
    assert "41" not in re.sub(r"[0-9a-f]{12,}|\d+ (?:ms|µs|bytes)|[\d.:-]+", "", one)
    rows = (await audited.get("/audit?a_kind=ok&a_tool=main.*&format=json")).json()
    assert [(row["tool"], row["outcome"]) for row in rows] == [(row["tool"], "ok") for row in rows]
    assert rows
    for typed in ("wrong arguments", " Wrong arguments", "invalid_arguments"):
        [row] = (await audited.get(f"/audit?a_kind={quote(typed)}&format=json")).json()
        assert (row["tool"], row["outcome"]) == ("main.add", "invalid_arguments")
    # Each call leads to its tool, which explains who may call it.
    assert 'href="/console/tools/main.add' in (await audited.get(call)).text
    # An outcome narrows what is shown, and keeps what was asked before.
    assert "a_tool=main.%2A&amp;a_kind=ok" in found.text
    assert "No row matches" in (await audited.get("/audit?a_user=nobody")).text
    for id_or_part in ("/audit/none", call[: len("/audit/") + 8]):
        assert (await audited.get(id_or_part)).status_code == 404


async def test_the_audit_shows_which_call_a_person_approved_or_declined(audited: Browser) -> None:
    for disk, answer in (("a", "approve"), ("b", "decline")):
        assert (await audited.client.post("/v1/tools/wipe/call", json={"disk": disk})).status_code == 403
        [path] = re.findall(r'action="/console(/consents/[0-9a-f]+)/approve', (await audited.get("/consents")).text)
        await audited.post(f"{path}/{answer}")
    async with asyncio.timeout(PATIENCE_S):
        while (page := (await audited.get("/audit?a_kind=consent_decided")).text).count("main.wipe") < 2:
            await asyncio.sleep(0.01)
    rows = re.findall(r"consent decided main.wipe for an anonymous caller \S+ (\w+)", text_of(page))
    assert rows == ["no", "yes"]


async def test_the_audit_tells_operators_why_a_tool_was_not_found_and_its_caller_does_not_learn_it(
    audited: Browser,
) -> None:
    hidden, absent = [await audited.client.post(f"/v1/tools/{name}/call", json={}) for name in ("sweep", "nothing")]
    assert hidden.text.replace("sweep", "nothing").split("callId")[0] == absent.text.split("callId")[0]
    page = text_of(await rows_of(audited, "/audit?a_kind=not_found", 2))
    assert page.count("not found hidden: internal") == page.count("hidden: ") == 1


async def test_changes_that_the_server_made_itself_are_not_of_nobody(audited: Browser) -> None:
    assert audited.catalog is not None
    audit = audited.catalog.executor.ports.audit
    assert audit is not None
    lapsed = {"user": "ann", "source": "notes", "reason": "the refresh token was refused"}
    audit.note("account_disconnected", lapsed)
    audit.note("account_disconnected", {"user": "ann", "source": "notes"}, by="ann-of-the-office")
    async with asyncio.timeout(PATIENCE_S):
        while (page := text_of((await audited.get("/audit")).text)).count("account disconnected") < 2:
            await asyncio.sleep(0.01)
    assert "account disconnected notes of ann: the refresh token was refused the server" in page
    assert "account disconnected notes of ann ann-of-the-office" in page
    assert "nobody" not in page


def test_every_kind_of_error_has_words() -> None:
    assert set(OUTCOME_WORDS) == ERROR_KINDS
    assert not [words for words in OUTCOME_WORDS.values() if "_" in words]
    assert [outcome_meant(words) for words in OUTCOME_WORDS.values()] == list(OUTCOME_WORDS)
    assert [outcome_meant(typed) for typed in ("", "runs", "ok", "account disconnected")] == [
        "", "begin", "ok", "account_disconnected",
    ]  # fmt: skip
    assert [outcome_in_words(kind) for kind in ("tool_error", "ok", "account_disconnected")] == [
        "tool failed", "ok", "account disconnected",
    ]  # fmt: skip


async def test_without_an_audit_the_page_says_so_and_what_to_write() -> None:
    async with console(Catalog("bare")) as browser:
        await browser.log_in()
        page = text_of((await browser.get("/audit")).text)
        assert "No audit is kept" in page
        assert 'audit: store: "sqlite:./audit.db"' in page


async def test_the_matrix_has_each_tool_and_profile_and_can_show_what_differs() -> None:
    catalog = Catalog("shop")
    catalog.tool(name="look", groups="read")(lambda: "x")
    catalog.tool(name="change", groups="write")(lambda: "x")
    catalog.profile(Profile(name="clerk", include=("read",)))
    catalog.profile(Profile(name="boss", include=("read", "write")))
    async with console(catalog) as browser:
        await browser.log_in()
        page = text_of((await browser.get("/matrix")).text)
        assert "Tool clerk boss change group ● visible look ● visible ● visible" in page
        assert "seen by you. Only what differs ● may be used group the profile includes none of its groups" in page
        bob = text_of((await browser.get("/matrix?user=bob")).text)
        assert "seen by bob. Only what differs" in bob
        assert "1 tool of 2 that profiles see differently" in text_of((await browser.get("/matrix?differ=1")).text)


class Desk:
    """A server with tasks, on which paul and olga may start one each."""

    def __init__(self, folder: Path) -> None:
        self.office = Office(folder, tasks=Tasks("memory"))
        self.ends = asyncio.Event()

        @self.office.catalog.tool(task="optional")
        async def report(ctx: CallContext, about: str) -> str:
            """Write a report."""
            await ctx.progress(0.5, f"half of {about}")
            await self.ends.wait()
            if about == "nothing":
                raise CallError("not_found", "There is nothing to report.")
            return f"report about {about}"

    async def start(self, browser: Browser, name: str, about: str) -> str:
        answer = await browser.client.post(
            "/v1/tools/report/call?as_task=true", json={"about": about}, headers=bearer(self.office.key[name])
        )
        return answer.json()["taskId"]


async def test_people_see_their_own_tasks_and_operators_all_without_results(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with console(desk.office.catalog) as browser:
        mine = await desk.start(browser, "paul", "cats")
        other = await desk.start(browser, "olga", "dogs")
        await browser.log_in(desk.office.key["paul"])
        assert (await browser.get("/tasks?format=csv")).text.startswith("id,tool,state,created,updated,how_far\r\n")
        page = (await browser.get("/tasks")).text
        assert (mine in page, other in page) == (True, False)
        assert (await browser.get(f"/tasks/{other}")).status_code == 404
        await browser.get(f"/tasks/{mine}")
        assert (await browser.post(f"/tasks/{other}/cancel")).status_code == 404
        desk.ends.set()
        async with asyncio.timeout(PATIENCE_S):
            while "report about cats" not in (await browser.get(f"/tasks/{mine}")).text:
                await asyncio.sleep(0.01)
        await browser.post("/logout")
        await browser.log_in(desk.office.key["olga"])
        page = (await browser.get("/tasks")).text
        assert (mine in page, other in page) == (True, True)
        shown = await browser.get(f"/tasks/{mine}")
        assert "Its caller can read the result." in shown.text
        assert "report about" not in shown.text


async def test_a_task_whose_tool_failed_is_shown_as_failed_and_not_as_completed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ends.set()
    async with console(desk.office.catalog) as browser:
        task = await desk.start(browser, "paul", "nothing")
        await browser.log_in(desk.office.key["paul"])
        async with asyncio.timeout(PATIENCE_S):
            while "There is nothing to report" not in (await browser.get(f"/tasks/{task}")).text:
                await asyncio.sleep(0.01)
        page = text_of((await browser.get("/tasks")).text)
        assert ("failed main.report" in page, "completed" in page) == (True, False)


async def test_only_a_durable_task_without_a_sign_for_minutes_offers_to_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    async with console(desk.office.catalog) as browser:
        await desk.start(browser, "paul", "cats")
        await browser.log_in(desk.office.key["paul"])
        [record] = await desk.office.catalog.tasks.list(OPERATOR)
        for is_durable, quiet_s, offers in ((True, 2 * STUCK_S, True), (True, 0.0, False), (False, 2 * STUCK_S, False)):
            stored = replace(record, is_durable=is_durable, updated_at=record.updated_at - quiet_s)

            async def listed(*_: Any, stored: TaskRecord = stored, **__: Any) -> list[TaskRecord]:
                return [stored]

            monkeypatch.setattr(Tasks, "list", listed)
            page = (await browser.get("/tasks")).text
            assert ("/resume" in page, "/cancel" in page) == (offers, True), (is_durable, quiet_s)


async def test_operators_who_may_see_bodies_read_results_and_the_arguments_of_others_questions(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ends.set()
    async with console(desk.office.catalog, rules=ConsoleRules(shows_bodies=True)) as browser:
        task = await desk.start(browser, "paul", "cats")
        await browser.log_in(desk.office.key["olga"])
        async with asyncio.timeout(PATIENCE_S):
            while "report about cats" not in (await browser.get(f"/tasks/{task}")).text:
                await asyncio.sleep(0.01)
    (tmp_path / "bank").mkdir(mode=0o700)
    bank = Bank(tmp_path / "bank")
    for shows in (False, True):
        async with console(bank.catalog, rules=ConsoleRules(shows_bodies=shows)) as browser:
            await bank.ask(browser)
            await browser.log_in(bank.key["olga"])
            assert ("ann-1" in (await browser.get("/consents")).text) is shows


async def test_a_task_is_cancelled_and_resumed_by_a_form(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    noted = Noted()
    executor = desk.office.catalog.executor
    executor.swap(replace(executor.ports, audit=noted))
    async with console(desk.office.catalog) as browser:
        task = await desk.start(browser, "paul", "cats")
        await browser.log_in(desk.office.key["paul"])
        shown = await browser.get(f"/tasks/{task}")
        # A running task has nothing to resume, and one that is not durable cannot be.
        assert ("runs" in text_of(shown.text), "/resume" in shown.text, "/cancel" in shown.text) == (True, False, True)
        assert (await browser.post(f"/tasks/{task}/resume")).headers["location"].endswith("done=resumed")
        await browser.get(f"/tasks/{task}")
        assert (await browser.post(f"/tasks/{task}/cancel")).status_code == 303
        async with asyncio.timeout(PATIENCE_S):
            while "cancelled" not in (await browser.get(f"/tasks/{task}")).text:
                await asyncio.sleep(0.01)
        assert "Cancelled." in (await browser.get("/tasks?done=cancelled")).text
        assert [(event, detail["task_id"], by) for event, detail, by in noted.changes] == [
            ("task_resumed", task, "paul"), ("task_cancelled", task, "paul"),
        ]  # fmt: skip


async def test_without_tasks_the_page_says_what_to_write() -> None:
    async with console(Catalog("bare")) as browser:
        await browser.log_in()
        assert "tasks: store:" in text_of((await browser.get("/tasks")).text)
        assert (await browser.get("/tasks/none")).status_code == 404


async def test_only_operators_have_the_pages_of_operators(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        for name, status in (("paul", 404), ("olga", 200)):
            await browser.log_in(office.key[name])
            for path in ("/sources", "/audit", "/matrix"):
                assert (await browser.get(path)).status_code == status
                assert (f'href="/console{path}' in (await browser.get("")).text) is (status == 200)
            await browser.get("")
            await browser.post("/logout")


async def test_live_calls_reach_operators_and_their_own_person_alone_without_arguments(tmp_path: Path) -> None:
    office = Office(tmp_path)
    app = http_app(office.catalog, console=True)
    async with listening(app, starts=app) as url, httpx2.AsyncClient(base_url=url) as client:
        heard: dict[str, list[str]] = {"olga": [], "paul": []}
        listens = {name: asyncio.Event() for name in heard}

        async def listen(name: str) -> None:
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as mine:
                browser = Browser(mine)
                await browser.get("/login")
                token = re.findall(r'form_token" value="([^"]+)', browser.page)[0]
                await mine.post("/console/login", data={"form_token": token, "key": office.key[name]},
                                headers={"origin": url})  # fmt: skip
                assert "Calls appear here" in (await browser.get("/live")).text
                async with mine.stream("GET", "/console/live/events") as stream:
                    async for line in stream.aiter_lines():
                        listens[name].set()
                        if line.startswith("data: "):
                            heard[name].append(line)
                            event = json.loads(line[6:])
                            if event["tool"] == "greet" and event["who"] == "paul" and "kind" in event:
                                return

        listening_to = [asyncio.create_task(listen(name)) for name in heard]
        async with asyncio.timeout(PATIENCE_S):
            for event in listens.values():
                await event.wait()
            await client.post("/v1/tools/greet/call", json={}, headers=bearer(office.key["olga"]))
            await client.post(
                "/v1/tools/secret-%E2%80%AE-canary/call", json={"x": "canary"}, headers=bearer(office.key["olga"])
            )
            await client.post("/v1/tools/greet/call", json={}, headers=bearer(office.key["paul"]))
            await asyncio.gather(*listening_to)
        assert "olga" not in "".join(heard["paul"])
        assert len(heard["paul"]) == 2
        assert [json.loads(line[6:]).get("kind") for line in heard["olga"]] == [
            None,
            "ok",
            None,
            "not_found",
            None,
            "ok",
        ]
        refused = json.loads(heard["olga"][3][6:])
        # A name that would turn the row around is spelled out, as on every page.
        assert (refused["outcome"], refused["tool"]) == ("not found", "secret-\\u202e-canary")
        assert '"x"' not in "".join(heard["olga"])
        assert set(json.loads(heard["olga"][1][6:])["stages"]) >= {"resolve", "run"}


async def test_a_live_stream_ends_with_its_key_and_with_the_server(tmp_path: Path) -> None:
    office = Office(tmp_path)
    app = http_app(office.catalog, console=True)
    for ending in ("key", "server"):
        if ending == "server":
            office.key["paul"] = office.keys.add("paul")[0]
        async with listening(app, starts=app) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            browser = Browser(client)
            await browser.get("/login")
            token = re.findall(r'form_token" value="([^"]+)', browser.page)[0]
            fields = {"form_token": token, "key": office.key["paul"]}
            await client.post("/console/login", data=fields, headers={"origin": url})
            async with client.stream("GET", "/console/live/events") as stream:
                lines = stream.aiter_lines()
                assert await anext(lines) == ": listening"
                if ending == "key":
                    office.keys.revoke("paul")
                else:
                    app.state.end_streams()
                assert [line async for line in lines if line.startswith("data")] == []
