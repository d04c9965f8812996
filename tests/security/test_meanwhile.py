"""What changed while a person thought counts: on every door the call is judged as it is when the yes comes."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from pegboard import (
    AsyncPredicateError,
    CallContext,
    Catalog,
    ConsentRequest,
    Policy,
    Profile,
    ToolContext,
    Verdict,
    http_app,
)
from pegboard.config import context_for
from pegboard.model.record import replace
from tests.config.project import Project
from tests.config.test_reload import reloader_of
from tests.core.parts import ANN, Clock, Recorder, kind_of, one_tool
from tests.server.doors import served
from tests.server.processes import PEGBOARD

CONFIG = """
predicates: {open: {python: "python:mine:is_open"}}
profiles:
  chat: {include: [core], exposure: direct}
tools:
  - {name: pay, type: internal, handler: "python:mine:pay", consent: always, available: open}
  - {name: ask_and_pay, type: internal, handler: "python:mine:ask_and_pay", available: open}
"""
MODULE = '''
from pathlib import Path
from pegboard import CallContext, CallError, Verdict

FOLDER = Path(__file__).parent


def is_open() -> bool:
    return not (FOLDER / "closed").exists()


async def pay(to: str) -> str:
    """Pay somebody."""
    with (FOLDER / "paid").open("a") as paid:
        paid.write(to + ";")
    return "paid " + to


async def ask_and_pay(ctx: CallContext, to: str) -> str:
    """Ask for the amount, then pay."""
    amount = await ctx.client.elicit("How much?", {"type": "integer"})
    with (FOLDER / "paid").open("a") as paid:
        paid.write(f"{to} {amount};")
    return "paid"


def refuse(call):
    return Verdict.deny("closed for today")
'''.replace("def is_open() ->", "def is_open(ctx) ->")


def write(project: Project, text: str = CONFIG, module: str = MODULE) -> None:
    project.write(text, mine=module)


# What an operator changes while the question is open, and what the call then ends with.
CHANGES: dict[str, tuple[Callable[[Project], object], str]] = {
    "deny": (lambda p: write(p, CONFIG.replace("[core],", '[core], deny: ["*pay"],')), "not_found"),
    "groups": (lambda p: write(p, CONFIG.replace("[core],", "[other],") + "groups: {other: Others.}\n"), "not_found"),
    "predicate": (lambda p: p.file("closed", ""), "not_found"),
    "available": (lambda p: write(p, CONFIG.replace("available: open", "available: false")), "not_found"),
    "gone": (lambda p: write(p, CONFIG.replace("pay, type", "buy, type")), "not_found"),
    "limit": (lambda p: write(p, CONFIG.replace("available", 'rate_limit: "0/60s", available')), "rate_limited"),
    "profile limit": (lambda p: write(p, CONFIG.replace("[core],", '[core], rate_limit: "0/60s",')), "rate_limited"),
    "hook": (lambda p: write(p, CONFIG + 'hooks: [{on: before, use: "python:mine:refuse"}]\n'), "hook_refused"),
    "definition": (
        lambda p: write(p, module=MODULE.replace("Pay somebody.", "Pay twice.").replace("Ask for", "Guess")),
        "consent_mismatch",
    ),
}  # fmt: skip


def paid(project: Project) -> str:
    path = project.folder / "paid"
    return path.read_text() if path.exists() else ""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    write(made)
    return made


Change = Callable[[Project], object]
Answer = Callable[[], Awaitable[object]]
Call = Callable[[str], Awaitable[str]]


def kind_over_mcp(result: types.CallToolResult) -> str:
    return (result.meta or {}).get("pegboard/error", {}).get("kind", "ok") if result.is_error else "ok"


async def called(client: Client, name: str) -> str:
    try:
        return kind_over_mcp(await client.call_tool(name, {"to": "bob"}))
    except MCPError as error:
        assert "No tool named" in str(error), error
        return "not_found"


def saying_yes(meanwhile: Answer, asked: list[str]) -> Any:
    """Return what a client answers with: `meanwhile` happens while its person looks at the first question."""

    async def answer(_ctx: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        if len(asked) == 1:
            await meanwhile()
            return types.ElicitResult(action="accept", content={"answer": 7} if "How much" in params.message else {})
        return types.ElicitResult(action="decline")

    return answer


@asynccontextmanager
async def door(
    project: Project, era: str, meanwhile: Callable[[Project], object], asked: list[str]
) -> AsyncGenerator[Call]:
    """Give a way to call a tool through one door, with a reload of the config while its question is open."""
    if era.startswith("stdio"):
        async with stdio_door(project, era.partition(" ")[2], meanwhile, asked) as call:
            yield call
        return
    catalog, reloader = reloader_of(project)

    async def change() -> None:
        meanwhile(project)
        assert await reloader.reload()

    if era == "python":

        async def approve(request: ConsentRequest) -> bool:
            asked.append(request.tool)
            await change()
            return True

        ctx = replace(context_for(reloader.config), approve=approve)

        async def called_in_python(name: str) -> str:
            return kind_of(await catalog.view(ctx, profile="chat").call(name, {"to": "bob"}))

        yield called_in_python
        return
    answer: Any = saying_yes(change, asked)
    # What checks certificates takes long to make, and has nothing to do here.
    async with served(http_app(catalog, config=reloader.config)) as url, httpx2.AsyncClient(verify=False) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=era, elicitation_callback=answer) as client:  # type: ignore[arg-type] - an era
            yield lambda name: called(client, name)


@asynccontextmanager
async def stdio_door(project: Project, era: str, meanwhile: Change, asked: list[str]) -> AsyncGenerator[Call]:
    """A program of its client's own, which reads its config once; predicates may change all the same."""

    async def change() -> None:
        meanwhile(project)

    server = StdioServerParameters(
        command=str(PEGBOARD), args=["serve", "--stdio"], env=dict(os.environ), cwd=project.folder
    )
    answer = saying_yes(change, asked)
    async with Client(server, mode=era, elicitation_callback=answer) as client:  # type: ignore[arg-type] - an era
        yield lambda name: called(client, name)


ERAS = ("python", "2026-07-28", "legacy")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("change", list(CHANGES))
async def test_a_yes_runs_nothing_that_was_forbidden_while_the_person_thought(
    project: Project, era: str, change: str
) -> None:
    meanwhile, kind = CHANGES[change]
    asked: list[str] = []
    async with door(project, era, meanwhile, asked) as call:
        ended = await call("pay")
    assert paid(project) == ""
    if (era, change) == ("2026-07-28", "definition"):
        # There the call begins anew: a definition that changed is a new question, which nobody said yes to.
        assert (ended, len(asked)) == ("consent_declined", 2)
    else:
        assert (ended, len(asked)) == (kind, 1)


@pytest.mark.parametrize("era", ["stdio 2026-07-28", "stdio legacy"])
async def test_a_client_on_stdio_runs_nothing_that_became_forbidden_either(project: Project, era: str) -> None:
    async with door(project, era, CHANGES["predicate"][0], []) as call:
        assert await call("pay") == "not_found"
    assert paid(project) == ""


@pytest.mark.parametrize("era", [*ERAS, "stdio 2026-07-28", "stdio legacy"])
async def test_where_nothing_changed_the_yes_runs_the_call_once(project: Project, era: str) -> None:
    asked: list[str] = []

    def nothing(same: Project) -> None:
        write(same, CONFIG + "settings: {note: other}\n")

    async with door(project, era, nothing, asked) as call:
        assert await call("pay") == "ok"
    assert (paid(project), len(asked)) == ("bob;", 1)


@pytest.mark.parametrize("change", list(CHANGES))
async def test_a_tools_own_question_is_answered_for_what_the_tool_was(project: Project, change: str) -> None:
    meanwhile, kind = CHANGES[change]
    asked: list[str] = []
    async with door(project, "2026-07-28", meanwhile, asked) as call:
        ended = await call("ask_and_pay")
    assert paid(project) == ""
    # The answer was given to a tool that meant something else by the question: it is asked for again.
    assert (ended, len(asked)) == (("consent_declined", 2) if change == "definition" else (kind, 1))


WHILE_IT_RUNS = ("deny", "groups", "predicate", "available", "gone", "definition")


@pytest.mark.parametrize("change", WHILE_IT_RUNS)
async def test_a_running_tool_whose_person_thought_goes_on_only_if_it_still_may(project: Project, change: str) -> None:
    meanwhile, kind = CHANGES[change]
    asked: list[str] = []
    # Of earlier revisions, where the tool itself waits for the answer.
    async with door(project, "legacy", meanwhile, asked) as call:
        ended = await call("ask_and_pay")
    assert paid(project) == ""
    assert (ended, len(asked)) == (kind, 1)


async def test_a_running_tool_whose_person_thought_goes_on_where_nothing_changed(project: Project) -> None:
    async with door(project, "legacy", lambda same: write(same, CONFIG + "settings: {note: other}\n"), []) as call:
        assert await call("ask_and_pay") == "ok"
    assert paid(project) == "bob 7;"


# ---------------------------------------------------------------- in one process, where the parts can be seen


def allowing(meanwhile: Callable[[], object], **said: Any) -> ToolContext:
    def approve(request: ConsentRequest) -> bool:
        meanwhile()
        return True

    return replace(ANN, approve=approve, **said)


async def test_an_async_predicate_is_asked_again_and_stays_answered_for_lists() -> None:
    catalog, is_open, asked = Catalog(), [True], list[str]()

    @catalog.predicate
    async def opened(ctx: ToolContext) -> bool:
        asked.append("opened")
        return is_open[0]

    one_tool(consent="always", available="opened", catalog=catalog)
    view = await catalog.aview(allowing(lambda: is_open.__setitem__(0, False)))
    assert view.names() == ["echo"]
    assert kind_of(await view.call("echo")) == "not_found"
    # Who had the answer ready has the new one ready: a list after the call needs no awaiting.
    assert (view.names(), asked) == ([], ["opened", "opened"])


async def test_the_calls_of_a_batch_after_a_wait_are_judged_by_what_is_true_then() -> None:
    catalog, is_open, ran = Catalog(), [True], list[str]()
    catalog.predicate(name="opened")(lambda ctx: is_open[0])

    @catalog.tool(groups="core", consent="always")
    async def first() -> str:
        return "first"

    @catalog.tool(groups="core", available="opened")
    async def second() -> str:
        ran.append("second")
        return "second"

    @catalog.tool(groups="core")
    async def third() -> str:
        ran.append("third")
        return "third"

    def profile(**said: Any) -> None:
        catalog.profile(Profile(name="chat", include=("core",), exposure="two_tool", **said))

    def close() -> None:
        is_open[0] = False
        profile(policy=Policy(deny=("third",)))

    profile()
    view = catalog.exposed(catalog.view(allowing(close), profile="chat"))
    # The batch has asked what is open before the person is asked.
    assert "second" in [entry.spec.name for entry in catalog.view(view.ctx, profile="chat").tools()]
    calls = [{"tool": name, "continueOnFailure": True} for name in ("first", "second", "third")]
    result = await view.call("useTools", {"calls": calls, "context": {}})
    assert (kind_of(result), ran) == ("ok", [])


async def test_a_profile_that_is_gone_when_the_yes_comes_shows_nothing() -> None:
    catalog = one_tool(consent="always")
    catalog.profile(Profile(name="chat", include=("core",)))
    before = dict(catalog.registry.profiles)

    def forget() -> None:
        catalog.registry.change(profiles={name: one for name, one in before.items() if name != "chat"})

    assert kind_of(await catalog.view(allowing(forget), profile="chat").call("echo")) == "not_found"


async def test_events_of_a_call_that_waited_stay_in_one_order() -> None:
    recorder = Recorder()
    catalog = one_tool(consent="always")
    await catalog.view(allowing(lambda: None)).call("echo", callbacks=recorder)
    assert [event.seq for event in recorder.events] == [0, 1]


async def test_hooks_that_rewrite_arguments_rewrite_them_alike_after_the_yes() -> None:
    ran: list[Any] = []

    async def work(ctx: Any, args: Any) -> None:
        ran.append(args)

    catalog = one_tool(work, consent="always")
    catalog.before()(lambda call: Verdict.replace({**call.args, "n": 2}) if call.args["n"] == 1 else None)
    assert kind_of(await catalog.view(allowing(lambda: None)).call("echo", {"n": 1})) == "ok"
    assert ran == [{"n": 2}]


async def test_a_hook_that_would_run_other_arguments_after_the_yes_is_not_obeyed() -> None:
    numbers = iter(range(100))
    catalog = one_tool(consent="always")

    @catalog.before()
    def _(call: Any) -> Verdict | None:
        return None if "n" in call.args else Verdict.replace({"n": next(numbers)})

    assert kind_of(await catalog.view(allowing(lambda: None)).call("echo", {})) == "consent_mismatch"


async def test_arguments_the_host_changed_in_its_own_dict_meanwhile_are_not_run() -> None:
    args: dict[str, Any] = {"deep": {"to": "bob"}}
    view = one_tool(consent="always").view(allowing(lambda: args["deep"].update(to="eve")))
    assert kind_of(await view.call("echo", args)) == "consent_mismatch"


async def test_a_catalog_that_closes_or_a_deadline_that_passes_meanwhile_ends_the_call() -> None:
    clock = Clock(100.0)
    catalog = one_tool(consent="always", catalog=Catalog(clock=clock))
    late = allowing(lambda: setattr(clock, "now", 200.0), deadline=150.0)
    assert kind_of(await catalog.view(late).call("echo")) == "timeout"

    # The yes to that call is still there: another catalog has to ask.
    closing = one_tool(consent="always")

    def close() -> None:
        closing.executor.closing = True

    assert kind_of(await closing.view(allowing(close)).call("echo")) == "shutting_down"


async def test_what_a_tool_calls_after_its_own_question_is_judged_by_what_is_true_then() -> None:
    catalog, is_open, kinds = Catalog(), [True], list[str]()
    catalog.predicate(name="opened")(lambda ctx: is_open[0])
    one_tool(available="opened", catalog=catalog)

    class Person:
        supports_ui = False

        async def elicit(self, message: str, schema: Any = None) -> Any:
            is_open[0] = False
            return "yes"

        async def approve(self, request: ConsentRequest) -> bool | None:
            return None

    @catalog.tool(groups="core")
    async def outer(ctx: CallContext) -> None:
        kinds.append(kind_of(await catalog.view(ctx.plain()).call("echo")))
        await ctx.ask("Go on?")
        kinds.append(kind_of(await catalog.view(ctx.plain()).call("echo")))

    await catalog.view(replace(ANN, client=Person())).call("outer")
    assert kinds == ["ok", "not_found"]


@pytest.mark.parametrize("way", ["elicit", "sample", "ask"])
async def test_a_tool_that_waited_for_somebody_at_its_client_ends_where_it_was_forbidden(way: str) -> None:
    catalog, is_open, done = Catalog(), [True], list[str]()
    catalog.predicate(name="opened")(lambda ctx: is_open[0])

    class Person:
        supports_ui = False
        name = "somebody"

        async def elicit(self, message: str, schema: Any = None) -> Any:
            is_open[0] = message != "forbid"
            return "yes"

        async def sample(self, prompt: str) -> Any:
            return await self.elicit(prompt)

        async def approve(self, request: ConsentRequest) -> bool | None:
            return None

    @catalog.tool(groups="core", available="opened")
    async def pay(ctx: CallContext) -> str:
        wait: Any = ctx.ask if way == "ask" else getattr(ctx.client, way)
        done.append(await wait("allow"))
        done.append(await wait("forbid"))
        return "paid"

    result = await catalog.view(replace(ANN, client=Person())).call("pay")
    assert (kind_of(result), done) == ("not_found", ["yes"])
    assert result.error is not None
    assert result.error.outcome_unknown

    @catalog.tool(groups="core")
    async def whose(ctx: CallContext) -> str:
        client: Any = ctx.client
        return client.name

    assert (await catalog.view(replace(ANN, client=Person())).call("whose")).text == "somebody"


async def test_answers_that_are_voided_again_and_again_end_the_question_instead_of_going_on_for_ever() -> None:
    catalog, asked = Catalog(), list[int]()

    @catalog.predicate
    async def forgotten(ctx: ToolContext) -> bool:
        asked.append(len(asked))
        # As if a person had been asked by another call just now, each time.
        ctx.memo._answers = None  # pyright: ignore[reportPrivateUsage]
        return len(asked) > 10

    one_tool(available="forgotten", catalog=catalog)
    with pytest.raises(AsyncPredicateError):
        await catalog.view(replace(ANN)).afind("echo")
    assert 0 < len(asked) <= 5
