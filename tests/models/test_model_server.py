"""The scripted model server: real clients of the providers cannot tell it from what it stands for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types as google_types
from pydantic_ai import Agent, ModelHTTPError, ModelSettings
from pydantic_ai.messages import PartDeltaEvent, TextPartDelta
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

from pegboard.testing import (
    CallsTool,
    Hangup,
    Hold,
    ModelFailure,
    ModelServer,
    ModelTurn,
    Pause,
    RawBytes,
    by_conversation,
)

KEY = "key-of-the-test"
NAME = "scripted"


_clients: list[httpx2.AsyncClient] = []


def connections() -> httpx2.AsyncClient:
    """The connections of one model; the fixture closes them."""
    _clients.append(httpx2.AsyncClient(timeout=60, verify=False))
    return _clients[-1]


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    while _clients:
        await _clients.pop().aclose()


def chat(server: ModelServer, name: str = NAME) -> Model:
    provider = OpenAIProvider(base_url=server.openai_url, api_key=KEY, http_client=connections())
    return OpenAIChatModel(name, provider=provider)


def responses(server: ModelServer) -> Model:
    provider = OpenAIProvider(base_url=server.openai_url, api_key=KEY, http_client=connections())
    return OpenAIResponsesModel(NAME, provider=provider)


def claude(server: ModelServer) -> Model:
    return AnthropicModel(NAME, provider=AnthropicProvider(base_url=server.url, api_key=KEY, http_client=connections()))


def gemini(server: ModelServer) -> Model:
    return GoogleModel(NAME, provider=GoogleProvider(base_url=server.url, api_key=KEY, http_client=connections()))


MakeModel = Callable[[ModelServer], Model]
PROVIDERS: Mapping[str, MakeModel] = {
    "openai": chat, "openai_responses": responses, "anthropic": claude, "google": gemini,
}  # fmt: skip


@pytest.fixture(params=sorted(PROVIDERS))
def provider(request: pytest.FixtureRequest) -> str:
    return request.param


async def answered(model: Model, *, is_streamed: bool) -> tuple[str, list[str], Any]:
    """Run an agent with two tools; give its answer, the pieces that came, and what it cost."""
    agent = Agent(model, system_prompt="Be brief.")

    @agent.tool_plain
    def add(first: int, second: int) -> int:
        return first + second

    @agent.tool_plain
    def shout(text: str) -> str:
        return text.upper()

    if not is_streamed:
        result = await agent.run("What is 2 + 3?")
        return result.output, [], result.usage
    pieces: list[str] = []
    async with agent.iter("What is 2 + 3?") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    deltas = [event.delta async for event in stream if isinstance(event, PartDeltaEvent)]
                pieces += [delta.content_delta for delta in deltas if isinstance(delta, TextPartDelta)]
        assert run.result is not None
        return run.result.output, pieces, run.result.usage


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_every_provider_of_pydantic_ai_runs_tools_in_parallel_and_reads_the_answer(
    provider: str, is_streamed: bool
) -> None:
    quoted = 'a "quoted" {brace}, a line\nand an ü'
    script = [
        ["I ", "think.", CallsTool("add", {"first": 2, "second": 3}), CallsTool("shout", {"text": quoted})],
        ModelTurn(parts=("Five", ", of", " course."), input_tokens=20, output_tokens=7),
    ]
    async with ModelServer(script, api_key=KEY) as server:
        output, pieces, usage = await answered(PROVIDERS[provider](server), is_streamed=is_streamed)
    assert output == "Five, of course."
    assert (usage.requests, usage.tool_calls, usage.input_tokens, usage.output_tokens) == (2, 2, 30, 12)
    if is_streamed:
        # The first piece of a text is not a delta to pydantic-ai.
        assert [piece for piece in pieces if piece] in (
            ["think.", ", of", " course."], ["I ", "think.", "Five", ", of", " course."],
        )  # fmt: skip
    first, second = server.requests
    assert (first.api, first.model, first.system, first.prompt) == (provider, NAME, "Be brief.", "What is 2 + 3?")
    assert (first.tools, first.turns, second.turns) == (("add", "shout"), 0, 1)
    assert (first.is_streamed, second.is_streamed) == (is_streamed, is_streamed)
    assert [outcome.text for outcome in second.outcomes] == ["5", quoted.upper()]
    assert [call.name for call in second.messages[1].calls] == ["add", "shout"]


async def test_each_conversation_goes_through_a_script_of_its_own(provider: str) -> None:
    script = by_conversation(CallsTool("add", {"first": 1, "second": 1}), "done")
    async with ModelServer(script) as server:
        model = PROVIDERS[provider](server)
        answers = await asyncio.gather(*(answered(model, is_streamed=bool(i % 2)) for i in range(6)))
    assert [answer[0] for answer in answers] == ["done"] * 6
    assert sorted(request.turns for request in server.requests) == [0] * 6 + [1] * 6


async def test_a_function_answers_and_each_model_has_its_own_script() -> None:
    scripts = {"echo": lambda request: f"You said {request.prompt!r}.", "poet": ["Roses."]}
    async with ModelServer(scripts) as server:
        for name, expected in (("echo", "You said 'Hello'."), ("poet", "Roses.")):
            assert (await Agent(chat(server, name)).run("Hello")).output == expected
        with pytest.raises(ModelHTTPError, match="No script for the model 'other'"):
            await Agent(chat(server, "other")).run("Hello")


async def test_a_provider_error_is_the_clients_own_error(provider: str) -> None:
    failure = ModelFailure(429, "Slow down.", retry_after_s=0)
    async with ModelServer([failure, "after all"]) as server:
        model = PROVIDERS[provider](server)
        with pytest.raises(ModelHTTPError) as caught:
            await Agent(model, model_settings=ModelSettings(max_retries=0)).run("Hello")
        assert (caught.value.status_code, "Slow down." in str(caught.value.body)) == (429, True)
        assert (await Agent(model).run("Hello")).output == "after all"


async def test_requests_beyond_the_script_say_so_and_are_not_repeated(provider: str) -> None:
    async with ModelServer(["one"]) as server:
        model = PROVIDERS[provider](server)
        assert (await Agent(model).run("Hello")).output == "one"
        with pytest.raises(ModelHTTPError, match="The script has 1 turns"):
            await Agent(model).run("Hello")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "break_off",
    [Hangup(), RawBytes(b"data: {\xff\xfe\n\n"), ModelFailure(529, "Overloaded.")],
    ids=lambda part: type(part).__name__,
)
async def test_an_answer_that_breaks_off_fails_at_the_client(provider: str, break_off: Any) -> None:
    async with ModelServer(lambda _: ["Some ", "text", break_off, "more"]) as server:
        model = PROVIDERS[provider](server)
        agent = Agent(model, model_settings=ModelSettings(max_retries=0))
        with pytest.raises(Exception, match=r".") as caught:
            async with agent.run_stream("Hello") as result:
                async for _ in result.stream_text(delta=True):
                    pass
        assert not isinstance(caught.value, AssertionError)
        if isinstance(break_off, Hangup | RawBytes):
            with pytest.raises(Exception, match=r"."):
                await agent.run("Hello")


async def test_a_held_answer_waits_for_the_test_and_a_client_that_leaves_is_seen(provider: str) -> None:
    hold = Hold()
    async with ModelServer(lambda _: ["Some ", "text ", hold, "more."]) as server:
        agent = Agent(PROVIDERS[provider](server))
        async with agent.run_stream("Hello") as result:
            pieces = result.stream_text(delta=True, debounce_by=None)
            assert (await anext(pieces)).startswith("Some")
            hold.release()
            assert "".join([piece async for piece in pieces]).endswith("more.")
        assert server.left == []
        held = Hold()
        server.requests.clear()
    async with ModelServer(lambda _: ["Some ", held, "more."]) as server:
        running = asyncio.create_task(Agent(PROVIDERS[provider](server)).run("Hello"))
        await asyncio.to_thread(held.reached.wait, 30)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.to_thread(server.wait_until, lambda server: len(server.left) == 1)


async def test_a_pause_is_part_of_the_answer() -> None:
    async with ModelServer([["a", Pause(0.01), "b"]]) as server:
        assert (await Agent(chat(server)).run("Hello")).output == "ab"


# ---- the providers' own clients


async def test_the_client_of_openai_reads_chat_completions_streams_and_errors() -> None:
    turns = [
        ["Hi ", "there"],
        [CallsTool("add", {"first": 1}, "call_a")],
        CallsTool("add", "{broken"),
        ModelFailure(404),
    ]
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    asked: Any = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}], "tools": tools}
    async with ModelServer(turns) as server, openai.AsyncOpenAI(base_url=server.openai_url, api_key=KEY) as client:
        said = await client.chat.completions.create(**asked)
        assert (said.choices[0].message.content, said.choices[0].finish_reason) == ("Hi there", "stop")
        assert said.usage is not None
        assert said.usage.total_tokens == 15
        chunks = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
        deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
        assert (deltas[0].id, "".join(each.function.arguments or "" for each in deltas if each.function)) == (
            "call_a", '{"first":1}',
        )  # fmt: skip
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        broken = (await client.chat.completions.create(**asked)).choices[0].message.tool_calls
        assert broken is not None
        assert broken[0].function.arguments == "{broken"  # type: ignore[union-attr]
        with pytest.raises(openai.NotFoundError, match="fails here"):
            await client.chat.completions.create(**asked)


async def test_the_client_of_openai_reads_responses() -> None:
    turns = [["Hi ", "there", CallsTool("add", {"first": 1})], ModelTurn(parts=("cut",), stop="length")]
    async with ModelServer(turns) as server, openai.AsyncOpenAI(base_url=server.openai_url, api_key=KEY) as client:
        async with client.responses.stream(model=NAME, input="Hello") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert final.output_text == "Hi there"
        assert [item.type for item in final.output] == ["message", "function_call"]
        assert kinds.count("response.output_text.delta") == 2
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        cut = await client.responses.create(model=NAME, input="Hello")
        assert cut.incomplete_details is not None
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            await client.responses.create(model=NAME, input="Hello", previous_response_id="resp_1")


async def test_the_client_of_anthropic_reads_messages_streams_and_errors() -> None:
    turns = [
        ["Hi ", "there", CallsTool("add", {"first": 1})],
        "whole",
        CallsTool("add", {"first": 1}),
        ModelFailure(529),
    ]
    asked: Any = {"model": NAME, "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
    async with ModelServer(turns) as server:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
            async with client.messages.stream(**asked) as stream:
                assert "".join([text async for text in stream.text_stream]) == "Hi there"
                final = await stream.get_final_message()
            assert [block.type for block in final.content] == ["text", "tool_use"]
            assert (final.content[1].input, final.stop_reason) == ({"first": 1}, "tool_use")  # type: ignore[union-attr]
            assert (final.usage.input_tokens, final.usage.output_tokens) == (10, 5)
            assert (await client.messages.create(**asked)).content[0].text == "whole"  # type: ignore[union-attr]
            assert (await client.messages.create(**asked)).stop_reason == "tool_use"
            with pytest.raises(anthropic.APIStatusError, match="overloaded_error") as caught:
                await client.messages.create(**asked)
            assert caught.value.status_code == 529
            assert (await client.messages.count_tokens(model=NAME, messages=asked["messages"])).input_tokens > 0


async def test_the_client_of_google_reads_generate_content_streams_and_errors() -> None:
    turns = [["Hi ", "there"], CallsTool("add", {"first": 1}), "whole", CallsTool("add", "{broken"), ModelFailure(403)]
    ask: Any = {"model": NAME, "contents": "Hello"}
    async with ModelServer(turns) as server:
        options = google_types.HttpOptions(base_url=server.url, httpx_async_client=connections())
        google = genai.Client(api_key=KEY, http_options=options).aio.models
        chunks = [chunk.text async for chunk in await google.generate_content_stream(**ask)]
        assert "".join(filter(None, chunks)) == "Hi there"
        (called,) = [chunk async for chunk in await google.generate_content_stream(**ask) if chunk.function_calls]
        assert called.function_calls is not None
        assert [(call.name, call.args) for call in called.function_calls] == [("add", {"first": 1})]
        whole = await google.generate_content(**ask)
        assert whole.usage_metadata is not None
        assert (whole.text, whole.usage_metadata.total_token_count) == ("whole", 15)
        broken = await google.generate_content(**ask)
        assert broken.candidates is not None
        assert broken.candidates[0].finish_reason == google_types.FinishReason.MALFORMED_FUNCTION_CALL
        with pytest.raises(google_errors.ClientError, match="PERMISSION_DENIED"):
            await google.generate_content(**ask)


# ---- what a provider refuses

_ASSISTANT = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
}
_TOOL_USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "a", "input": {}}]}
_FUNCTION_CALL = {"role": "model", "parts": [{"functionCall": {"name": "a", "args": {}}}]}
_USER = {"role": "user", "content": "Hello"}
REFUSED = {
    "chat: a call without its output": ("/v1/chat/completions", {"messages": [_USER, _ASSISTANT, _USER]}, "c1"),
    "chat: an output without a call": (
        "/v1/chat/completions", {"messages": [_USER, {"role": "tool", "tool_call_id": "c2", "content": ""}]}, "c2",
    ),
    "chat: a name of a tool": (
        "/v1/chat/completions", {"messages": [_USER], "tools": [{"function": {"name": "a.b"}}]}, "a.b",
    ),
    "chat: two tools of one name": (
        "/v1/chat/completions", {"messages": [_USER], "tools": [{"function": {"name": "a"}}] * 2}, "unique",
    ),
    "responses: an output without a call": (
        "/v1/responses", {"input": [{"type": "function_call_output", "call_id": "c3", "output": ""}]}, "c3",
    ),
    "messages: no max_tokens": ("/v1/messages", {"messages": [_USER]}, "max_tokens"),
    "messages: a call without its result": ("/v1/messages", {"max_tokens": 9, "messages": [_USER, _TOOL_USE]}, "c1"),
    "gemini: a call without its response": (
        "/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "x"}]}, _FUNCTION_CALL]}, "a 1",
    ),
    "no conversation": ("/v1/chat/completions", {"messages": []}, "empty"),
    "not a list": ("/v1/responses", {"input": {}}, "array"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(REFUSED))
async def test_what_a_provider_refuses_is_refused_and_is_no_request(case: str) -> None:
    path, body, named = REFUSED[case]
    headers = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "anthropic-version": "1", "x-goog-api-key": KEY}
    server = ModelServer(["never said"])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(server), base_url="http://model") as client:
        answer = await client.post(path, json={"model": "m"} | body, headers=headers)
        assert (answer.status_code, named in answer.text, server.requests) == (400, True, [])
        assert (await client.post(path, json=body)).status_code == 401
        assert (await client.post(path, content=b"{", headers=headers)).status_code == 400
        assert (await client.get("/v1/models", headers=headers)).status_code == 404


async def test_a_key_that_is_not_the_one_of_the_server_is_refused(provider: str) -> None:
    async with ModelServer(["never said"], api_key="another") as server:
        with pytest.raises(ModelHTTPError) as caught:
            await Agent(PROVIDERS[provider](server)).run("Hello")
    assert (caught.value.status_code, server.requests) == (401, [])


async def test_what_a_script_raises_is_raised_at_the_end_of_the_block() -> None:
    def respond(request: Any) -> str:
        assert request.prompt == "expected"
        return "never said"

    with pytest.raises(AssertionError, match="expected"):
        async with ModelServer(respond) as server:
            with pytest.raises(ModelHTTPError):
                await Agent(chat(server)).run("something else")


async def test_a_port_that_is_taken_is_said() -> None:
    with ModelServer(["a"]) as first:
        with pytest.raises(OSError, match="Cannot listen on port"):
            with ModelServer(["b"], port=int(first.url.rpartition(":")[2])):
                pass
