"""stdio: one client on standard input and output, whatever tools print and however it ends."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests import forking
from tests.server.doors import META

SERVER = """
import asyncio, ctypes, logging, sys, warnings
from pegboard import CallContext, Catalog, Profile, ToolContext
from pegboard import run_stdio
from pegboard.server import stdio

catalog = Catalog("piped")
print("printed while starting")

@catalog.tool(groups="core")
def noisy(text: str) -> str:
    "Print wherever one can."
    print("printed", text)
    sys.stdout.write("written\\n")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    warnings.warn("warned")
    logging.getLogger("x").error("logged")
    return text

@catalog.tool(groups="core")
async def who(ctx: ToolContext) -> str:
    "Say who calls."
    return f"{ctx.user_id} in {ctx.space_id} as {sorted(ctx.roles)}, {ctx.session_id}"

@catalog.tool(groups="core")
async def greet(ctx: CallContext) -> str:
    "Ask and greet."
    return f"Hello {await ctx.ask('Who are you?')}"

@catalog.tool(groups="core")
async def wait(ctx: CallContext) -> str:
    "Wait."
    sys.stderr.write("waiting\\n")
    sys.stderr.flush()
    try:
        await asyncio.sleep(60)
    finally:
        sys.stderr.write("stopped\\n")
        sys.stderr.flush()
    return "done"

@catalog.tool(groups="core")
def stuck() -> str:
    "Never come back."
    sys.stderr.write("stuck\\n")
    sys.stderr.flush()
    import time
    time.sleep(600)
    return "done"

catalog.profile(Profile(name="chat", include=("core",)))
# A busy machine may need longer than usual for the answers that are due at the end of the input.
stdio.STDIO_END_GRACE_S = 60.0
run_stdio(catalog, identity={"user": "ann", "space": "s1", "roles": "operator"}, grace_s=0.2)
sys.stderr.write("after\\n")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def line(request_id: object, method: str, params: dict[str, Any] | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**(params or {}), "_meta": META}}
    return json.dumps(message).encode() + b"\n"


def tool(request_id: object, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> bytes:
    return line(request_id, "tools/call", {"name": name, "arguments": arguments or {}, **more})


async def start(script: Path, *, is_read_anew: bool = False, **options: Any) -> Any:
    """Start a server, with the modules imported that it needs unless they are to be read anew."""
    words = (sys.executable, str(script)) if is_read_anew else forking.started("python", str(script))
    pipe = asyncio.subprocess.PIPE
    # What is printed before serving is caught only while Python still holds it, as it does by default.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return await asyncio.create_subprocess_exec(
        *words, env=env, **{"stdin": pipe, "stdout": pipe, "stderr": pipe, **options}
    )


async def exchange(script: Path, *lines: bytes) -> tuple[list[dict[str, Any]], int | None, str]:
    """Send lines and the end of input; return the answers by arrival, the exit code and standard error."""
    ended = await asyncio.to_thread(forking.run, ["python", str(script)], given=b"".join(lines))
    return [json.loads(one) for one in ended.stdout.splitlines()], ended.returncode, ended.stderr.decode()


@pytest.mark.parametrize("era", ["2026-07-28", "auto", "legacy"])
async def test_the_official_client_lists_calls_and_is_asked(script: Path, era: Any) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": "Ann"})

    command, *words = forking.started("python", str(script))
    server = StdioServerParameters(command=command, args=words, env=dict(os.environ))
    async with Client(server, mode=era, elicitation_callback=answer) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["noisy", "who", "greet", "wait", "stuck"]
        results = [
            await client.call_tool("noisy", {"text": "hi"}),
            await client.call_tool("who", {}),
            await client.call_tool("greet", {}),
        ]
    texts = [block.text for result in results for block in result.content if isinstance(block, types.TextContent)]
    assert texts == ["hi", "ann in s1 as ['operator'], stdio", "Hello Ann"]


@pytest.mark.parametrize("is_modern", [True, False])
async def test_an_id_that_is_open_or_none_is_refused_and_its_request_is_answered_once(
    script: Path, is_modern: bool
) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    begin = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
    ]
    opening = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in begin)
    call = tool if is_modern else plain_call
    process = await start(script)
    try:
        process.stdin.write((b"" if is_modern else opening) + call(1, "wait"))
        while await process.stderr.readline() != b"waiting\n":
            pass
        process.stdin.write(call(1, "who") + call(1.5, "who") + call("1", "who"))
        answers = [json.loads(await process.stdout.readline()) for _ in range(3 if is_modern else 4)]
        by_id = {json.dumps(answer["id"]): answer for answer in answers}
        # The SDK would take it for a notification, and its client would wait for ever.
        assert "is a text or an integer" in by_id["null"]["error"]["message"]
        assert by_id["1"]["error"]["message"] == "A request with the id 1 is already open."
        assert "result" in by_id['"1"']
    finally:
        process.kill()
        await process.wait()


def plain_call(request_id: object, name: str) -> bytes:
    params = {"name": name, "arguments": {}}
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


async def test_mcps_23_only_protocol_lines_reach_the_client_and_the_end_of_input_ends_the_process(script: Path) -> None:
    answers, code, err = await exchange(script, tool(1, "noisy", {"text": "hi"}), line(2, "tools/list"))
    assert {answer["id"] for answer in answers} == {1, 2}
    assert code == 0
    for noise in ("printed while starting", "printed hi", "written", "from C", "warned", "logged", "after"):
        assert noise in err


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
EARLIER = (
    {"id": 0, "method": "initialize", "params": HELLO},
    {"method": "notifications/initialized"},
    {"id": 1, "method": "tools/list"},
    {"id": 2, "method": "tools/call", "params": {"name": "who", "_meta": {"progressToken": 1, "x/y": "z"}}},
)


async def test_the_first_call_of_an_earlier_client_is_answered_without_loading_the_sdk(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER + "\nsys.stderr.write('LOADED ' + str(sorted({'mcp', 'mcp_types'} & set(sys.modules))))")
    process = await start(path, is_read_anew=True)
    sent = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in EARLIER)
    out, said = await asyncio.wait_for(process.communicate(sent), 60)
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, out.splitlines())}
    assert answers.keys() == {0, 1, 2}
    assert answers[2]["isError"] is False
    assert said.decode().rpartition("LOADED ")[2] == "[]"


async def test_plain_requests_are_answered_without_loading_the_sdk(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(
        SERVER + "\nsys.stderr.write('LOADED ' + str(sorted({'mcp', 'pydantic_settings'} & set(sys.modules))))"
    )
    process = await start(path, is_read_anew=True)
    _, said = await asyncio.wait_for(process.communicate(line(1, "tools/list") + tool(2, "who")), 60)
    code, err = process.returncode, said.decode()
    assert (code, err.rpartition("LOADED ")[2]) == (0, "[]")


async def test_lines_that_are_no_messages_are_refused_and_the_next_is_answered(script: Path) -> None:
    bad = [b"nonsense\n", b'{"a": NaN}\n', b"[" * 100 + b"]" * 100 + b"\n", b'{"id": 1}\n', b"\n"]
    answers, code, _ = await exchange(script, *bad, tool(9, "who"))
    assert code == 0
    assert [answer["error"]["code"] for answer in answers if answer["id"] is None] == [-32700, -32700, -32700, -32600]
    assert [answer["id"] for answer in answers if answer["id"] is not None] == [9]


async def test_a_request_that_cannot_be_read_is_refused_as_the_one_that_it_is(script: Path) -> None:
    refused = {
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n":%b}}' % (b"9" * 1_001): 1,
        b'{"method":"tools/call","params":{"n":-%b},"jsonrpc":"2.0","id":"a"}' % (b"9" * 2_000): "a",
        b'{"id": -7, "method": "ping", "params": {"a": "\\u0000"}}': -7,
        b'{"jsonrpc":"2.0","method":"ping","params":{"a":1,"a":2},"id":8}': 8,
        b'{"jsonrpc":"2.0","id":9,"method":"ping","params":%b}' % (b"[" * 500 + b"]" * 500): 9,
        b'{"jsonrpc":"2.0","id":10,"method":"ping","params":{"a":"\xff"}}': 10,
        b'{"jsonrpc":"2.0","id":11,"result":{"a":NaN}}': None,
        b'{"jsonrpc":"2.0","id":007,"method":"ping"}': None,
        b'{"method":"ping","params":{"a":NaN,"id":12}': None,
        b'{"id":14,"method":"ping","params":{"a":NaN}': None,
        b'[{"id":13,"method":"ping","a":NaN}]': None,
        b'{"method":"ping","params":{"a":NaN},"id":99999999999999999999}': None,
        b"no message": None,
    }
    messages, code, _ = await exchange(script, *(text + b"\n" for text in refused), tool(99, "who"))
    assert code == 0
    assert [message["id"] for message in messages] == [*refused.values(), 99]
    assert all(message["error"]["code"] == -32700 for message in messages[:-1])


async def test_a_call_is_cancelled_by_a_notification(script: Path) -> None:
    process = await start(script)
    process.stdin.write(tool("slow", "wait"))
    while b"waiting" not in await process.stderr.readline():
        pass
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}}
    process.stdin.write(json.dumps(cancel).encode() + b"\n")
    assert await asyncio.wait_for(process.stderr.readline(), 60) == b"stopped\n"
    out, _ = await asyncio.wait_for(process.communicate(tool(2, "who")), 60)
    assert [json.loads(one)["id"] for one in out.splitlines()] == [2]
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_what_runs_and_ends_the_process_with_zero(script: Path, number: signal.Signals) -> None:
    process = await start(script)
    process.stdin.write(tool(1, "wait"))
    while b"waiting" not in await process.stderr.readline():
        pass
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert b"stopped" in await process.stderr.read()


async def test_a_tool_that_never_comes_back_does_not_hold_the_process(script: Path) -> None:
    script.write_text(SERVER.replace("stdio.STDIO_END_GRACE_S = 60.0\n", ""))
    process = await start(script)
    process.stdin.write(tool(1, "stuck"))
    while b"stuck" not in await process.stderr.readline():
        pass
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_files_serve_as_input_and_output(script: Path, tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_bytes(tool(1, "who") + tool(2, "noisy", {"text": "x"}) + tool(3, "who", requestState="x"))
    with source.open("rb") as stdin, sink.open("wb") as stdout:
        process = await start(script, stdin=stdin, stdout=stdout)
        await asyncio.wait_for(process.communicate(), 60)
    assert sorted(json.loads(one)["id"] for one in sink.read_bytes().splitlines()) == [1, 2, 3]
    assert process.returncode == 0


async def test_the_first_request_decides_the_era_also_when_the_sdk_has_not_seen_it(script: Path) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    initialize = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": hello}).encode() + b"\n"
    after, _, _ = await exchange(script, tool(1, "who"), initialize)
    assert "error" in next(answer for answer in after if answer["id"] == 2)
    before, _, _ = await exchange(script, initialize, tool(1, "who"))
    assert "result" in next(answer for answer in before if answer["id"] == 2)


OFFERS = """
from pegboard.resources import Resources
vars(catalog).setdefault("offers", Resources(catalog.registry, catalog.executor))
"""
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def early(request_id: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
    return json.dumps(message).encode() + b"\n"


@pytest.mark.parametrize("changed", [{}, {"capabilities": {"roots": {"listChanged": True}, "sampling": {}}}])
@pytest.mark.parametrize("offers", ["", "catalog.resources.resource('x://y', name='y')(lambda: 'y')\n"])
async def test_the_first_messages_are_answered_as_the_sdk_does(tmp_path: Path, changed: Any, offers: str) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER.replace("run_stdio(", f"{OFFERS if offers else ''}{offers}run_stdio("))
    hello = {**HELLO, **changed}
    rest = [INITIALIZED, early(2, "ping"), early(3, "tools/list")]
    ours, _, _ = await exchange(path, early(1, "initialize", hello), *rest)
    # A title of the client's is nothing unusual for the SDK, but icons are for us.
    client = {**HELLO["clientInfo"], "icons": []}  # type: ignore[dict-item]
    sdks, _, _ = await exchange(path, early(1, "initialize", {**hello, "clientInfo": client}), *rest)
    assert ours == sdks
    assert len(ours) == 3
    plain, _, _ = await exchange(path, line(1, "server/discover"))
    unusual = {**META, "io.modelcontextprotocol/clientInfo": client}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": unusual}}
    through, _, _ = await exchange(path, json.dumps(asked).encode() + b"\n")
    assert plain == through


async def test_a_session_that_began_without_the_sdk_goes_on_with_it(script: Path) -> None:
    begin = [early(1, "initialize", HELLO), INITIALIZED, early(2, "tools/list")]
    rest = [early(3, "tools/call", {"name": "who", "arguments": {}}), early(4, "tools/list"), early(5, "nope")]
    given, code, _ = await exchange(script, *begin, *rest)
    answers = sorted(given, key=lambda answer: answer["id"])
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]
    assert answers[1]["result"] == answers[3]["result"]
    assert answers[2]["result"]["content"][0]["text"] == "ann in s1 as ['operator'], stdio"
    assert (answers[4]["error"]["code"], code) == (-32601, 0)


async def test_an_early_session_hears_of_changes(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    change = "signal.signal(signal.SIGUSR1, lambda *_: catalog.tool(name='late', groups='core')(lambda: 1))"
    path.write_text(SERVER.replace("run_stdio(", f"import signal\n{change}\nrun_stdio("))
    process = await start(path)
    process.stdin.write(early(1, "initialize", HELLO) + INITIALIZED + early(2, "ping"))
    told = [json.loads(await asyncio.wait_for(process.stdout.readline(), 60)) for _ in range(2)]
    assert [answer["id"] for answer in told] == [1, 2]
    process.send_signal(signal.SIGUSR1)
    changed = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    assert changed == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    await asyncio.wait_for(process.communicate(b""), 60)


@pytest.mark.parametrize("leaves", ["reading one", "reading none", "before it asks"])
async def test_a_client_that_reads_no_more_ends_the_server_quietly(script: Path, leaves: str) -> None:
    reading, writing = os.pipe()
    process = await start(script, stdout=writing)
    os.close(writing)
    ends = [] if leaves == "before it asks" else [line(1, "tools/list")] * 20
    with open(reading, "rb", buffering=0) as answers:
        if leaves == "reading one":
            process.stdin.write(line(0, "tools/list"))
            await asyncio.to_thread(answers.readline)
    process.stdin.writelines([*ends, tool(2, "noisy", {"text": "x"})])
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert (b"Traceback" in err, b"bug in Pegboard" in err) == (False, False), err.decode()


@pytest.mark.parametrize("shell", ["exec {python} {script} >/dev/full", "exec {python} {script} >&-"])
async def test_a_standard_output_that_takes_nothing_ends_the_server_quietly(script: Path, shell: str) -> None:
    script.write_text(SERVER.replace('print("printed while starting")\n', ""))
    process = await asyncio.create_subprocess_shell(
        shell.format(python=sys.executable, script=script),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate(line(1, "tools/list") + tool(2, "noisy", {"text": "x"}))
    assert process.returncode == 0, err.decode()
    assert b"Traceback" not in err, err.decode()
