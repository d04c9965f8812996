"""Consent: when a person is asked, what counts as a yes, and what a yes binds."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pegboard import CallError, Catalog, ConsentRequest, Policy, RateLimit, ToolContext, Verdict
from pegboard.consent.limits import CONSENT_DECLINED_S, CONSENT_GOOD_S
from pegboard.consent.memory_answers import MemoryConsents
from pegboard.core.digests import digest
from pegboard.model.record import replace
from pegboard.model.tool import Annotations
from tests.core.parts import ANN, Clock, FakeSource, Recorder, echo, foreign, kind_of, one_tool, spec


def approving(answer: Any) -> ToolContext:
    return replace(ANN, approve=lambda request: answer)


# ---------------------------------------------------------------- when


@pytest.mark.parametrize(
    ("rule", "hints", "args", "asked"),
    [
        ("never", {"destructive": True}, {}, False),
        ("always", {"read_only": True}, {}, True),
        ("destructive", {"destructive": True}, {}, True),
        ("destructive", {"destructive": False}, {}, False),
        ("destructive", {}, {}, False),
        (lambda args: args["n"] > 100, {}, {"n": 101}, True),
        (lambda args: args["n"] > 100, {}, {"n": 100}, False),
        (lambda args: args["missing"], {}, {}, True),
        (lambda args: None, {}, {}, True),
        (lambda args: 0, {}, {}, True),
    ],
)
async def test_a_person_is_asked_when_the_rule_says_so_or_fails(rule: Any, hints: Any, args: Any, asked: bool) -> None:
    view = one_tool(consent=rule, annotations=Annotations(**hints)).view(ANN)
    assert kind_of(await view.call("echo", args)) == ("consent_required" if asked else "ok")


@pytest.mark.parametrize(
    ("hints", "asked"),
    [({}, True), ({"destructive": False}, True), ({"destructive": True}, True), ({"read_only": True}, False)],
)
async def test_a_foreign_tool_may_destroy_unless_it_only_reads(hints: Any, asked: bool) -> None:
    catalog = Catalog()
    tool = foreign("git", "push", consent="destructive", annotations=Annotations(**hints))
    catalog.add_source(FakeSource(name="git", listed=[tool]))
    assert kind_of(await catalog.view(ANN).call("git__push", {})) == ("consent_required" if asked else "ok")


@pytest.mark.parametrize(
    ("hints", "reason"),
    [
        (
            Annotations(extra={"readOnlyHint": True}),
            "is read-only according to its server, whose hints are not trusted",
        ),
        (Annotations(extra={"readOnlyHint": True}, destructive=True), "may destroy something"),
        (Annotations(extra={"readOnlyHint": False}), "may destroy something"),
    ],
)
async def test_a_question_about_a_tool_listed_as_read_only_gives_the_missing_trust_as_its_reason(
    hints: Annotations, reason: str
) -> None:
    catalog = Catalog()
    catalog.add_source(
        FakeSource(name="git", listed=[foreign("git", "status", consent="destructive", annotations=hints)])
    )
    assert f"'git__status' {reason}" in (await catalog.view(ANN).call("git__status", {})).text


# ---------------------------------------------------------------- what counts as a yes


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (True, "ok"),
        (None, "consent_required"),
        *((answer, "consent_declined") for answer in (False, 1, "yes", object())),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_only_true_is_a_yes(answer: Any, kind: str, is_async: bool) -> None:
    async def later(request: ConsentRequest) -> Any:
        await asyncio.sleep(0)
        return answer

    ctx = replace(ANN, approve=later) if is_async else approving(answer)
    assert kind_of(await one_tool(consent="always").view(ctx).call("echo")) == kind


@pytest.mark.parametrize("error", [ValueError("no database"), SystemExit(1)])
async def test_a_question_that_fails_is_a_no(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def approve(request: ConsentRequest) -> bool:
        raise error

    result = await one_tool(consent="always").view(replace(ANN, approve=approve)).call("echo")
    assert kind_of(result) == "consent_declined"
    assert "taken as a no" in caplog.text


async def test_the_host_may_refuse_with_a_kind_of_its_own() -> None:
    def approve(request: ConsentRequest) -> bool:
        raise CallError("consent_expired", "The question is an hour old.")

    assert (
        kind_of(await one_tool(consent="always").view(replace(ANN, approve=approve)).call("echo")) == "consent_expired"
    )


async def test_nobody_to_ask_and_nobody_who_answers_are_told_apart() -> None:
    clock = Clock(100.0)
    catalog = one_tool(consent="always", catalog=Catalog(clock=clock))
    assert kind_of(await catalog.view(ANN).call("echo")) == "consent_required"

    async def never(request: ConsentRequest) -> bool:
        await asyncio.Event().wait()
        return True

    ctx = replace(ANN, approve=never, deadline=100.05)
    assert kind_of(await catalog.view(ctx).call("echo")) == "consent_expired"


async def test_waiting_for_a_person_is_not_charged_to_the_timeout() -> None:
    async def slow(request: ConsentRequest) -> bool:
        await asyncio.sleep(0.1)
        return True

    assert (
        kind_of(await one_tool(consent="always", timeout_s=0.05).view(replace(ANN, approve=slow)).call("echo")) == "ok"
    )


async def test_a_call_can_be_cancelled_while_a_person_thinks() -> None:
    recorder, asked = Recorder(), asyncio.Event()

    async def approve(request: ConsentRequest) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    catalog = one_tool(consent="always")
    running = asyncio.create_task(catalog.view(replace(ANN, approve=approve)).call("echo", callbacks=recorder))
    await asked.wait()
    assert catalog.cancel(recorder.events[0].call_id)
    assert kind_of(await running) == "cancelled"
    assert [event.ok for event in recorder.results()] == [False]


# ---------------------------------------------------------------- what it binds


async def test_the_question_binds_definition_arguments_and_person() -> None:
    asked: list[ConsentRequest] = []
    catalog = one_tool(properties={"n": {"type": "integer", "default": 2}}, consent="always")
    ctx = ToolContext(
        user_id="ann", space_id="s1", session_id="x", agent="bot", approve=lambda request: not asked.append(request)
    )
    await catalog.view(ctx).call("echo", {})
    [request] = asked
    assert (request.tool, request.user_id, request.space_id, request.session_id, request.agent) == (
        "main.echo", "ann", "s1", "x", "bot",
    )  # fmt: skip
    assert request.definition_hash == catalog.snapshot().entries[0].fingerprint
    assert (request.arguments, request.args_digest) == ({"n": 2}, digest({"n": 2}))
    assert "'echo'" in request.reason


async def test_arguments_changed_after_the_yes_are_refused() -> None:
    ran: list[Any] = []

    async def work(ctx: Any, args: Any) -> None:
        ran.append(args)

    def approve(request: ConsentRequest) -> bool:
        request.arguments["n"] = 1_000  # type: ignore[index]
        return True

    view = one_tool(work, consent="always").view(replace(ANN, approve=approve))
    assert (kind_of(await view.call("echo", {"n": 1})), ran) == ("consent_mismatch", [])


async def test_a_definition_changed_after_the_yes_is_refused() -> None:
    catalog = one_tool(consent="always")

    def approve(request: ConsentRequest) -> bool:
        catalog.register(spec(consent="always", description="Now it deletes."), echo, replace=True)
        return True

    assert kind_of(await catalog.view(replace(ANN, approve=approve)).call("echo")) == "consent_mismatch"


async def test_a_tool_that_is_gone_after_the_yes_is_unknown() -> None:
    catalog = one_tool(consent="always")

    def approve(request: ConsentRequest) -> bool:
        catalog.unregister("echo")
        return True

    assert kind_of(await catalog.view(replace(ANN, approve=approve)).call("echo")) == "not_found"


async def test_a_source_that_went_down_while_a_person_thought_stops_the_call() -> None:
    catalog = Catalog()
    source = FakeSource(name="git", listed=[foreign("git", "push", consent="always")])
    catalog.add_source(source)

    def approve(request: ConsentRequest) -> bool:
        source.now = replace(source.now, status="unreachable", is_up=False)
        return True

    assert kind_of(await catalog.view(replace(ANN, approve=approve)).call("git__push", {})) == "not_found"


async def test_a_yes_is_good_for_one_call() -> None:
    asked: list[Any] = []
    view = one_tool(consent="always").view(replace(ANN, approve=lambda request: not asked.append(request)))
    await asyncio.gather(*(view.call("echo", {"n": 1}) for _ in range(5)))
    assert len(asked) == 5
    assert len({request.call_id for request in asked}) == 5


async def test_a_limit_that_filled_up_while_a_person_thought_refuses_the_call() -> None:
    answers: list[asyncio.Event] = []

    async def approve(request: ConsentRequest) -> bool:
        answers.append(asyncio.Event())
        await answers[-1].wait()
        return True

    catalog = one_tool(consent="always", rate_limit=RateLimit(max_calls=1, window_s=60.0))
    view = catalog.view(replace(ANN, approve=approve))
    running = [asyncio.create_task(view.call("echo")) for _ in range(2)]
    while len(answers) < 2:
        await asyncio.sleep(0)
    for answer in answers:
        answer.set()
    assert sorted(kind_of(result) for result in await asyncio.gather(*running)) == ["ok", "rate_limited"]


async def test_a_yes_that_served_no_call_serves_the_next_one_within_its_hour() -> None:
    for waited_s, asked in ((CONSENT_GOOD_S - 1, 2), (CONSENT_GOOD_S, 3)):
        questions: list[ConsentRequest] = []
        together = asyncio.Barrier(2)

        async def approve(request: ConsentRequest, questions: Any = questions, together: Any = together) -> bool:
            questions.append(request)
            if len(questions) <= 2:
                await together.wait()
            return True

        clock, wall = Clock(), Clock()
        catalog = one_tool(
            consent="always", rate_limit=RateLimit(max_calls=1, window_s=60.0), catalog=Catalog(clock=clock)
        )
        catalog.executor.swap(replace(catalog.executor.ports, wall_clock=wall, consents=MemoryConsents(wall)))
        view = catalog.view(replace(ANN, approve=approve))
        results = await asyncio.gather(view.call("echo"), view.call("echo"))
        assert sorted(map(kind_of, results)) == ["ok", "rate_limited"]
        clock.now += 61
        wall.now += waited_s
        assert (kind_of(await view.call("echo")), len(questions)) == ("ok", asked)


async def test_a_no_is_remembered_for_a_day() -> None:
    questions: list[ConsentRequest] = []
    catalog, wall = one_tool(consent="always"), Clock()
    catalog.executor.swap(replace(catalog.executor.ports, wall_clock=wall, consents=MemoryConsents(wall)))
    view = catalog.view(replace(ANN, approve=lambda request: questions.append(request)))
    declining = catalog.view(replace(ANN, approve=lambda request: questions.append(request) or False))
    assert kind_of(await declining.call("echo")) == "consent_declined"
    wall.now += CONSENT_DECLINED_S - 1
    assert (kind_of(await view.call("echo")), len(questions)) == ("consent_declined", 1)
    wall.now += 1
    assert (kind_of(await view.call("echo")), len(questions)) == ("consent_required", 2)


# ---------------------------------------------------------------- other ways to ask


class Bridge:
    """A client that can ask its person."""

    supports_ui = False

    def __init__(self, answer: Callable[[], bool | None]) -> None:
        self.answer = answer

    async def elicit(self, message: str, schema: Any = None) -> Any:
        return {"message": message, "schema": schema}

    async def approve(self, request: ConsentRequest) -> bool | None:
        return self.answer()


@pytest.mark.parametrize(("answer", "kind"), [(True, "ok"), (False, "consent_declined"), (None, "consent_required")])
async def test_the_client_is_asked_where_the_host_gave_no_callback(answer: bool | None, kind: str) -> None:
    view = one_tool(consent="always").view(replace(ANN, client=Bridge(lambda: answer)))
    assert kind_of(await view.call("echo")) == kind


async def test_the_hosts_callback_comes_before_the_client() -> None:
    ctx = replace(approving(False), client=Bridge(lambda: True))
    assert kind_of(await one_tool(consent="always").view(ctx).call("echo")) == "consent_declined"


async def test_a_declined_call_is_told_not_to_ask_again_and_one_denied_by_policy_is_never_asked() -> None:
    asked: list[Any] = []
    catalog = one_tool(consent="always")
    result = await catalog.view(approving(False)).call("echo")
    assert "Do not ask again" in result.text
    ctx = replace(ANN, policy=Policy(deny=("echo",)), approve=lambda request: not asked.append(request))
    assert (kind_of(await catalog.view(ctx).call("echo")), asked) == ("not_found", [])


async def test_a_hook_that_asks_cannot_be_outvoted_by_a_rule_that_never_asks(caplog: pytest.LogCaptureFixture) -> None:
    catalog = one_tool(consent="never")
    catalog.before()(lambda call: Verdict.ask(""))
    with caplog.at_level(logging.DEBUG):
        result = await catalog.view(ANN).call("echo")
    assert kind_of(result) == "consent_required"
    assert "asks for approval" in result.text
