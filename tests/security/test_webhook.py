"""The shared cases of component webhook, and those of config and ssrf as far as a webhook can show them."""

import asyncio
import logging
import os
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import orjson
import pytest
from mcp import Client

from pegboard import ToolError, http_app
from pegboard.config import context_for
from pegboard.core.view import View
from tests import forking
from tests.builtin.web import Asked, Site, answer, as_json
from tests.config.project import Project
from tests.core.parts import Recorder
from tests.egress.loopback import RawServer, redirect
from tests.evil.observing import observed
from tests.security.test_ssrf import certificates
from tests.server.doors import served
from tests.timing import OF_THREAD, PATIENCE_S, is_within


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


CANARY = "canary-Zx9+secret/value~tail"
TOOL = """\
name: acme
tools:
  - name: send
    type: webhook
    description: Send a mail
    webhook: {{url: "{url}", headers: {{Authorization: "Bearer ${{EMAIL_API_KEY}}"}}, timeout: {timeout}, {keys}}}
    parameters: {{text: {{type: string, required: true}}}}
"""


def view(project: Project, url: str, *, keys: str = "", timeout: float = 10) -> View:
    project.env = {"EMAIL_API_KEY": CANARY}
    return project.write(TOOL.format(url=url, keys=keys, timeout=timeout)).view(user="ann")


async def error(tools: View, text: str = "hi") -> ToolError:
    found = (await tools.call("send", {"text": text})).error
    assert found is not None
    return found


def assert_clean(text: str) -> None:
    """No spelling of the secret stands in the text, and no piece of eight characters from its beginning."""
    whole = (CANARY, quote(CANARY), quote(CANARY, safe=""), b64encode(CANARY.encode()).decode(), CANARY[:8])
    assert [spelling for spelling in whole if spelling in text] == []


# ---------------------------------------------------------------- HOOK-01


def cut_off(reply: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A peer that says this much and then resets the connection."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await writer.drain()
        writer.transport.abort()

    return script


LONG = f"sorry, Bearer {CANARY} is wrong. ".encode() * 40
PARTIAL = ("x" * 480 + f" {CANARY}").encode()


JSON = ["Content-Type: application/json"]
FAULTS: dict[str, tuple[Any, str, bool, bool, int | None]] = {
    # What the peer plays: the kind, whether to try again, whether it may have happened, the status.
    "500": (answer(LONG, status="500 Oops"), "upstream_error", True, True, 500),
    "503, cut in the secret": (answer(PARTIAL, status="503 Away"), "upstream_unavailable", True, True, 503),
    "502, the beginning of it": (
        answer(CANARY[:20].encode(), status="502 Bad"),
        "upstream_unavailable",
        True,
        True,
        502,
    ),
    "429": (answer(LONG, status="429 Slow", headers=["Retry-After: 3"]), "rate_limited", True, False, 429),
    "401": (answer(LONG, status="401 No"), "upstream_auth", False, False, 401),
    "reset before the answer": (cut_off(b""), "upstream_lost", True, True, None),
    "reset in the answer": (cut_off(answer(b"half")[:-2]), "upstream_lost", True, True, None),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "protocol_error", False, True, None),
    "bad JSON": (answer(b"{broken", headers=JSON), "protocol_error", False, True, None),
    "deep JSON": (answer(b"[" * 900 + b"]" * 900, headers=JSON), "protocol_error", False, True, None),
}


@pytest.mark.parametrize("played", FAULTS)
async def test_hook_01_every_failure_is_one_definite_typed_error(
    project: Project, caplog: pytest.LogCaptureFixture, played: str
) -> None:
    script, kind, retryable, unknown, status = FAULTS[played]
    caplog.set_level(logging.DEBUG)
    observer = Recorder()
    async with RawServer(script) as peer:
        tools = view(project, peer.url)
        started = asyncio.get_running_loop().time()
        result = await tools.call("send", {"text": "hi"}, callbacks=observer)
        took_s = asyncio.get_running_loop().time() - started
        heads = peer.heads
    found = result.error
    assert found is not None
    assert (found.kind, found.retryable, found.outcome_unknown) == (kind, retryable, unknown)
    assert is_within(took_s, 1)
    # The peer heard the real secret, once: nothing is repeated behind the caller's back.
    assert [f"authorization: bearer {CANARY}".lower() in head.lower() for head in heads] == [True]
    assert [event.ok for event in observer.results()] == [False]
    assert "\n" not in found.message
    if status is not None:
        assert found.details["status"] == status
        assert 0 < len(str(found.details["body"])) <= 500
        assert "[redacted]" in str(found.details["body"])
    for said in (repr(result), str(observer.events), caplog.text):
        assert_clean(said)


async def test_hook_01_a_certificate_nobody_trusts_is_a_definite_error(project: Project, tmp_path: Path) -> None:
    server_side: ssl.SSLContext = certificates("localhost", tmp_path)[0]
    async with RawServer(answer(), tls=server_side) as peer:
        found = await error(view(project, f"https://localhost:{peer.port}/"))
        assert peer.heads == []
    assert (found.kind, found.retryable, found.outcome_unknown) == ("upstream_unavailable", False, False)


async def test_hook_01_a_peer_that_is_not_there_is_a_definite_error(project: Project) -> None:
    async with RawServer(answer()) as gone:
        url = gone.url
    found = await error(view(project, url))
    assert (found.kind, found.retryable, found.outcome_unknown) == ("upstream_unavailable", True, False)


async def test_hook_01_an_empty_204_is_a_success_unless_a_value_is_promised(project: Project) -> None:
    async with RawServer(answer(b"", status="204 No Content")) as peer:
        result = await view(project, peer.url).call("send", {"text": "hi"})
        assert (result.is_error, result.text) == (False, "The service behind 'send' answered 204 and said nothing.")
        found = await error(view(project, peer.url, keys="result: $.id"))
    assert (found.kind, found.outcome_unknown) == ("protocol_error", True)


MANY = {
    "lists": (b"[]", 1_700_000, "answer_values"),
    "numbers": (b"1", 2_500_000, "answer_values"),
    "texts in lists": (b'[""]', 80_000, "answer_containers"),
}


@pytest.mark.parametrize("keys", ["", "result: $.id"])
@pytest.mark.parametrize("filled", MANY)
async def test_an_answer_of_millions_of_small_values_holds_nobody(project: Project, filled: str, keys: str) -> None:
    unit, count, bound = MANY[filled]
    body = b'{"id": 7, "all": [' + b",".join([unit] * count) + b"]}"
    async with RawServer(answer(body, headers=JSON)) as peer:
        tools = view(project, peer.url, keys=keys)
        async with observed() as cost:
            found = await error(tools)
    assert (found.kind, found.outcome_unknown) == ("result_too_large", True)
    assert bound in found.message
    assert is_within(cost.longest_block_s, 0.1, OF_THREAD)


async def test_a_part_can_be_picked_from_a_long_list_of_numbers(project: Project) -> None:
    body = b'{"id": 7, "all": [' + b",".join([b"0.25"] * 200_000) + b"]}"
    async with RawServer(answer(body, headers=JSON)) as peer:
        tools = view(project, peer.url, keys="result: $.id")
        async with observed() as cost:
            result = await tools.call("send", {"text": "hi"})
    assert (result.is_error, result.structured) == (False, 7)
    assert is_within(cost.longest_block_s, 0.1, OF_THREAD)


async def test_hook_01_a_peer_that_drips_is_left_at_the_deadline(project: Project) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    # A busy machine may spend a short time on the way there; of a request never sent, all is known.
    for timeout_s in (0.3, 3, 30):
        async with RawServer(drip) as peer:
            started = asyncio.get_running_loop().time()
            found = await error(view(project, peer.url, timeout=timeout_s))
            assert is_within(asyncio.get_running_loop().time() - started, timeout_s + 0.5)
            assert found.kind == "timeout"
            if peer.heads:
                async with asyncio.timeout(PATIENCE_S):
                    await peer.closed_by_client.wait()
                break
    assert found.outcome_unknown


# ---------------------------------------------------------------- CFG-01, CFG-04


async def test_cfg_01_the_secret_of_a_header_stands_in_nothing_that_goes_out(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def reply(asked: Asked) -> bytes:
        # The service tells everything that it was sent, as httpbin does; and parts of it.
        said = asked.headers["authorization"]
        shown = {
            "headers": asked.headers,
            "base64": b64encode(said.encode()).decode(),
            "url": quote(said),
            "cut": said[:18],
        }
        return as_json(shown, status="200 OK" if b"well" in asked.body else "500 Oops")

    site, observer = Site(reply), Recorder()
    async with site.server() as server:
        view(project, server.url)
        with project.path.open("a") as more:
            more.write("profiles: {few: {exposure: two_tool}}\n")
        catalog, config = project.load()
        ctx = context_for(config, user="ann")
        tools = catalog.view(ctx)
        out = [repr(config), repr(ctx), repr(catalog.snapshot().entries), repr(tools.why("send"))]
        out += [tools.export_bytes(target).decode() for target in ("openai", "anthropic", "gemini", "mcp")]
        for text in ("well", "badly"):
            result = await tools.call("send", {"text": text}, callbacks=observer)
            out += [repr(result), str(result.error)]
        few = catalog.exposed(catalog.view(ctx, profile="few"))
        for name, args in (
            ("getTools", {"request": [{"agent": "main", "tools": ["send"]}]}),
            ("useTools", {"calls": [{"tool": "send", "arguments": {"text": "badly"}}]}),
        ):
            result = await few.call(name, args, callbacks=observer)
            assert "send" in result.text, name
            out += [few.export_bytes("openai").decode(), repr(result)]
        async with served(http_app(catalog, config=lambda visit: context_for(config, user="ann"))) as url:
            async with Client(f"{url}/mcp") as client:
                out += [str(await client.list_tools())]
                out += [str(await client.call_tool("send", {"text": text})) for text in ("well", "badly")]
            async with httpx2.AsyncClient(base_url=url) as plain:
                pages = ("/v1/tools", "/v1/tools/send", "/v1/tools/send/why", "/openapi.json", "/healthz", "/metrics")
                out += [(await plain.get(page)).text for page in pages]
                answers = [await plain.post("/v1/tools/send/call", json={"text": text}) for text in ("well", "badly")]
                out += [f"{one.headers} {one.text}" for one in answers]
        commands = ("list --json", "list", "show send", "show send --json", "export openai", "check", "why send",
                    "call send text=well --json", "call send text=badly", "call send text=badly --json")  # fmt: skip
        out += [await asyncio.to_thread(run, project, command) for command in commands]
    out += [str(observer.events), caplog.text]
    for said in out:
        assert_clean(said)
    assert {asked.headers["authorization"] for asked in site.asked} == {f"Bearer {CANARY}"}
    assert len(site.asked) == 10


def run(project: Project, command: str) -> str:
    """Return all that a command says."""
    done = forking.run(["pegboard", *command.split()], cwd=project.folder, env={**os.environ, **project.env})
    assert b"Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1), done.stderr
    return (done.stdout + done.stderr).decode()


async def test_cfg_04_variables_in_arguments_are_delivered_as_they_are(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "${AWS_SECRET_ACCESS_KEY} $HOME {{ EMAIL_API_KEY }} ${HOME:-x} $$"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    site = Site(lambda asked: as_json({}))
    async with site.server() as server:
        (project.folder / "out").mkdir()
        view(project, server.url, keys="body: {said: '{{ text }}'}")
        with project.path.open("a") as more:
            more.write("  - {name: http_request, type: builtin, config: {allow_private: true}}\n")
            more.write("  - {name: write_file, type: builtin, config: {roots: [out]}}\n")
        tools = project.view(user="ann")
        request = {"method": "POST", "url": server.url, "body": {"said": text}, "headers": {"X-Said": text}}
        for name, args in (
            ("send", {"text": text}),
            ("http_request", request),
            ("write_file", {"path": "said.txt", "content": text}),
        ):
            assert (await tools.call(name, args)).error is None
    assert [asked.json for asked in site.asked] == [{"said": text}] * 2
    assert site.asked[1].headers["x-said"] == text
    assert (project.folder / "out" / "said.txt").read_text() == text


# ---------------------------------------------------------------- ssrf


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize("form", ["http://127.0.0.2:{port}/", "//127.0.0.2:{port}/", "http://2130706434:{port}/"])
async def test_ssrf_20_a_service_cannot_send_us_to_another_host(project: Project, status: str, form: str) -> None:
    async with RawServer(answer(b"internal"), host="127.0.0.2") as inner:
        async with RawServer(redirect(form.format(port=inner.port), status=status)) as peer:
            found = await error(view(project, peer.url))
        assert (found.kind, inner.hits, peer.hits) == ("blocked_destination", 0, 1)
    assert "Redirect 1" in found.message


async def test_ssrf_20_nor_to_another_port_of_its_own(project: Project) -> None:
    async with RawServer(answer(b"internal")) as inner:
        async with RawServer(redirect(f"{inner.url}/", status="307 Temporary")) as peer:
            found = await error(view(project, peer.url))
        assert (found.kind, inner.hits) == ("blocked_destination", 0)


@pytest.mark.parametrize("host", ["{text}.example.com", "{text}", "example.com@{text}", "[{text}]"])
def test_ssrf_17_no_argument_chooses_the_host(project: Project, host: str) -> None:
    project.write(TOOL.format(url=f"http://{host}/x", keys="", timeout=1))
    project.env = {"EMAIL_API_KEY": CANARY}
    assert any("must have its placeholders behind the host" in said for said in project.said())


@pytest.mark.parametrize(
    "text", ["../../admin", "%2e%2e%2f", "a?x=", "a#b", "//evil.example", "..\\..", "a\r\nHost: evil", "@evil.example"]
)
async def test_ssrf_27_an_argument_in_the_path_stays_one_segment(project: Project, text: str) -> None:
    async with RawServer(as_json({})) as peer:
        result = await view(project, peer.url + "/api/{text}/users").call("send", {"text": text})
        assert result.error is None
        head = peer.heads[0]
    parts = head.split(" ")[1].split("/")
    assert (len(parts), parts[:2], parts[3]) == (4, ["", "api"], "users")
    assert f"host: 127.0.0.1:{peer.port}" in head.lower()
    assert "evil" not in head.lower().partition("\r\n")[2]


@pytest.mark.parametrize("text", ["", ".", ".."])
async def test_ssrf_27_a_segment_that_climbs_is_refused(project: Project, text: str) -> None:
    async with RawServer(as_json({})) as peer:
        found = await error(view(project, peer.url + "/api/{text}/users"), text)
        assert (found.kind, peer.hits) == ("invalid_arguments", 0)


async def test_ssrf_23_an_argument_becomes_no_header(project: Project) -> None:
    text = 'x\r\nX-Evil: 1\r\n\r\n", "admin": true, "y": "\u2028'
    async with RawServer(as_json({})) as peer:
        for keys in ("", "method: GET", 'body: \'{"said": "{{ text }}"}\''):
            assert (await view(project, peer.url, keys=keys).call("send", {"text": text})).error is None
        heads, bodies = peer.heads, peer.bodies
    assert not any("x-evil" in head.lower().partition("\r\n")[2] for head in heads)
    assert [orjson.loads(body) for body in bodies if body] == [{"text": text}, {"said": text}]
