"""What each adapter must show stands in one table; and what the servers among them show to any client of MCP."""

import ast
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import mcp
import pytest
from fastmcp import Client, FastMCP
from pydantic_ai import Agent

import agents
from pegboard import Verdict
from pegboard.adapters import langchain, openai_agents
from pegboard.adapters.claude_agent_sdk import mcp_server
from pegboard.adapters.fastmcp import ViewProvider
from pegboard.adapters.pydantic_ai import PegboardToolset
from pegboard.core.view import View
from pegboard.testing import CallsTool, ModelServer
from tests.adapters import test_langchain, test_model_sdks, test_openai_agents, test_pydantic_ai
from tests.adapters.shop import RecordingView, open_shop

HERE = Path(__file__).parent
BEHAVIOURS = (
    "list", "call", "refused call", "mended argument", "streamed events", "cancellation", "approval",
    "structured output", "two callers", "hidden tool", "recording View",
)  # fmt: skip
SERVERS = "test_every_adapter.py::test_a_server_of_a_view_shows_what_the_door_does"
PROGRESS = "test_every_adapter.py::test_the_client_of_a_server_of_a_view_hears_how_far_its_call_is"
RECORDED = "test_every_adapter.py::test_each_list_and_each_call_of_a_framework_reaches_the_view_once_and_as_it_was_made"
# Behaviour → the test that shows it with the real framework; in the order of BEHAVIOURS.
TABLE = {
    "pydantic_ai": ("test_pydantic_ai.py", (
        "test_an_agent_lists_what_the_view_lists_and_calls_through_it",
        "test_an_agent_lists_what_the_view_lists_and_calls_through_it",
        "test_a_refusal_ends_no_run_and_costs_no_retry",
        "test_arguments_that_the_model_can_mend_come_back_to_it_in_the_doors_words",
        "test_a_streamed_run_tells_of_each_call_and_carries_pictures",
        "test_a_cancelled_run_cancels_the_call",
        "test_a_tool_that_asks_a_person_waits_for_the_yes_and_runs_once",
        "test_an_agent_lists_what_the_view_lists_and_calls_through_it",
        "test_two_callers_of_one_agent_each_have_their_own_tools",
        "test_a_hidden_tool_cannot_be_reached_by_any_name",
        RECORDED,
    )),
    "openai_agents": ("test_openai_agents.py", (
        "test_an_agent_lists_what_the_view_lists_with_strict_schemas_and_calls_through_it",
        "test_an_agent_lists_what_the_view_lists_with_strict_schemas_and_calls_through_it",
        "test_a_run_goes_on_after_arguments_to_mend_and_a_refusal",
        "test_a_run_goes_on_after_arguments_to_mend_and_a_refusal",
        "test_a_streamed_run_tells_of_calls_and_pictures_and_a_cancelled_one_stops_them",
        "test_a_streamed_run_tells_of_calls_and_pictures_and_a_cancelled_one_stops_them",
        "test_an_interruption_that_is_approved_runs_the_call_once_and_is_recorded_as_a_yes",
        "test_an_agent_lists_what_the_view_lists_with_strict_schemas_and_calls_through_it",
        "test_two_callers_each_have_their_own_tools",
        "test_a_tool_that_is_hidden_amid_the_run_is_gone_from_the_next_list_and_cannot_be_called",
        RECORDED,
    )),
    "langchain": ("test_langchain.py", (
        "test_a_graph_lists_what_the_view_lists_and_calls_through_it",
        "test_a_graph_lists_what_the_view_lists_and_calls_through_it",
        "test_wrong_arguments_a_refusal_and_a_hidden_tool_are_told_as_errors_and_run_nothing",
        "test_wrong_arguments_a_refusal_and_a_hidden_tool_are_told_as_errors_and_run_nothing",
        "test_a_stream_tells_of_each_call_with_pictures_and_a_cancelled_run_stops_it",
        "test_a_stream_tells_of_each_call_with_pictures_and_a_cancelled_run_stops_it",
        "test_a_graph_stops_for_a_yes_and_goes_on_with_the_answer_to_that_question",
        "test_a_graph_lists_what_the_view_lists_and_calls_through_it",
        "test_two_callers_each_have_their_own_tools",
        "test_wrong_arguments_a_refusal_and_a_hidden_tool_are_told_as_errors_and_run_nothing",
        RECORDED,
    )),
    "claude_agent_sdk": ("test_claude_agent_sdk.py", (
        "test_a_view_is_a_server_of_the_sdk_whose_calls_go_through_the_door_once",
        "test_a_view_is_a_server_of_the_sdk_whose_calls_go_through_the_door_once",
        SERVERS,
        "test_a_view_is_a_server_of_the_sdk_whose_calls_go_through_the_door_once",
        PROGRESS,
        SERVERS,
        "test_limits_are_charged_consent_is_asked_and_rewrites_of_hooks_are_what_runs",
        "test_a_view_is_a_server_of_the_sdk_whose_calls_go_through_the_door_once",
        SERVERS,
        "test_a_restricted_tool_an_unknown_one_and_an_unknown_server_run_by_no_spelling",
        RECORDED,
    )),
    "fastmcp": ("test_fastmcp.py", (
        "test_a_view_is_a_provider_whose_tools_go_through_the_door",
        "test_a_view_is_a_provider_whose_tools_go_through_the_door",
        SERVERS,
        "test_a_view_is_a_provider_whose_tools_go_through_the_door",
        PROGRESS,
        SERVERS,
        "test_the_user_of_the_client_is_asked_for_a_yes",
        "test_a_view_is_a_provider_whose_tools_go_through_the_door",
        "test_two_callers_of_one_server_each_have_their_own_view",
        "test_a_view_is_a_provider_whose_tools_go_through_the_door",
        RECORDED,
    )),
    **dict.fromkeys(("openai", "anthropic", "google_genai"), ("test_model_sdks.py", (
        "test_two_calls_of_one_answer_run_through_the_door_and_their_results_go_back",
        "test_two_calls_of_one_answer_run_through_the_door_and_their_results_go_back",
        "test_arguments_to_mend_a_hidden_tool_and_a_refusal_are_told_in_the_doors_words",
        "test_arguments_to_mend_a_hidden_tool_and_a_refusal_are_told_in_the_doors_words",
        "",  # a whole answer is given to it, streamed or not
        "test_two_callers_of_one_process_are_told_apart_and_a_cancelled_turn_stops_its_calls",
        "test_the_person_of_the_host_is_asked_and_the_yes_is_recorded",
        "test_two_calls_of_one_answer_run_through_the_door_and_their_results_go_back",
        "test_two_callers_of_one_process_are_told_apart_and_a_cancelled_turn_stops_its_calls",
        "test_arguments_to_mend_a_hidden_tool_and_a_refusal_are_told_in_the_doors_words",
        RECORDED,
    ))),
}  # fmt: skip


def test_every_adapter_has_a_test_for_every_behaviour() -> None:
    """What is not an adapter among the modules is shared by two of them, or belongs to one."""
    modules = {path.stem for path in (HERE.parents[1] / "src/pegboard/adapters").glob("*.py")}
    shared = {"__init__", "framework_client", "guard_only_view", "provider_calls", "result_parts", "view_source"}
    assert modules - shared == set(TABLE)
    for adapter, (file, tests) in TABLE.items():
        assert len(tests) == len(BEHAVIOURS), adapter
        for behaviour, name in zip(BEHAVIOURS, tests, strict=True):
            place, _, found = name.rpartition("::")
            functions = {node.name: node for node in _functions(HERE / (place or file))}
            assert not name or found in functions, (adapter, behaviour)


def _functions(path: Path) -> list[ast.AsyncFunctionDef | ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)]


Connect = Callable[[View], AbstractAsyncContextManager[Any]]


def claude(view: View) -> Any:
    return mcp.Client(mcp_server(view)["instance"])


def fastmcp(view: View) -> Any:
    return Client(FastMCP("shop", providers=[ViewProvider(view)]))


async def _text(call: Awaitable[Any]) -> str:
    """Return what a client is told, whether it raises that or gives it back."""
    try:
        return str((await call).content[0].text)
    except Exception as error:  # noqa: BLE001 - the clients have errors of their own
        return str(error)


@pytest.mark.parametrize("connect", [claude, fastmcp])
async def test_a_server_of_a_view_shows_what_the_door_does(connect: Connect) -> None:
    shop = open_shop()
    shop.catalog.before("label")(lambda call: Verdict.deny("closed on Sundays"))
    view, guest = RecordingView(shop.view()), shop.view("bob", "guest")
    async with connect(view) as client, connect(guest) as other:
        assert "closed on Sundays" in await _text(client.call_tool("label", {"tags": {}}))
        assert [await _text(each.call_tool("whoami", {})) for each in (client, other)] == ["ann", "bob"]
        assert shop.names_run() == ["whoami", "whoami"]
        waiting = asyncio.ensure_future(client.call_tool("wait_for_delivery", {}))
        await asyncio.wait_for(shop.started.wait(), 30)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        # While both connections are open: it ends by its own cancellation, and not by theirs.
        await asyncio.wait_for(shop.ended.wait(), 60)
    assert shop.stopped == ["wait_for_delivery"]
    assert [name for name, _ in view.calls] == ["label", "whoami", "wait_for_delivery"]
    assert [record[:2] for record in shop.finished if record[0] == "whoami"] == [("whoami", "ann"), ("whoami", "bob")]
    assert shop.events.types.count("on_tool_call") >= 2


@pytest.mark.parametrize(("connect", "option"), [(claude, "progress_callback"), (fastmcp, "progress_handler")])
async def test_the_client_of_a_server_of_a_view_hears_how_far_its_call_is(connect: Connect, option: str) -> None:
    shop, told = open_shop(), list[Any]()

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        # While it runs: the result has not come.
        told.append((progress, total, message, len(shop.finished)))

    async with connect(shop.view()) as client:
        given: dict[str, Any] = {option: tell}
        told.append(await _text(client.call_tool("bake", {}, **given)))
        assert await _text(client.call_tool("bake", {})) == "bread"
    assert [item[:3] for item in told] == [(0.25, 1.0, "mixed"), (0.75, 1.0, "in the oven"), "bre"]


# ---- nothing between a framework and the View

Wanted = list[tuple[str, dict[str, Any]]]
MADE: Wanted = [("price", {"item": "tea"}), ("price", {"item": 7}), ("label", {"tags": {}})]
# As targets have them that know no optional keys, and no objects with keys of any name.
MADE_STRICTLY: Wanted = [
    ("price", {"item": "tea", "count": None}), ("price", {"item": 7, "count": None}),
    ("label", {"tags": [], "note": None}),
]  # fmt: skip


async def _by_pydantic_ai(view: View) -> None:
    await Agent(test_pydantic_ai.scripted([[call] for call in MADE]), toolsets=[PegboardToolset(view)]).run("?")


async def _by_openai_agents(view: View) -> None:
    script = [*(CallsTool(name, args) for name, args in MADE_STRICTLY), "done"]
    async with test_openai_agents.agent_of(script, openai_agents.tools(view)) as (agent, _):
        await agents.Runner.run(agent, "?")


async def _by_langchain(view: View) -> None:
    turns = [test_langchain.calls(call) for call in MADE]
    await test_langchain.ask(test_langchain.graph_of(langchain.tools(view), *turns))


def _by_client(connect: Connect) -> Callable[[View], Awaitable[None]]:
    async def drive(view: View) -> None:
        async with connect(view) as client:
            await client.list_tools()
            for name, args in MADE:
                await _text(client.call_tool(name, args))

    return drive


def _by_model_sdk(agent: test_model_sdks.Agent) -> Callable[[View], Awaitable[None]]:
    async def drive(view: View) -> None:
        is_strict = agent in (test_model_sdks.chat, test_model_sdks.responses)
        script: Any = [*(CallsTool(name, args) for name, args in (MADE_STRICTLY if is_strict else MADE)), "done"]
        async with ModelServer(script) as server:
            await agent(view, server)

    return drive


DRIVERS = {
    "pydantic_ai": _by_pydantic_ai, "openai_agents": _by_openai_agents, "langchain": _by_langchain,
    "claude_agent_sdk": _by_client(claude), "fastmcp": _by_client(fastmcp),
    "openai": _by_model_sdk(test_model_sdks.chat), "openai responses": _by_model_sdk(test_model_sdks.responses),
    "anthropic": _by_model_sdk(test_model_sdks.claude), "google_genai": _by_model_sdk(test_model_sdks.gemini),
}  # fmt: skip


@pytest.mark.parametrize("adapter", DRIVERS)
async def test_each_list_and_each_call_of_a_framework_reaches_the_view_once_and_as_it_was_made(adapter: str) -> None:
    """No adapter validates, filters or retries by itself: a wrong call and a refused one come to the door, once."""
    assert set(TABLE) <= set(DRIVERS)
    shop = open_shop()
    shop.catalog.before("label")(lambda call: Verdict.deny("closed on Sundays"))
    view = RecordingView(shop.view())
    await DRIVERS[adapter](view)
    assert view.calls == MADE
    assert view.lists != []
    assert [(name, kind) for name, _, kind, _ in shop.finished] == [
        ("price", "ok"), ("price", "invalid_arguments"), ("label", "hook_refused"),
    ]  # fmt: skip
    assert shop.ran == [("price", ("tea", 1))]
