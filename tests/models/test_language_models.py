"""Language models: each provider's client goes out through our door, and a bad endpoint ends in a typed error."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import cast

import pytest
from pydantic_ai import Agent, ModelSettings

from pegboard import Secret, ToolContext
from pegboard.config import load_catalog
from pegboard.egress.api_transport import API_ANSWER_BYTES, API_EVENT_BYTES, API_EVENT_LINES, api_client
from pegboard.model.agent import AgentSpec, ModelProvider, ModelSpec
from pegboard.model.error import CallError, DefinitionError
from pegboard.models.clients.model_request import model_failure
from pegboard.models.clients.openai_client import responses_model
from pegboard.models.language_models import LanguageModels
from pegboard.telemetry.part_states import parts_of
from pegboard.testing import CallsTool, ModelFailure, ModelServer, RawBytes
from tests.egress.loopback import RawServer, Script, answer, redirect
from tests.timing import PATIENCE_S, within

KEY = Secret("key-of-the-test")
PROVIDERS: tuple[ModelProvider, ...] = ("openai_compatible", "anthropic", "google")
LIMIT_S = PATIENCE_S


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> ModelProvider:
    return request.param


@pytest.fixture
async def models() -> AsyncIterator[LanguageModels]:
    models = LanguageModels(lambda _: None)
    yield models
    await models.close()


def spec_of(provider: ModelProvider, url: str, timeout_s: float = LIMIT_S, **fields: object) -> ModelSpec:
    base_url = url + "/v1" if provider in ("openai", "openai_compatible") else url
    return ModelSpec(
        provider=provider,
        name="m",
        base_url=base_url,
        api_key=KEY,
        timeout_s=timeout_s,
        **fields,  # type: ignore[arg-type]
    )


# ---- a good endpoint


async def test_every_provider_answers_through_our_door_with_key_name_and_parameters(
    models: LanguageModels, provider: ModelProvider
) -> None:
    async with ModelServer([["A ", "rose."]], api_key=KEY.reveal()) as server:
        spec = spec_of(provider, server.url, parameters={"temperature": 0.25, "max_tokens": 77})
        assert await models.complete(spec, "Say it.") == "A rose."
    (request,) = server.requests
    assert (request.model, request.prompt) == ("m", "Say it.")
    assert "77" in str(request.body)
    assert "0.25" in str(request.body)


async def test_an_agent_streams_and_calls_tools_on_every_provider(
    models: LanguageModels, provider: ModelProvider
) -> None:
    async with ModelServer([CallsTool("add", {"first": 2, "second": 3}), ["Fi", "ve"]]) as server:
        agent = Agent(models.model(spec_of(provider, server.url)))

        @agent.tool_plain
        def add(first: int, second: int) -> int:
            return first + second

        async with agent.run_stream("2 + 3?") as result:
            assert "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)]) == "Five"
        assert [outcome.text for outcome in server.requests[1].outcomes] == ["5"]


async def test_openai_itself_is_asked_for_responses() -> None:
    async with ModelServer(["Yes."]) as server, api_client(server.url, timeout_s=LIMIT_S) as client:
        model = responses_model("m", server.openai_url, "key", client, ModelSettings())
        assert (await Agent(model).run("Well?")).output == "Yes."
        assert server.requests[0].api == "openai_responses"


async def test_many_ask_one_endpoint_at_once(models: LanguageModels) -> None:
    async with ModelServer(lambda request: request.prompt) as server:
        spec = spec_of("openai_compatible", server.url, 60)
        answers = await asyncio.gather(*(models.complete(spec, f"Say {i}") for i in range(60)))
        assert answers == [f"Say {i}" for i in range(60)]


async def test_a_key_comes_from_the_variable_of_the_provider_and_its_absence_is_typed() -> None:
    asked: list[str] = []

    def key_of(variable: str) -> Secret | None:
        asked.append(variable)
        return None

    models = LanguageModels(key_of)
    for provider in ("openai", "anthropic", "google"):
        with pytest.raises(CallError, match="There is no key") as caught:
            await models.complete(ModelSpec(provider=provider, name="m"), "Hello")
        assert caught.value.error.kind == "upstream_auth"
    assert asked == ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"]
    with pytest.raises(DefinitionError, match="http or https"):
        await models.complete(ModelSpec(provider="openai_compatible", name="m", base_url="file:///etc/passwd"), "Hello")
    with pytest.raises(DefinitionError, match="The model 'm' of 'openai_compatible' has no `base_url`"):
        await models.complete(ModelSpec(provider="openai_compatible", name="m"), "Hello")


def test_a_model_that_the_host_makes_itself_has_no_endpoint_to_probe(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("groups: {math: Sums}\n")
    catalog, _ = load_catalog(tmp_path / "pegboard.yaml", env={})
    for name, provider in (("own", "openai_compatible"), ("bought", "anthropic")):
        model = ModelSpec(provider=cast("ModelProvider", provider), name="m")
        catalog.agent(AgentSpec(name=name, model=model, prompt="Add.", groups=("math",)))
    assert [part.name for part in parts_of(catalog) if part.kind == "model"] == [
        "of bought (https://api.anthropic.com)"
    ]


# ---- a bad one

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nConnection: close\r\n\r\n"


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def close(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Say nothing."""


def endless(media_type: str, piece: bytes, *, gap_s: float = 0.0) -> Script:
    """Answer with the same piece for ever, or until the client has had enough; count what was sent."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.format(media_type).encode())
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(gap_s)

    return script


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    return answer(packed, headers=["Content-Type: application/json", "Content-Encoding: gzip"])


MEBI = b"x" * (1 << 20)
JSON = "application/json"
EVENTS = "text/event-stream"
DEEP = answer(b"[" * 50_000, headers=[f"Content-Type: {JSON}"])
UNREADABLE = {"protocol_error", "upstream_error"}
PAGE = answer(b"<h1>It works!</h1>", headers=["Content-Type: text/html"])
CUT = answer(b'{"choices": [', headers=[f"Content-Type: {JSON}"])
VALUES = b"[" + b"[]," * 100_000 + b"0]"
OTHER = answer(b'{"choices": 1, "candidates": 1, "content": 1}', headers=[f"Content-Type: {JSON}"])
COMMENTS = (b": " + MEBI[:100_000] + b"\n\n") * 10
BAD: dict[str, tuple[Callable[[], Script | bytes], set[str]]] = {
    "hangs before it answers": (lambda: hang, {"timeout"}),
    "sends without end": (lambda: endless(JSON, MEBI), {"result_too_large"}),
    "drips an answer": (lambda: endless(JSON, b" ", gap_s=0.01), {"timeout"}),
    "is a bomb": (gzip_bomb, {"result_too_large"}),
    "is not a model": (lambda: PAGE, UNREADABLE),
    "answers damaged JSON": (lambda: CUT, UNREADABLE),
    "answers deep JSON": (lambda: DEEP, UNREADABLE),
    "answers many small values": (
        lambda: answer(VALUES, headers=[f"Content-Type: {JSON}"]), {"result_too_large"},
    ),
    "answers another JSON": (lambda: OTHER, UNREADABLE),
    "closes at once": (lambda: close, {"upstream_lost"}),
    "speaks no HTTP": (lambda: b"SSH-2.0-OpenSSH\r\n\r\n", {"protocol_error"}),
}  # fmt: skip
NO_EVENTS = (b"data: {nothing}" + b" " * 100_000 + b"\n\n") * 10
BAD_STREAMS: dict[str, tuple[Callable[[], Script | bytes], set[str]]] = {
    "hangs before it answers": (lambda: hang, {"timeout"}),
    "sends one event without end": (lambda: endless(EVENTS, b"data: " + MEBI), {"result_too_large"}),
    "sends one event of lines without end": (lambda: endless(EVENTS, b"data: x\n" * 1_000), {"result_too_large"}),
    "sends one event of many small values": (
        lambda: answer(b"data: " + VALUES + b"\n\n", headers=[f"Content-Type: {EVENTS}"]), {"result_too_large"},
    ),
    "sends comments without end": (lambda: endless(EVENTS, COMMENTS), {*UNREADABLE, "result_too_large"}),
    "drips comments": (lambda: endless(EVENTS, b": ping\n\n", gap_s=0.01), {*UNREADABLE, "timeout"}),
    "sends what is not an event": (lambda: endless(EVENTS, NO_EVENTS), {*UNREADABLE, "result_too_large"}),
}  # fmt: skip


async def asked(models: LanguageModels, spec: ModelSpec) -> object:
    return await models.complete(spec, "Hello")


async def streamed(models: LanguageModels, spec: ModelSpec) -> object:
    try:
        async with Agent(models.model(spec)).run_stream("Hello") as result:
            return await result.get_output()
    except Exception as error:
        raise model_failure(error, "The language model") from error


async def failed(
    ask: Callable[[LanguageModels, ModelSpec], Awaitable[object]],
    models: LanguageModels,
    provider: ModelProvider,
    script: Script | bytes,
    kinds: set[str],
) -> RawServer:
    async with RawServer(script) as server:
        # On a busy machine a short limit can end before the request is sent.
        for timeout_s in (0.5, 5.0, 30.0) if "timeout" in kinds else (30.0,):
            # Whatever the endpoint does, the caller gets the error soon after the limit.
            with within(min(timeout_s + 3.0, 10.0)), pytest.raises(CallError) as caught:
                await ask(models, spec_of(provider, server.url, timeout_s))
            assert caught.value.error.kind in kinds, caught.value
            assert "It works" not in str(caught.value)
            if server.hits:
                break
        await models.close()
    return server


# What is no matter of a provider's own client is tried with one of them, since each try costs.
ALSO = {
    "hangs before it answers", "sends without end", "drips an answer", "is not a model", "sends one event without end",
    "drips comments",
}  # fmt: skip


def tries(cases: Iterable[str]) -> list[tuple[ModelProvider, str]]:
    return [(of, case) for of in PROVIDERS for case in cases if of == "openai_compatible" or case in ALSO]


@pytest.mark.parametrize(("provider", "case"), tries(BAD))
async def test_an_endpoint_that_misbehaves_is_a_typed_error_within_its_limit(
    models: LanguageModels, provider: ModelProvider, case: str
) -> None:
    make, kinds = BAD[case]
    assert (await failed(asked, models, provider, make(), kinds)).hits == 1


@pytest.mark.parametrize(("provider", "case"), tries(BAD_STREAMS))
async def test_a_stream_that_misbehaves_is_a_typed_error_within_its_limit(
    models: LanguageModels, provider: ModelProvider, case: str
) -> None:
    make, kinds = BAD_STREAMS[case]
    if "comments" in case and provider != "google":
        # Google's own client knows no comments; the others take them until they are stopped.
        kinds = kinds - UNREADABLE or kinds
    assert (await failed(streamed, models, provider, make(), kinds)).hits == 1


@pytest.mark.parametrize("ask", [asked, streamed])
async def test_a_redirect_is_refused_and_its_target_never_sees_the_key(
    models: LanguageModels, provider: ModelProvider, ask: Callable[..., Awaitable[object]]
) -> None:
    async with RawServer(answer(b"{}")) as target:
        for status in ("302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
            script = redirect(target.url + "/v1/chat/completions", status=status)
            await failed(ask, models, provider, script, {"upstream_error"})
        assert target.hits == 0
    # Not even to another path of its own host.
    script = redirect("/elsewhere", status="307 Temporary Redirect")
    assert (await failed(ask, models, provider, script, {"upstream_error"})).hits == 1


async def test_an_answer_that_has_no_text_where_one_was_asked_for_is_told(
    models: LanguageModels, provider: ModelProvider
) -> None:
    async with ModelServer([CallsTool("add", {"first": 1})]) as server:
        with pytest.raises(CallError, match="answered without text") as told:
            await models.complete(spec_of(provider, server.url), "Say it.")
    assert told.value.error.kind == "protocol_error"


async def test_answers_as_large_as_the_limits_allow_are_read(models: LanguageModels) -> None:
    long = "word " * (API_EVENT_BYTES // 10)
    async with ModelServer(lambda _: [long]) as server:
        spec = spec_of("openai_compatible", server.url, 60)
        assert await models.complete(spec, "Hello") == long
        assert await streamed(models, spec) == long
    assert len(long) * 2 < API_ANSWER_BYTES


async def test_events_come_whole_however_they_are_cut(models: LanguageModels) -> None:
    pieces = [f"pïece {i} " for i in range(20)]
    stream: list[bytes] = []
    async with ModelServer([pieces]) as server:
        spec = spec_of("openai_compatible", server.url)
        async with api_client(server.url, timeout_s=LIMIT_S) as client:
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
            answered = await client.post(
                f"{server.openai_url}/chat/completions", json=body, headers={"authorization": "Bearer k"}
            )
            stream.append(answered.content)
    for ending in (b"\n", b"\r\n", b"\r"):
        for size in (1, 7, 4096):
            await _streams(models, stream[0].replace(b"\n", ending), size, "".join(pieces))
    assert spec.timeout_s == LIMIT_S


@pytest.mark.parametrize(
    "padding", [b": " + b"x" * API_EVENT_BYTES + b"\n", b": x\n" * API_EVENT_LINES], ids=["bytes", "lines"]
)
async def test_an_event_beyond_its_limit_is_refused_also_where_the_stream_would_end(
    models: LanguageModels, padding: bytes
) -> None:
    async with ModelServer(["all of it"]) as server, api_client(server.url, timeout_s=LIMIT_S) as client:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
        path = f"{server.openai_url}/chat/completions"
        events = (await client.post(path, json=body, headers={"authorization": "Bearer k"})).content
    half = padding[: len(padding) // 2].rpartition(b"\n")[0] or b": x"
    await _streams(models, half + b"\n" + events, 65_536, "all of it")

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.format(EVENTS).encode() + padding + events)
        await writer.drain()

    await failed(streamed, models, "openai_compatible", script, {"result_too_large"})


async def _streams(models: LanguageModels, events: bytes, size: int, expected: str) -> None:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.format(EVENTS).encode())
        for start in range(0, len(events), size):
            writer.write(events[start : start + size])
            await writer.drain()

    async with RawServer(script) as server:
        assert await streamed(models, spec_of("openai_compatible", server.url)) == expected
        await models.close()


async def test_a_provider_error_keeps_its_kind_and_none_of_its_words(
    models: LanguageModels, provider: ModelProvider
) -> None:
    failures = {
        401: "upstream_auth", 403: "upstream_auth", 404: "upstream_error", 429: "rate_limited",
        500: "upstream_unavailable", 503: "upstream_unavailable",
    }  # fmt: skip
    script = [ModelFailure(status, "the key-of-the-test was wrong", retry_after_s=90) for status in failures]
    async with ModelServer(script) as server:
        for kind in failures.values():
            with pytest.raises(CallError) as caught:
                await models.complete(spec_of(provider, server.url), "Hello")
            assert caught.value.error.kind == kind
            assert "key-of-the-test" not in str(caught.value)
            assert caught.value.error.retry_after_s == (90 if kind == "rate_limited" else None)
    assert len(server.requests) == len(failures)


async def test_an_error_amid_a_stream_is_typed(models: LanguageModels, provider: ModelProvider) -> None:
    async with ModelServer([["Some", ModelFailure(500)], ["Some", RawBytes(b"data: \xff\xfe\n\n"), "more"]]) as server:
        for _ in range(2):
            with pytest.raises(CallError):
                await streamed(models, spec_of(provider, server.url))


@pytest.mark.parametrize("of", ["anthropic", "google", "openai_compatible"])
async def test_a_model_of_any_provider_summarises_for_a_config(of: ModelProvider, tmp_path: Path) -> None:
    async with ModelServer(lambda _: ["A short ", "summary."], api_key="the-key") as server:
        base_url = server.openai_url if of == "openai_compatible" else server.url
        (tmp_path / "pegboard.yaml").write_text(
            f"models: {{default: {{provider: {of}, name: m, base_url: '{base_url}', api_key: '${{KEY}}'}}}}\n"
            "tools: [{name: text_summarize, type: builtin}]\n"
        )
        catalog, _ = load_catalog(tmp_path / "pegboard.yaml", env={"KEY": "the-key"})
        result = await catalog.view(ToolContext()).call("text_summarize", {"text": "word " * 300})
        assert result.structured == {"summary": "A short summary.", "was_summarized": True}
        await catalog.close()
    assert "word word" in server.requests[0].prompt


def test_a_model_whose_key_is_nowhere_is_refused_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("models:\n  default: anthropic:claude\n  other: google:gemini\n")
    with pytest.raises(DefinitionError) as caught:
        load_catalog(tmp_path / "pegboard.yaml", env={})
    said = str(caught.value)
    for expected in (":2:", "'ANTHROPIC_API_KEY' is not set", ":3:", "'GEMINI_API_KEY' is not set"):
        assert expected in said
