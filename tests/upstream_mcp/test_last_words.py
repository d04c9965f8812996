"""Why a server does not work is told in its own words: how it ended, junk on stdout, an address that is none."""

import logging
import sys

import pytest

from pegboard.model.secret import Secret
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.builtin.web import Asked, Site, answer
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import running, until, view_of

SPEAKING = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    if asked["method"] == "initialize":
        said = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        said["serverInfo"] = {"name": "e", "version": "1"}
    elif asked["method"] == "tools/list":
        said = {"tools": [{"name": "die", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        sys.exit("gone in the call")
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
"""


def program(code: str, **said: object) -> ServerSettings:
    return ServerSettings(name="up", transport="stdio", command=sys.executable, args=("-Sc", code), **said)  # type: ignore[arg-type]


CLOSED = "import os, time; os.close(1); time.sleep(60)"


@pytest.fixture(autouse=True)
def _a_program_may_take_long_to_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.sources.mcp.stdio_transport.MCP_EXIT_WAIT_S", PATIENCE_S)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise SystemExit(3)", "it ended the connection: its program ended with exit code 3."),
        ("import os; os.kill(os.getpid(), 9)", "its program was ended by SIGKILL."),
        (CLOSED, "its program closed its stdout."),
        ("raise KeyError('x' * 9_999)", "xxx'"),
        ("import sys; print('\\x1b[31mred\\u202e\\nINFO forged', file=sys.stderr)", "data: 'red | INFO forged'."),
        ("import sys; print('k:', __import__('os').environ['K'], file=sys.stderr)", "data: 'k: [redacted]'."),
        ("import os; os.write(2, '\\u200b'.join(os.environ['K']).encode())", "data: '[redacted]'."),
        ("print('Usage: up', flush=True); print('2'); raise SystemExit(2)", "alone, has 'Usage: up' and 1 more lines."),
        ("print('no\\n' * 1_100)", "messages of the protocol alone, has 'no' and 1000 more lines."),
    ],
)  # fmt: skip
async def test_how_a_program_ended_is_told_with_what_it_wrote_last(
    code: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if code == CLOSED:
        monkeypatch.setattr("pegboard.sources.mcp.stdio_transport.MCP_EXIT_WAIT_S", 0.2)
    settings = program(code, env={"K": Secret("up-key-canary"), "PYTHONIOENCODING": "utf-8"})
    async with running(settings) as (_, source):
        reason = source.state().reason
    assert told.casefold() in reason.casefold()
    assert len(reason) < 1_300
    assert "canary" not in reason
    assert "\n" not in reason


async def test_of_a_program_that_hangs_the_junk_on_its_stdout_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.sources.mcp.supervised_source.MCP_CONNECT_S", 1.5)
    hanging = program("print('Listening on 3000', flush=True); __import__('time').sleep(60)", timeout_s=0.1)
    async with running(hanging) as (_, source):
        # A busy machine may need longer than an attempt lasts until the program has written it.
        await until(lambda: "Listening" in source.state().reason)
        reason = source.state().reason
    assert reason == (
        "The MCP server 'up' did not answer in time. "
        "Its stdout, which is for messages of the protocol alone, has 'Listening on 3000'."
    )


async def test_who_alone_had_calls_hears_the_words_and_nobody_hears_those_about_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(program(SPEAKING, trust="any")) as (catalog, source):
        ended = await view_of(catalog, user_id="ann").call("up__die", {})
        assert ended.error is not None
        assert "exit code 1" in ended.error.message
        assert "gone in the call" in ended.error.message
        await until(lambda: source.state().reason)
        # A caller who had no call on that connection learns how it ended, and not what was written meanwhile.
        assert "exit code 1" in source.state().reason
        assert "gone in the call" not in source.state().reason
    assert "gone in the call" in caplog.text


async def test_two_callers_on_one_connection_hear_none_of_its_words() -> None:
    kind = 'if asked["params"]["arguments"]: sys.exit("gone")\n        said = {"content": []}'
    code = SPEAKING.replace('sys.exit("gone in the call")', kind)
    async with running(program(code, trust="any")) as (catalog, _):
        assert not (await view_of(catalog, user_id="ann").call("up__die", {})).is_error
        ended = await view_of(catalog, user_id="bob").call("up__die", {"now": 1})
    assert ended.error is not None
    assert "exit code 1" in ended.error.message
    assert "gone'" not in ended.error.message


PLAIN = ["Content-Type: text/plain"]
HTML = answer(b"<!doctype html><title>Welcome</title>", headers=["Content-Type: text/html"])
JSON = ["Content-Type: application/json"]
NO_SERVERS = {
    "html": (HTML, "200 text/html, which begins '<!doctype html>"),
    "json": (answer(b'{"status":"ok"}', headers=JSON), "200 application/json, which begins"),
    "list": (answer(b"[1]", headers=JSON), "200 application/json, which begins '[1]'"),
    "empty": (answer(b"", headers=JSON), "200 application/json without content"),
    "nothing": (answer(b"", status="202 Accepted"), "202 without content"),
    "missing": (answer(b"\x1b[31mpage", status="404 No", headers=PLAIN), "404 text/plain, which begins 'page'"),
    "method": (answer(b"no", status="405 No", headers=JSON), "405 application/json"),
    "bad": (answer(b'{"x":"up-key-canary"}', status="400 Bad", headers=JSON), "begins '{\"x\":\"[redacted]\"}'"),
    "failing": (answer(b"boom", status="500 Oh", headers=PLAIN), "failed instead of opening a session: 500 text/plain"),
}  # fmt: skip


class Anything:
    """Answers every request with the page of its path."""

    def __call__(self, asked: Asked) -> bytes:
        return NO_SERVERS[asked.path.strip("/")][0]


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_address_that_answers_otherwise_is_told_with_what_it_answers_and_no_traceback(
    transport: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    async with Site(Anything()).server() as server:
        addresses = [
            ServerSettings(
                name=f"at_{page}",
                transport=transport,  # type: ignore[arg-type]
                url=f"{server.url}/{page}",
                headers={"X-Key": Secret("up-key-canary")},
            )
            for page in NO_SERVERS
        ]
        reasons: dict[str, str] = {}
        for settings in addresses:
            async with running(settings) as (_, source):
                reasons[settings.name.removeprefix("at_")] = source.state().reason
    for page, (_, told) in NO_SERVERS.items():
        assert told in reasons[page]
        if page != "failing":
            assert reasons[page].startswith(f"The address of 'at_{page}' answered, but not as an MCP server: ")
    assert "Traceback" not in caplog.text + capfd.readouterr().err
    assert "canary" not in caplog.text


async def test_an_error_that_names_no_request_ends_the_one_that_it_answers() -> None:
    refusing = answer(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not today"}}', headers=JSON)
    async with Site(lambda asked: refusing).server() as server:
        async with running(ServerSettings(name="up", transport="http", url=server.url)) as (_, source):
            assert "not today" in source.state().reason
