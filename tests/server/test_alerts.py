"""Alerts: what a receiver gets, judged by its bytes: one signed message for each state, and one when it is over."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import stat
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pegboard import Catalog, ToolContext, http_app
from pegboard.model.error import Problem
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.server.alert_watch import ALERT_AGAIN_S, AlertWatch
from pegboard.telemetry.alert_book import ALERTS_AN_HOUR
from pegboard.telemetry.alert_states import TASK_STUCK_S
from pegboard.telemetry.budget_refusals import BUDGET_OVER_S
from pegboard.telemetry.part_states import PartStates, parts_of
from tests.builtin.web import Site, answer
from tests.config.project import Project
from tests.core.parts import FakeSource
from tests.server.doors import call, inside
from tests.server.processes import serving
from tests.timing import PATIENCE_S

SECRET = "what only the receiver and we know"
CANARY = "canary-of-somebody-0123456789"
KINDS = (
    "changed", "quarantined", "flagged", "down", "config_refused", "store_down", "audit_broken", "task_stuck",
    "consent_waiting", "budget",
)  # fmt: skip
EVERYTHING = ", ".join(KINDS)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Watched:
    """A catalog of a project, and what its watch finds wrong with it."""

    def __init__(self, project: Project) -> None:
        self.catalog, _ = project.load()
        self.clock, self.problems = Clock(), list[Problem]()
        self.watch = self.another()

    def another(self) -> AlertWatch:
        """Return the watch of another worker."""
        parts = PartStates(lambda: parts_of(self.catalog), clock=self.clock)
        return AlertWatch(self.catalog, parts, lambda: self.problems, sleep=self.clock.sleep, clock=self.clock)

    async def look(self, watch: AlertWatch | None = None) -> None:
        watch = watch or self.watch
        # Nothing that was asked a moment ago counts.
        self.clock.now += 60.0
        await watch.look()
        await watch.settled()


def receiver(status: str = "200 OK") -> Site:
    return Site(lambda _: answer(b"", status=status))


def watched(project: Project, url: str, *, on: str = EVERYTHING, more: str = "") -> Watched:
    project.env = {"ALERT_SECRET": SECRET, "KEY": CANARY, **project.env}
    alerts = f'alerts:\n  - {{on: [{on}], to: "{url}", secret: "${{ALERT_SECRET}}"}}\n'
    settings = 'settings: {key: "${KEY}"}\n'
    return Watched(project.write(alerts + settings + more))


def told(site: Site) -> list[tuple[str, str, str]]:
    return [(asked.json["alert"], asked.json["status"], asked.json["subject"]) for asked in site.asked]


def add_source(catalog: Catalog, *, name: str = "files", **state: Any) -> FakeSource:
    source = FakeSource(name=name, now=SourceState(**state))
    catalog.add_source(source)
    return source


async def test_a_budget_is_reported_when_four_fifths_and_all_of_it_are_used_and_when_it_begins_again(
    project: Project,
) -> None:
    site = receiver()
    budgets = "budgets: {rules: {few: {tools: work, each: user, per: day, calls: 5}}}\npython: [budgeted]\n"
    project.file("budgeted.py", "from pegboard import default_catalog\n\n@default_catalog.tool\ndef work(): ...\n")
    async with site.server() as server:
        world = watched(project, server.url, on="budget", more=budgets)
        executor = world.catalog.executor
        # All on one day, also when that ends while the test runs.
        today = executor.ports.wall_clock()
        executor.swap(replace(executor.ports, wall_clock=lambda: today))
        ann = world.catalog.view(ToolContext(user_id="ann"))
        for number in range(6):
            assert (await ann.call("work")).is_error == (number == 5)
            await world.look()
        executor.swap(replace(executor.ports, wall_clock=lambda: today + 86_400))
        await world.look()
    messages = [asked.json for asked in site.asked]
    assert [(message["status"], message["names"]) for message in messages] == [
        ("began", ["80%"]), ("began", ["100%"]), ("over", ["100%"]),
    ]  # fmt: skip
    assert {message["subject"] for message in messages} == {"few of user 'ann', calls"}
    assert "is used up: 5 of 5 calls per day; it resets at" in messages[1]["text"]


async def test_a_receiver_gets_one_signed_message_when_a_source_is_lost_and_one_when_it_works_again(
    project: Project,
) -> None:
    site = receiver()
    async with site.server() as server:
        world = watched(project, f"{server.url}/hook/{CANARY}")
        source = add_source(world.catalog)
        await world.look()
        assert site.asked == []
        source.now = SourceState(status="unreachable", is_up=False, reason=f"its log says {CANARY}")
        for _ in range(3):
            await world.look()
        assert CANARY not in (project.folder / ".pegboard-alerts.json").read_text()
        source.now = SourceState()
        for _ in range(3):
            await world.look()
    assert told(site) == [("down", "began", "files"), ("down", "over", "files")]
    first, last = site.asked
    message = first.json
    assert message["text"] == "The source 'files' is unreachable: its log says [redacted]"
    assert (message["type"], message["names"], message["left_out"]) == ("pegboard.alert", [], 0)
    assert last.json["since"] == message["since"]
    for asked in site.asked:
        headers = asked.headers
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + asked.body
        mark = b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{mark}"
        assert (asked.method, asked.json["id"]) == ("POST", headers["webhook-id"])
        assert CANARY.encode() not in asked.body
        assert SECRET.encode() not in asked.body


async def test_a_source_that_still_connects_neither_begins_nor_ends_an_alert(project: Project) -> None:
    site = receiver()
    async with site.server() as server:
        world = watched(project, server.url)
        source = add_source(world.catalog, status="connecting", is_up=False)
        await world.look()
        source.now = SourceState(status="unreachable", is_up=False)
        await world.look()
        source.now = SourceState(status="connecting", is_up=False)
        await world.look()
    assert told(site) == [("down", "began", "files")]


async def test_tools_that_are_held_back_are_named_and_more_of_them_are_a_new_message(project: Project) -> None:
    site = receiver()
    async with site.server() as server:
        world = watched(project, server.url)
        source = add_source(world.catalog, changed=frozenset({"files.read"}))
        await world.look()
        source.now = SourceState(
            changed=frozenset({"files.read", "files.list"}),
            quarantined=frozenset({"files.reаd"}),
            flagged=frozenset({"files.reаd"}),
        )
        await world.look()
    named = [
        (alert, status, asked.json["names"]) for (alert, status, _), asked in zip(told(site), site.asked, strict=True)
    ]
    assert named == [
        ("changed", "began", ["files.read"]),
        ("changed", "began", ["files.list", "files.read"]),
        ("flagged", "began", ["files.reаd"]),
        ("quarantined", "began", ["files.reаd"]),
    ]


async def test_a_receiver_that_fails_is_tried_three_times_and_again_later_while_it_is_true(project: Project) -> None:
    answers = iter(["500 Internal Server Error", "302 Found", "404 Not Found"])
    site = Site(lambda _: answer(b"", status=next(answers, "204 No Content"), headers=["Location: /elsewhere"]))
    async with site.server() as server:
        world = watched(project, server.url)
        add_source(world.catalog, status="unreachable", is_up=False)
        await world.watch.look()
        await world.watch.settled()
        assert len(site.asked) == 3
        assert len({asked.json["id"] for asked in site.asked}) == 1
        await world.watch.look()
        await world.watch.settled()
        assert len(site.asked) == 3
        world.clock.now += ALERT_AGAIN_S
        await world.watch.look()
        await world.watch.settled()
    assert [asked.target for asked in site.asked] == ["/"] * 4


async def test_no_call_waits_for_a_receiver_that_never_answers(project: Project) -> None:
    ending = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await ending.wait()

    site = receiver()
    server = site.server()
    server._script = silent
    async with server:
        world = watched(project, server.url)
        add_source(world.catalog, status="unreachable", is_up=False)

        @world.catalog.tool
        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        async with inside(http_app(world.catalog)) as client:
            async with asyncio.timeout(PATIENCE_S):
                while not server.bodies:
                    await asyncio.sleep(0.01)
            assert (await call(client, "add", {"a": 1, "b": 2}))["result"]["structuredContent"] == 3
        ending.set()


async def test_a_flood_is_cut_to_sixty_messages_an_hour_and_the_rest_is_counted_and_follows(project: Project) -> None:
    site = receiver()
    async with site.server() as server:
        world = watched(project, server.url, on="down")
        extra = 5
        for number in range(ALERTS_AN_HOUR + extra):
            world.catalog.add_source(
                FakeSource(name=f"s{number:03}", now=SourceState(status="unreachable", is_up=False))
            )
        await world.watch.look()
        await world.watch.settled()
        await world.watch.look()
        await world.watch.settled()
        assert len(site.asked) == ALERTS_AN_HOUR
        world.clock.now += 3_600.0
        await world.look()
    assert len({asked.json["subject"] for asked in site.asked}) == len(site.asked) == ALERTS_AN_HOUR + extra
    assert sum(asked.json["left_out"] for asked in site.asked) == extra


async def test_of_several_workers_one_sends_and_the_next_goes_on_where_it_ended(project: Project) -> None:
    site = receiver()
    async with site.server() as server:
        world = watched(project, server.url)
        source = add_source(world.catalog, status="unreachable", is_up=False)
        workers = [world.watch, world.another(), world.another()]
        async with workers[0].running():
            for worker in workers:
                await world.look(worker)
            assert told(site) == [("down", "began", "files")]
        await world.look(workers[1])
        assert len(site.asked) == 1
        source.now = SourceState()
        await world.look(workers[2])
        await world.look(workers[1])
        await world.look(workers[2])
    assert told(site) == [("down", "began", "files"), ("down", "over", "files")]
    stored = project.folder / ".pegboard-alerts.json"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert SECRET not in stored.read_text()


async def test_secrets_that_an_earlier_version_stored_are_removed_while_the_alert_is_still_true(
    project: Project,
) -> None:
    site, stored = receiver(), project.folder / ".pegboard-alerts.json"
    async with site.server() as server:
        world = watched(project, server.url, on="down")
        add_source(world.catalog, status="unreachable", is_up=False)
        async with world.watch.running():
            await world.look()
        written = stored.read_text()
        stored.write_text(written.replace('"text":"', f'"text":"{CANARY} '))
        assert CANARY in stored.read_text()
        await world.look(world.another())
    assert told(site) == [("down", "began", "files")]
    assert CANARY not in stored.read_text()


async def test_a_command_gets_the_message_as_a_line_and_one_that_fails_is_run_again(project: Project) -> None:
    program = (
        project.file("notify", "#!/bin/sh\ncat >> got.jsonl\ntest -e fine || { touch fine; exit 3; }\n").folder
        / "notify"
    )
    program.chmod(0o700)
    world = Watched(project.write("alerts:\n  - {on: [down], to: {command: [./notify]}}\n"))
    add_source(world.catalog, status="unreachable", is_up=False)
    await world.look()
    await world.look()
    lines = [orjson.loads(line) for line in (project.folder / "got.jsonl").read_text().splitlines()]
    assert [line["subject"] for line in lines] == ["files", "files"]
    assert lines[0] == lines[1]


SERVICES = """
python: [alert_tools]
consents: {store: "sqlite:consents.db"}
audit: {store: "jsonl:rows/audit.jsonl"}
tasks: {store: memory}
"""
TOOLS = """
import asyncio
from pegboard import CallError, default_catalog

@default_catalog.tool(consent="always")
async def refund(account: str) -> str:
    "Refund."
    return account

@default_catalog.tool
async def spend() -> str:
    "Spend."
    raise CallError("budget_exceeded", "The budget is used up.")

@default_catalog.tool(task="required")
async def wait() -> str:
    "Wait."
    await asyncio.sleep(600)
    return "done"
"""


async def test_stores_config_audit_tasks_questions_and_budgets_are_reported_and_over_when_they_are(
    project: Project,
) -> None:
    (project.folder / "rows").mkdir(mode=0o700)
    project.file("alert_tools.py", TOOLS)
    site = receiver()
    async with site.server() as server:
        world = watched(project, server.url, more=SERVICES)
        catalog, clock = world.catalog, world.clock
        ann = catalog.view(ToolContext(user_id="ann"))
        await world.look()
        assert told(site) == []
        assert (await ann.call("refund", {"account": CANARY})).error is not None
        assert (await ann.call("spend", {})).error is not None
        task = (await ann.call("wait", {})).task_id
        assert task is not None
        world.problems.append(Problem(where="pegboard.yaml:3:1", message=f"{CANARY!r} is not a port"))
        ports = catalog.executor.ports
        catalog.executor.swap(replace(ports, wall_clock=lambda: ports.wall_clock() + TASK_STUCK_S + 60))
        await ports.audit.close()  # type: ignore[union-attr]
        rows = project.folder / "rows"
        rows.rename(project.folder / "moved")
        await ann.call("spend", {})
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(ports.audit.fault):  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        await world.look()
        question = (await ports.consents.listed())[0].id  # type: ignore[attr-defined]
        assert sorted(told(site)) == [
            ("audit_broken", "began", "audit"),
            ("budget", "began", "ann"),
            ("config_refused", "began", "config"),
            ("consent_waiting", "began", question),
            ("store_down", "began", "audit"),
            ("task_stuck", "began", task),
        ]
        (project.folder / "moved").rename(rows)
        world.problems.clear()
        await ports.consents.decide(question, is_yes=False, decided_by="operator")  # type: ignore[attr-defined]
        await catalog.tasks.cancel(task, ToolContext(user_id="ann"))
        async with asyncio.timeout(PATIENCE_S):
            while await asyncio.to_thread(ports.audit.fault):  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        clock.now += BUDGET_OVER_S
        await world.look()
        assert {alert for alert, status, _ in told(site) if status == "over"} == {
            "audit_broken", "budget", "config_refused", "consent_waiting", "store_down", "task_stuck",
        }  # fmt: skip
        assert not any(CANARY.encode() in asked.body for asked in site.asked)
        await catalog.close(grace_s=0)


async def test_while_the_inbox_does_not_answer_its_questions_do_not_count_as_decided(project: Project) -> None:
    project.file("alert_tools.py", TOOLS)
    (project.folder / "rows").mkdir(mode=0o700)
    site = receiver()
    async with site.server() as server:
        world = watched(project, server.url, on="consent_waiting, store_down", more=SERVICES)
        await world.catalog.view(ToolContext(user_id="ann")).call("refund", {"account": "a1"})
        await world.look()
        inbox = project.folder / "consents.db"
        content = inbox.read_bytes()
        inbox.write_text("not a database " * 100)
        await world.look()
        inbox.write_bytes(content)
        await world.look()
        await world.catalog.close(grace_s=0)
    assert [(alert, status) for alert, status, _ in told(site)] == [
        ("consent_waiting", "began"), ("store_down", "began"), ("store_down", "over"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("alert", "problem"),
    [
        ("{on: [down], to: 'https://a.test/'}", "an alert to a URL needs `secret`"),
        ("{on: [down], to: 'http://a.test/', secret: s}", "alerts would be sent unencrypted"),
        ("{on: [down], to: 'https://ann:pw@a.test/', secret: s}", "is not an http or https URL"),
        ("{on: [down], to: 'ops@a.test', secret: s}", "is not an http or https URL"),
        ("{on: [down], to: {command: [notify]}, secret: s}", "`secret` signs messages to a URL"),
        ("{on: [down], to: {command: ['${CODE}']}}", "the environment does not decide which code runs"),
        ("{on: [], to: {command: [notify]}}", "`on` is empty"),
        ("{on: [down], to: {command: []}}", "`command` is empty"),
        ("{on: [dwon], to: {command: [notify]}}", "Did you mean 'down'?"),
    ],
)
def test_an_alert_that_cannot_be_sent_is_refused_with_what_to_write(project: Project, alert: str, problem: str) -> None:
    project.env = {"CODE": "notify"}
    assert problem in project.write(f"alerts:\n  - {alert}\n").said()[0]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def test_two_workers_send_one_message_of_a_refused_config_and_one_when_it_is_mended(project: Project) -> None:
    site = receiver()
    async with site.server() as server:
        text = f'alerts:\n  - {{on: [config_refused], to: "{server.url}", secret: {SECRET}}}\n'
        project.write(text)
        async with serving(project.folder, "--workers", "2", "--reload"):
            project.write(text + "tools: [{name: a, type: nothing}]\n")
            await until(lambda: len(site.asked) == 1)
            project.write(text + "groups: {core: Tools}\n")
            await until(lambda: len(site.asked) == 2)
    assert told(site) == [("config_refused", "began", "config"), ("config_refused", "over", "config")]
    assert "type" in site.asked[0].json["text"]
