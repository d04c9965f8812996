"""Availability: predicates run at most once a context, and every doubt hides the tool."""

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from pegboard import AsyncPredicateError, Bounds, Catalog, DefinitionError, ToolContext, ToolSpec, View
from pegboard.model.source_state import SourceState
from tests.core.parts import ANN, FakeSource, echo, kind_of, one_tool
from tests.timing import PATIENCE_S, is_within


def asking(available: object, **said: Any) -> Catalog:
    return one_tool(available=available, **said)


def is_on(catalog: Catalog, ctx: ToolContext = ANN) -> bool:
    return catalog.view(ctx).find("echo") is not None


# ---------------------------------------------------------------- once a context


def test_a_predicate_that_answers_no_runs_once_under_100_threads() -> None:
    asked: list[ToolContext] = []
    gate = threading.Barrier(100)
    catalog = Catalog()

    @catalog.predicate
    def is_open(ctx: ToolContext) -> bool:
        asked.append(ctx)
        return False

    catalog.register(ToolSpec(name="echo", available="is_open"), echo)
    ctx = ToolContext()

    def look(_: int) -> bool:
        gate.wait()
        return catalog.view(ctx).find("echo") is not None

    with ThreadPoolExecutor(100) as threads:
        assert set(threads.map(look, range(100))) == {False}
    assert asked == [ctx]


async def test_it_runs_once_under_100_tasks_and_views_of_all_kinds() -> None:
    asked: list[str] = []
    catalog = Catalog()

    @catalog.predicate
    async def online(ctx: ToolContext) -> bool:
        asked.append("online")
        await asyncio.sleep(0)
        return False

    @catalog.predicate(blocking=True)
    def on_disk(ctx: ToolContext) -> bool:
        asked.append("on_disk")
        return False

    catalog.register(ToolSpec(name="a", available="online"), echo)
    catalog.register(ToolSpec(name="b", available={"any": ["on_disk", "online"]}), echo)
    ctx = ToolContext(budget=None)

    async def look(number: int) -> object:
        if number % 2:
            return (await catalog.aview(ctx)).tools()
        return kind_of(await catalog.view(ctx).call("ab"[number % 4 // 2], {}))

    assert set(await asyncio.gather(*map(look, range(100)))) == {(), "not_found"}
    assert sorted(asked) == ["on_disk", "online"]


def test_another_context_and_a_child_ask_again() -> None:
    asked: list[ToolContext] = []
    catalog = asking(lambda ctx: bool(asked.append(ctx)))
    ctx = ToolContext()
    assert [is_on(catalog, who) for who in (ctx, ctx, ToolContext(), ctx.child())] == [False] * 4
    assert len(asked) == 3


def test_only_the_predicates_of_the_tool_in_question_are_asked() -> None:
    asked: list[str] = []
    catalog = Catalog()
    for name in ("a", "b"):
        catalog.predicate(name=f"has_{name}")(lambda ctx, name=name: not asked.append(name))
        catalog.register(ToolSpec(name=name, available=f"has_{name}"), echo)
    assert catalog.view(ToolContext()).why("b").visible
    assert asked == ["b"]


# ---------------------------------------------------------------- every doubt is a no


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_predicate_that_asks_for_a_factory_answers_no_without_one(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def later(ctx: ToolContext) -> bool:
        return bool(ctx.factory("mailer"))

    catalog = Catalog()
    ask = later if is_async else (lambda ctx: bool(ctx.factory("mailer")))
    catalog.register(ToolSpec(name="echo", available=ask), echo)
    decision = await catalog.view(ToolContext()).awhy("echo")
    assert decision.code == "available"
    assert decision.reason.endswith("answered no: no factory 'mailer' in the context")
    assert caplog.text == ""
    assert (await catalog.view(ToolContext(factories={"mailer": str})).awhy("echo")).visible
    with pytest.raises(KeyError) as missing:
        ToolContext().factory("mailer")
    assert str(missing.value) == "no factory 'mailer' in the context"


def test_a_predicate_that_answers_a_function_hides_the_tool_and_says_what_was_meant() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="echo", available=lambda ctx: ctx.factory("mailer")), echo)
    decision = catalog.view(ToolContext(factories={"mailer": lambda ctx: None})).why("echo")
    assert (decision.visible, '`"name" in ctx.factories`' in decision.reason) == (False, True)


@pytest.mark.parametrize("given", [1, "True", None, [True], object()])
def test_an_answer_that_is_no_bool_hides_the_tool_and_is_logged(
    given: object, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog()
    catalog.predicate(name="odd")(lambda ctx: given)
    catalog.register(ToolSpec(name="echo", available="odd"), echo)
    assert not is_on(catalog, ToolContext())
    assert f"'odd' gave {type(given).__name__}, not a bool" in caplog.text


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), RecursionError(), StopIteration()]
)
async def test_a_predicate_that_raises_hides_the_tool_and_is_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(ctx: ToolContext) -> bool:
        raise error

    async def broken_later(ctx: ToolContext) -> bool:
        raise error

    catalog = Catalog()
    catalog.register(ToolSpec(name="a", available=broken), echo)
    catalog.register(ToolSpec(name="b", available={"any": [broken, broken]}), echo)
    if not isinstance(error, StopIteration | KeyboardInterrupt | SystemExit):
        catalog.register(ToolSpec(name="c", available=broken_later), echo)
    view = await catalog.aview(ToolContext())
    assert view.tools() == ()
    assert view.why("a").code == "available"
    assert type(error).__name__ in view.why("a").reason
    assert "hidden" in caplog.text


async def test_an_async_or_blocking_predicate_has_one_second() -> None:
    release = threading.Event()
    catalog = Catalog()

    @catalog.predicate
    async def hangs(ctx: ToolContext) -> bool:
        await asyncio.Event().wait()
        return True

    @catalog.predicate(blocking=True)
    def blocks(ctx: ToolContext) -> bool:
        return release.wait()

    catalog.register(ToolSpec(name="a", available="hangs"), echo)
    catalog.register(ToolSpec(name="b", available="blocks"), echo)
    catalog.register(ToolSpec(name="c"), echo)
    started = time.monotonic()
    view = await catalog.aview(ToolContext())
    took_s = time.monotonic() - started
    release.set()
    assert [tool.wire_name for tool in view.tools()] == ["c"]
    assert took_s > 0.9
    assert is_within(took_s, 1.9)
    assert "1 s" in view.why("a").reason


async def test_async_and_blocking_predicates_are_asked_together() -> None:
    catalog, has_begun = Catalog(bounds=Bounds(predicate_s=PATIENCE_S)), asyncio.Event()
    loop, blocks_now, meets = asyncio.get_running_loop(), threading.Event(), list[str]()

    @catalog.predicate
    async def waits(ctx: ToolContext) -> bool:
        blocks_now.set()
        await has_begun.wait()
        meets.append("waits")
        return True

    @catalog.predicate(blocking=True)
    def blocks(ctx: ToolContext) -> bool:
        loop.call_soon_threadsafe(has_begun.set)
        meets.append("blocks")
        return blocks_now.wait(PATIENCE_S)

    catalog.register(ToolSpec(name="a", available="waits"), echo)
    catalog.register(ToolSpec(name="b", available="blocks"), echo)
    assert [tool.wire_name for tool in (await catalog.aview(ToolContext())).tools()] == ["a", "b"]
    assert sorted(meets) == ["blocks", "waits"]


@pytest.mark.slow
def test_a_plain_predicate_that_takes_more_than_a_second_counts_as_no(caplog: pytest.LogCaptureFixture) -> None:
    def slow(ctx: ToolContext) -> bool:
        time.sleep(1.05)
        return True

    assert not is_on(asking(slow), ToolContext())
    assert "more than 1 s" in caplog.text


def test_a_predicate_that_asks_for_itself_hides_the_tool_and_does_not_hang() -> None:
    catalog = Catalog()

    @catalog.predicate
    def curious(ctx: ToolContext) -> bool:
        return catalog.view(ctx).why("echo").visible

    catalog.register(ToolSpec(name="echo", available="curious"), echo)
    assert not is_on(catalog, ToolContext())


async def test_async_predicates_that_wait_for_each_other_end_as_no() -> None:
    catalog = Catalog()

    @catalog.predicate
    async def left(ctx: ToolContext) -> bool:
        return (await catalog.view(ctx).awhy("right")).visible

    @catalog.predicate
    async def right(ctx: ToolContext) -> bool:
        return (await catalog.view(ctx).awhy("left")).visible

    catalog.register(ToolSpec(name="left", available="left"), echo)
    catalog.register(ToolSpec(name="right", available="right"), echo)
    assert (await catalog.aview(ToolContext())).tools() == ()


# ---------------------------------------------------------------- async ones and synchronous questions


async def test_a_synchronous_question_names_the_async_predicate_until_it_is_answered() -> None:
    catalog = Catalog()

    @catalog.predicate
    async def online(ctx: ToolContext) -> bool:
        return True

    catalog.register(ToolSpec(name="echo", available="online"), echo)
    view = catalog.view(ToolContext())
    questions = (
        view.tools,
        view.names,
        lambda: view.find("echo"),
        lambda: view.why("echo"),
        lambda: view.export("mcp"),
    )
    for question in questions:
        with pytest.raises(AsyncPredicateError, match=r"'online'.*aview"):
            question()
    assert await view.afind("echo") is not None
    assert [tool.wire_name for tool in view.tools()] == ["echo"]


async def test_a_call_awaits_only_what_its_own_tool_needs() -> None:
    asked: list[str] = []
    catalog = Catalog()
    for name in ("a", "b"):

        async def has(ctx: ToolContext, name: str = name) -> bool:
            asked.append(name)
            return True

        catalog.register(ToolSpec(name=name, available=has), echo)
    assert kind_of(await catalog.view(ToolContext()).call("a", {})) == "ok"
    assert asked == ["a"]


async def test_aview_asks_only_for_the_selected_tools_and_all_of_them_together() -> None:
    asked: list[str] = []
    both = asyncio.Barrier(2)
    catalog = Catalog()
    for name in ("a", "b", "c"):

        async def has(ctx: ToolContext, name: str = name) -> bool:
            asked.append(name)
            await both.wait()
            return True

        catalog.register(ToolSpec(name=name, available=has, groups=("chat" if name == "c" else "core",)), echo)
    view = await catalog.aview(ToolContext(), include=["core"])
    assert sorted(asked) == ["a", "b"]
    assert view.names() == ["a", "b"]


async def test_a_caller_who_gives_up_does_not_spoil_the_answer_for_others() -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    catalog = Catalog()

    async def has(ctx: ToolContext) -> bool:
        entered.set()
        await release.wait()
        return True

    catalog.register(ToolSpec(name="echo", available=has), echo)
    ctx = ToolContext()
    first = asyncio.create_task(catalog.aview(ctx))
    await entered.wait()
    second = asyncio.create_task(catalog.aview(ctx))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert (await second).names() == ["echo"]


# ---------------------------------------------------------------- forms


@dataclass(frozen=True, kw_only=True)
class Desk(ToolContext):
    """A host's own context."""

    plan: str | None = None

    @property
    def is_pro(self) -> bool:
        return self.plan == "pro"

    def has_queue(self) -> bool:
        return self.message_queue is not None

    async def is_paid(self) -> bool:
        return self.plan == "pro"


@pytest.mark.parametrize("name", ["is_pro", "has_queue"])
def test_a_property_or_method_of_the_context_is_a_predicate(name: str) -> None:
    catalog = one_tool(available=name, catalog=Catalog(context_type=Desk))
    assert not is_on(catalog, Desk())
    assert is_on(catalog, Desk(plan="pro", message_queue=deque()))


async def test_an_async_method_of_the_context_is_a_predicate() -> None:
    catalog = one_tool(available="is_paid", catalog=Catalog(context_type=Desk))
    assert (await catalog.aview(Desk(plan="pro"))).names() == ["echo"]
    assert (await catalog.aview(Desk())).names() == []


def test_an_empty_queue_counts_as_present() -> None:
    catalog = asking("message_queue")
    assert not is_on(catalog, ToolContext())
    assert is_on(catalog, ToolContext(message_queue=deque()))
    assert is_on(catalog, ToolContext(message_queue=[]))


@pytest.mark.parametrize(
    ("form", "on"),
    [
        (None, True),
        (True, True),
        ("always", True),
        (False, False),
        (lambda ctx: True, True),
        ({"all": []}, True),
        ({"any": []}, False),
        ({"not": {"any": ["no", "yes"]}}, False),
        ({"not": "no"}, True),
        ({"not": "raises"}, False),
        ({"not": {"not": "raises"}}, False),
        ({"all": ["yes", {"any": ["no", "yes"]}]}, True),
        ({"all": ["yes", {"source": "down"}]}, False),
        ({"not": {"source": "down"}}, True),
    ],
)
def test_each_form_says_when_the_tool_is_on(form: object, on: bool) -> None:
    catalog = Catalog()
    catalog.predicate(name="yes")(lambda ctx: True)
    catalog.predicate(name="no")(lambda ctx: False)
    catalog.predicate(name="raises")(lambda ctx: 1 / 0)
    catalog.add_source(FakeSource(name="down", now=SourceState(status="unreachable", is_up=False)))
    catalog.register(ToolSpec(name="echo", available=form), echo)
    view = catalog.view(ToolContext())
    assert (view.find("echo") is not None, view.why("echo").visible, view.names() == ["echo"]) == (on, on, on)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("sentry_configurd", "Unknown predicate 'sentry_configurd'. Did you mean 'sentry_configured'?"),
        ("_memo", "Unknown predicate '_memo'"),
        ({"source": "gti"}, "no source 'gti'. Did you mean 'git'?"),
        ({"all": ["sentry_configured"], "any": []}, "write a predicate's name"),
        ({"all": "sentry_configured"}, "write a predicate's name"),
        ({"none": []}, "write a predicate's name"),
        (3, "write a predicate's name"),
    ],
)
def test_a_condition_that_cannot_be_honoured_is_refused_at_the_first_snapshot(form: object, words: str) -> None:
    catalog = Catalog()
    catalog.predicate(name="sentry_configured")(lambda ctx: True)
    catalog.add_source(FakeSource(name="git"))
    catalog.register(ToolSpec(name="echo", available=form, origin="tools.py:7"), echo)
    catalog.register(ToolSpec(name="other", available=form), echo)
    with pytest.raises(DefinitionError) as caught:
        catalog.snapshot()
    assert words in str(caught.value)
    assert [problem.path for problem in caught.value.problems] == ["main.echo", "main.other"], "all faults at once"
    assert str(caught.value).startswith("tools.py:7")


def test_a_second_predicate_of_one_name_is_refused() -> None:
    catalog = Catalog()
    catalog.predicate(name="yes")(lambda ctx: True)
    with pytest.raises(DefinitionError, match="there is a predicate 'yes' already"):
        catalog.predicate(name="yes")(lambda ctx: False)


def reason(view: View) -> str:
    return view.why("echo").reason


def test_the_reason_names_the_part_that_said_no() -> None:
    catalog = Catalog()
    catalog.predicate(name="yes")(lambda ctx: True)
    catalog.predicate(name="no")(lambda ctx: False)
    catalog.register(ToolSpec(name="echo", available={"all": ["yes", {"any": ["no", False]}, {"not": "yes"}]}), echo)
    decision = catalog.view(ToolContext()).why("echo")
    assert decision.reason == "none of: predicate 'no' answered no; it is switched off (available: false)"
    assert decision.fix is not None
    assert (decision.fix.subject, decision.next) == ("main.echo", None)


async def test_an_async_predicate_that_cancels_itself_hides_the_tool() -> None:
    async def selfish(ctx: ToolContext) -> bool:
        raise asyncio.CancelledError

    catalog = one_tool(available=selfish)
    assert kind_of(await catalog.view(ToolContext()).call("echo")) == "not_found"
