"""One reading of JSON: every door, and every answer from outside, against a reference reader that keeps all pairs."""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from pegboard import Catalog, Profile, ToolContext, ToolSpec, http_app
from pegboard.cli.arguments import read_arguments
from pegboard.cli.command_error import CommandError
from pegboard.config import context_for
from pegboard.core.json_reader import parse_json, quickly_read, read_answer
from pegboard.model.bounds import Bounds
from pegboard.model.error import CallError
from pegboard.server.gateway import gateway_of
from pegboard.server.principal import Identity, Principal
from pegboard.server.stdio import StdioConnection
from tests.builtin.web import Site, answer
from tests.config.project import Project
from tests.fuzz.json_texts import CORPUS, Refused, random_text, reference, seen
from tests.fuzz.seeds import inputs
from tests.security.test_mcp_http_client import evil_http, on_http
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION
from tests.upstream_mcp.parts import EVIL, free_port, on_stdio, running, view_of

REFUSED = "refused"
IN_CI = {"core": 2_500, "doors": 200, "answers": 60}


def expected(raw: bytes, *, takes_nul: bool = False) -> str:
    try:
        value = reference(raw, takes_nul=takes_nul)
    except Refused:
        return REFUSED
    return seen(value) if isinstance(value, dict) else REFUSED


def texts(count: int, *, fresh: bool) -> Iterator[bytes]:
    yield from CORPUS
    for _, rng in inputs(count, fresh=fresh):
        yield random_text(rng)


def keeping() -> tuple[Catalog, list[Any]]:
    """Return a catalog whose one tool notes what it was given."""
    catalog, kept = Catalog("kept", bounds=Bounds(invalid_calls_per_minute=10**9)), []

    async def keep(ctx: object, given: Any) -> str:
        kept.append(given)
        return "kept"

    spec = ToolSpec(
        name="keep", description="Keep what is given.", input_schema={"type": "object", "additionalProperties": True}
    )
    catalog.builder("keep", groups="core")(lambda ctx: spec.bind(keep))
    catalog.profile(Profile(name="default", include=("core",)))
    return catalog, kept


# Unmeasured: what traces would itself go too deep where a text does.
@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_reader_reads_what_the_reference_reads_and_refuses_the_rest(fresh: bool) -> None:
    for raw in texts(IN_CI["core"], fresh=fresh):
        try:
            read = seen(parse_json(raw))
        except CallError:
            read = REFUSED
        try:
            wanted = seen(reference(raw))
        except Refused:
            wanted = REFUSED
        assert read == wanted, raw
        quick = quickly_read(raw)
        assert quick is None or seen(quick) == wanted, raw
        try:
            answered = seen(read_answer(raw))
        except ValueError:
            answered = REFUSED
        with suppress(Refused):
            wanted = seen(reference(raw, takes_nul=True))
        # How deep an answer may be is judged where it is used.
        assert answered == wanted or (wanted == REFUSED and raw.count(b"[") + raw.count(b"{") > 64), raw


# ---------------------------------------------------------------- what comes in


JSON_HEADS = [(name.encode(), value.encode()) for name, value in {**JSON_HEADERS, "host": "127.0.0.1:8420"}.items()]
ANNOUNCED = [(b"mcp-protocol-version", VERSION.encode()), (b"mcp-method", b"tools/call"), (b"mcp-name", b"keep")]
META_TEXT = json.dumps(META).encode()


def call_text(arguments: bytes) -> bytes:
    params = b'{"name":"keep","arguments":' + arguments + b',"_meta":' + META_TEXT + b"}"
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}"


class Lines:
    """The streams of a stdio client that sends each line when the one before is answered."""

    def __init__(self) -> None:
        self.sent, self.written = asyncio.Queue[bytes](), asyncio.Queue[bytes]()

    async def line(self) -> bytes:
        return await self.sent.get()

    def write(self, data: bytes) -> None:
        self.written.put_nowait(data)

    async def drain(self) -> None:
        pass

    def stop(self) -> None:
        self.sent.put_nowait(b"")


@asynccontextmanager
async def python_door(catalog: Catalog) -> AsyncGenerator[Callable[[bytes], Any]]:
    yield lambda raw: catalog.view(ToolContext(budget=None)).call("keep", raw)


@asynccontextmanager
async def api_door(catalog: Catalog) -> AsyncGenerator[Callable[[bytes], Any]]:
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        # An empty body is an empty object there.
        yield lambda raw: send_raw(app, raw or b"x", JSON_HEADS, path="/v1/tools/keep/call")


@asynccontextmanager
async def mcp_door(catalog: Catalog) -> AsyncGenerator[Callable[[bytes], Any]]:
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        yield lambda raw: send_raw(app, call_text(raw), [*JSON_HEADS, *ANNOUNCED])


@asynccontextmanager
async def stdio_door(catalog: Catalog) -> AsyncGenerator[Callable[[bytes], Any]]:
    streams = Lines()
    connection = StdioConnection(
        gateway_of(catalog, None), Principal(identity=Identity.of(None), profile="default", session="stdio"), streams
    )
    serving = asyncio.create_task(connection.run(grace_s=1.0))

    async def send(raw: bytes) -> None:
        streams.sent.put_nowait(call_text(raw) + b"\n")
        await streams.written.get()

    yield send
    connection.stop()
    await serving


@asynccontextmanager
async def cli_door(catalog: Catalog) -> AsyncGenerator[Callable[[bytes], Any]]:
    async def send(raw: bytes) -> None:
        with suppress(CommandError):
            given = read_arguments((), raw.decode("utf-8", "surrogateescape"), spec=None)
            await catalog.view(ToolContext(budget=None)).call("keep", given)

    yield send


@asynccontextmanager
async def cli_door_with_a_pair(catalog: Catalog) -> AsyncGenerator[Callable[[bytes], Any]]:
    async def send(raw: bytes) -> None:
        with suppress(CommandError):
            given = read_arguments((":pair:=1",), raw.decode("utf-8", "surrogateescape"), spec=None)
            assert isinstance(given, dict)
            del given[":pair"]
            await catalog.view(ToolContext(budget=None)).call("keep", given)

    yield send


DOORS = [python_door, api_door, mcp_door, stdio_door, cli_door, cli_door_with_a_pair]


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_every_door_gives_a_tool_what_the_reference_reads_and_nothing_else(door: Any, fresh: bool) -> None:
    catalog, kept = keeping()
    async with door(catalog) as send:
        for raw in texts(IN_CI["doors"], fresh=fresh):
            if raw[:1] in (b"@", b"-"):
                continue
            if door is stdio_door:
                raw = raw.replace(b"\n", b" ")
            kept.clear()
            await send(raw)
            wanted = expected(raw)
            assert [seen(value) for value in kept] == ([] if wanted == REFUSED else [wanted]), raw


# ---------------------------------------------------------------- what others answer


def mcp_answer(request_id: object, text: bytes) -> bytes:
    """Return the answer of an MCP server whose structured value is written as `text`."""
    result = b'{"content":[],"structuredContent":' + text + b"}"
    return b'{"jsonrpc":"2.0","id":' + json.dumps(request_id).encode() + b',"result":' + result + b"}"


@asynccontextmanager
async def webhook_answers(project: Project) -> AsyncGenerator[Callable[[bytes], Any]]:
    body = [b""]
    site = Site(lambda asked: answer(body[0], headers=["Content-Type: application/json"]))
    async with site.server() as server:
        hook = f"{{name: ask, type: webhook, description: Ask, webhook: {{url: '{server.url}/x'}}}}"
        catalog, config = project.write(f"tools:\n  - {hook}\n").load()

        async def ask(raw: bytes) -> Any:
            body[0] = raw
            return await catalog.view(context_for(config, user=secrets.token_hex(4))).call("ask", {})

        yield ask


@asynccontextmanager
async def openapi_answers(project: Project) -> AsyncGenerator[Callable[[bytes], Any]]:
    body = [b""]
    site = Site(lambda asked: answer(body[0], headers=["Content-Type: application/json"]))
    async with site.server() as server:
        content = {"application/json": {"schema": {}}}
        operation = {"operationId": "ask", "responses": {"200": {"description": "ok", "content": content}}}
        described = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/x": {"get": operation}}}
        project.file("api.json", json.dumps(described))
        source = f"{{name: api, type: openapi, openapi: {{spec: api.json, base_url: '{server.url}'}}}}"
        catalog, config = project.write(f"tools:\n  - {source}\n").load()
        await catalog.start()

        async def ask(raw: bytes) -> Any:
            body[0] = raw
            return await catalog.view(context_for(config, user=secrets.token_hex(4))).call("api__ask", {})

        yield ask
        await catalog.close(grace_s=0)


@asynccontextmanager
async def mcp_answers(settings: Any) -> AsyncGenerator[Callable[[bytes], Any]]:
    async with running(settings) as (catalog, _):

        async def ask(raw: bytes) -> Any:
            tools = view_of(catalog, user_id=secrets.token_hex(4))
            # The server is told in text what it shall answer: each byte as a character.
            return await tools.call("up__echo", {"text": raw.decode("latin-1")})

        yield ask


@asynccontextmanager
async def stdio_answers(project: Project) -> AsyncGenerator[Callable[[bytes], Any]]:
    async with mcp_answers(on_stdio(EVIL, "call=verbatim", trust="any")) as ask:
        yield ask


@asynccontextmanager
async def http_answers(project: Project) -> AsyncGenerator[Callable[[bytes], Any]]:
    port = free_port()
    async with evil_http(port, "call=verbatim"), mcp_answers(on_http(port)) as ask:
        yield ask


@asynccontextmanager
async def stream_answers(project: Project) -> AsyncGenerator[Callable[[bytes], Any]]:
    port = free_port()
    async with evil_http(port, "call=verbatim_sse"), mcp_answers(on_http(port)) as ask:
        yield ask


def names_its_request(raw: bytes) -> bool:
    """Tell whether somebody could read whose answer it is; of a line that is not JSON nobody can."""
    try:
        orjson.loads(raw)
    except ValueError:
        return False
    return True


ANSWERERS = [webhook_answers, openapi_answers, stdio_answers, http_answers, stream_answers]


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("answers", ANSWERERS, ids=lambda answers: answers.__name__)
async def test_what_others_answer_is_read_as_the_reference_reads_it_or_not_at_all(
    answers: Any, fresh: bool, tmp_path: Path
) -> None:
    async with answers(Project(tmp_path)) as ask:
        for raw in texts(IN_CI["answers"], fresh=fresh):
            if answers in (stdio_answers, stream_answers):
                raw = raw.replace(b"\n", b" ").replace(b"\r", b" ")
            if answers is stream_answers:
                # Where an event stream is not UTF-8, its own specification says what stands there.
                raw = raw.decode("utf-8", "replace").encode()
            wanted = expected(raw, takes_nul=True)
            if not raw or (answers is stdio_answers and wanted == REFUSED and not names_its_request(raw)):
                continue
            result = await ask(raw)
            if result.is_error:
                # What is JSON may still be no value that a result can have: too long an integer, too deep.
                is_too_much = re.search(rb"[0-9]{19}", raw) or raw.count(b"[") > 50
                assert wanted == REFUSED or is_too_much, (raw, result.text)
                assert result.error.kind in ("protocol_error", "output_invalid"), result.error
            else:
                assert seen(result.structured) == wanted, raw
