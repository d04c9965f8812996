"""The SDKs of OpenAI, Anthropic and Google: the tool calls of their answers go through the door, and results back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types as google_types

from pegboard import Catalog, ToolContext
from pegboard.adapters import anthropic as for_anthropic
from pegboard.adapters import google_genai as for_google
from pegboard.adapters import openai as for_openai
from pegboard.core.view import View
from pegboard.testing import CallsTool, ModelServer, scripted_approver
from tests.adapters.shop import RecordingView, open_shop

Agent = Callable[[View, ModelServer], Awaitable[str]]
QUESTION = "What does it cost?"


def connections() -> httpx2.AsyncClient:
    """Return connections that read no certificates: the server is on this machine."""
    return httpx2.AsyncClient(verify=False)


async def chat(view: View, server: ModelServer) -> str:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    async with openai.AsyncOpenAI(base_url=server.openai_url, api_key="any", http_client=connections()) as client:
        while True:
            tools: Any = view.export("openai_strict")
            response = await client.chat.completions.create(model="m", messages=messages, tools=tools)
            answers = await for_openai.run_tools(view, response, target="openai_strict")
            if not answers:
                return response.choices[0].message.content or ""
            messages += answers


async def responses(view: View, server: ModelServer) -> str:
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    async with openai.AsyncOpenAI(base_url=server.openai_url, api_key="any", http_client=connections()) as client:
        while True:
            tools: Any = view.export("openai_responses")
            response = await client.responses.create(model="m", input=items, tools=tools)
            answers = await for_openai.run_tools(view, response)
            if not answers:
                return response.output_text
            items += answers


async def claude(view: View, server: ModelServer) -> str:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="any", http_client=connections()) as client:
        while True:
            tools: Any = view.export("anthropic")
            response = await client.messages.create(model="m", max_tokens=100, messages=messages, tools=tools)
            answers = await for_anthropic.run_tools(view, response)
            if not answers:
                return "".join(block.text for block in response.content if block.type == "text")
            messages += answers


async def gemini(view: View, server: ModelServer) -> str:
    contents: list[Any] = [google_types.Content(role="user", parts=[google_types.Part(text=QUESTION)])]
    async with connections() as http:
        options = google_types.HttpOptions(base_url=server.url, httpx_async_client=http)  # type: ignore[arg-type] - as the SDK takes it
        client = genai.Client(api_key="any", http_options=options)
        tools: Any = [{"function_declarations": view.export("gemini")}]
        while True:
            response = await client.aio.models.generate_content(
                model="m", contents=contents, config=google_types.GenerateContentConfig(tools=tools)
            )
            answers = await for_google.run_tools(view, response)
            if not answers:
                return response.text or ""
            contents += answers


AGENTS: list[Agent] = [chat, responses, claude, gemini]
each_sdk = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)


@each_sdk
async def test_two_calls_of_one_answer_run_through_the_door_and_their_results_go_back(agent: Agent) -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    script: Any = [
        [CallsTool("price", {"item": "tea", "count": 2}), CallsTool("label", label_arguments(agent))],
        "It costs 6.",
    ]
    async with ModelServer(script) as server:
        assert await agent(view, server) == "It costs 6."
    assert set(server.requests[0].tools) == set(view.names())
    assert [outcome.text for outcome in server.requests[1].outcomes][1] == "a=1"
    assert '"total":6' in server.requests[1].outcomes[0].text.replace(" ", "")
    assert sorted(shop.ran) == [("label", {"a": "1"}), ("price", ("tea", 2))]
    assert sorted(name for name, _ in view.calls) == ["label", "price"]
    assert sorted(shop.finished) == [("label", "ann", "ok", ""), ("price", "ann", "ok", "")]


def label_arguments(agent: Agent) -> dict[str, Any]:
    """Return arguments as the target of an SDK has them: strict ones know no objects with keys of any name."""
    if agent in (chat, responses):
        return {"tags": [{"key": "a", "value": "1"}], "note": None}
    return {"tags": {"a": "1"}}


@each_sdk
async def test_arguments_to_mend_a_hidden_tool_and_a_refusal_are_told_in_the_doors_words(agent: Agent) -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    script: Any = [
        [CallsTool("price", {"item": "tea", "count": "x"}), CallsTool("raid", {"amount": 1}), CallsTool("nothing", {})],
        [CallsTool("refund", {"order": "A1"})],
        "Sorry.",
    ]
    async with ModelServer(script) as server:
        assert await agent(view, server) == "Sorry."
    wrong, hidden, absent = [outcome.text for outcome in server.requests[1].outcomes]
    assert "$.count" in wrong
    assert hidden.replace("raid", "NAME") == absent.replace("nothing", "NAME")
    assert "a person must agree first" in server.requests[2].outcomes[0].text
    assert shop.ran == []
    assert {kind for _, _, kind, _ in shop.finished} == {"invalid_arguments", "not_found", "consent_required"}


@each_sdk
async def test_broken_json_and_a_picture_reach_the_model_as_what_they_are(agent: Agent) -> None:
    shop = open_shop()
    broken = "{" if agent in (chat, responses) else {"itm": "tea"}
    script: Any = [[CallsTool("price", broken), CallsTool("photo", {})], "A shop."]
    async with ModelServer(script) as server:
        assert await agent(shop.view(), server) == "A shop."
    wrong, _ = server.requests[1].outcomes
    assert "arguments" in wrong.text.lower()
    sent = str(server.requests[1].body)
    assert ("iVBORw0KGgowMDAw" in sent) is (agent is not chat)
    assert ("[image/png, 12 bytes]" in sent) is (agent is chat)


async def test_a_call_without_any_text_of_arguments_is_one_without_arguments() -> None:
    shop = open_shop()
    for text in ("", " \n"):
        call = {"id": "c1", "type": "function", "function": {"name": "photo", "arguments": text}}
        [_, answer] = await for_openai.run_tools(shop.view(), {"choices": [{"message": {"tool_calls": [call]}}]})
        assert answer == {"role": "tool", "tool_call_id": "c1", "content": "[image/png, 12 bytes]"}


async def test_the_person_of_the_host_is_asked_and_the_yes_is_recorded() -> None:
    shop = open_shop()
    approve = scripted_approver(True, False)
    view = shop.catalog.view(ToolContext(user_id="ann", approve=approve), profile="clerk")
    script: Any = [[CallsTool("refund", {"order": "A1"}), CallsTool("refund", {"order": "A2"})], "Done."]
    async with ModelServer(script) as server:
        await chat(view, server)
    assert shop.ran == [("refund", "A1")]
    assert [request.arguments for request in approve.requests] == [{"order": "A1"}, {"order": "A2"}]
    assert [(kind, consent) for _, _, kind, consent in shop.finished] == [("ok", "yes"), ("consent_declined", "no")]


async def test_calls_marked_as_safe_overlap_and_all_others_run_one_by_one() -> None:
    catalog, running, most = Catalog("race"), {"read": 0, "write": 0}, {"read": 0, "write": 0}
    all_here = asyncio.Event()

    async def note(kind: str) -> str:
        running[kind] += 1
        most[kind] = max(most[kind], running[kind])
        if kind == "read" and running["read"] == 3:
            all_here.set()
        if kind == "read":
            await all_here.wait()
        else:
            for _ in range(5):
                await asyncio.sleep(0)
        running[kind] -= 1
        return kind

    @catalog.tool(read_only=True)
    async def read(n: int) -> str:
        """Read."""
        return await note("read")

    @catalog.tool
    async def write(n: int) -> str:
        """Write."""
        return await note("write")

    calls = [{"id": f"{i}", "function": {"name": n, "arguments": f'{{"n": {i}}}'}} for i, n in enumerate(ORDER)]
    response = {"choices": [{"message": {"role": "assistant", "tool_calls": calls}}]}
    sent = await for_openai.run_tools(catalog.view(ToolContext(user_id="ann")), response)
    assert [message["content"] for message in sent[1:]] == ORDER
    assert most == {"read": 3, "write": 1}


ORDER = ["write", "read", "write", "read", "write", "read"]


async def test_two_callers_of_one_process_are_told_apart_and_a_cancelled_turn_stops_its_calls() -> None:
    shop = open_shop()

    def turn(name: str) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": name, "input": {}}]}

    ann, bob = await asyncio.gather(
        for_anthropic.run_tools(shop.view("ann"), turn("whoami")),
        for_anthropic.run_tools(shop.view("bob", "guest"), turn("whoami")),
    )
    assert [sent[1]["content"][0]["content"][0]["text"] for sent in (ann, bob)] == ["ann", "bob"]
    waiting = asyncio.create_task(for_anthropic.run_tools(shop.view(), turn("wait_for_delivery")))
    await shop.started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert shop.stopped == ["wait_for_delivery"]
