"""The ssrf cases through the tools that fetch, default settings; a listener and each attempt to connect tell."""

import asyncio
import json
import socket
import time
from pathlib import Path

import pytest

from pegboard import Event, ToolError
from pegboard.core.view import View
from tests.builtin.parts import shelf
from tests.config.project import Project
from tests.egress.loopback import RawServer, Script, answer, redirect
from tests.security.test_ssrf import connects
from tests.timing import PATIENCE_S, is_within

__all__ = ["connects"]
TOOLS = ("http_request", "web_scrape")
# What the refusal calls the address, where there is one, and never the address that a spelling stands for.
INTERNAL = {
    "ssrf_01": ("http://127.0.0.1:{port}/", "(loopback)"),
    "ssrf_01 name": ("http://localhost:{port}/", "(loopback)"),
    "ssrf_02": ("http://127.0.0.2:{port}/", "(loopback)"),
    "ssrf_03": ("http://2130706433:{port}/", "(loopback)"),
    "ssrf_06": ("http://127.1:{port}/", "(loopback)"),
    "ssrf_07": ("http://[::ffff:127.0.0.1]:{port}/", "(IPv4-mapped)"),
    "ssrf_09": ("http://0.0.0.0:{port}/", "(unspecified)"),
    "ssrf_09 v6": ("http://[::]:{port}/", "(unspecified)"),
    "ssrf_07 NAT64": ("http://[64:ff9b::127.0.0.1]:{port}/", "(tunnelling)"),
    "ssrf_09 zone": ("http://[fe80::1%25lo]:{port}/", ""),
    "ssrf_10": ("http://169.254.169.254/latest/meta-data/", "(metadata service)"),
    "ssrf_15 10": ("http://10.0.0.1/", "(private)"),
    "ssrf_15 172": ("http://172.16.0.1/", "(private)"),
    "ssrf_15 192": ("http://192.168.0.1/", "(private)"),
    "ssrf_15 100": ("http://100.64.0.1/", "(shared (CGNAT))"),
    "ssrf_15 198": ("http://198.18.0.1/", "(benchmarking)"),
    "ssrf_17": ("http://allowed.example@127.0.0.1:{port}/", ""),
    "ssrf_17 fragment": ("http://127.0.0.1:{port}#@allowed.example/", "(loopback)"),
    "ssrf_22 file": ("file:///etc/passwd", "only http and https"),
    "ssrf_22 gopher": ("gopher://127.0.0.1:{port}/x", "only http and https"),
    "ssrf_22 ftp": ("ftp://127.0.0.1:{port}/x", "only http and https"),
    "ssrf_22 unix": ("unix:///var/run/docker.sock", "only http and https"),
    "ssrf_22 data": ("data:text/plain,hi", "only http and https"),
    "ssrf_22 javascript": ("javascript:alert(1)", "only http and https"),
    "ssrf_22 http+unix": ("http+unix://%2Fvar%2Frun%2Fdocker.sock/x", "only http and https"),
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def view(project: Project, config: str = "{}") -> View:
    tools = "".join(f"  - {{name: {name}, type: builtin, config: {config}}}\n" for name in TOOLS)
    return project.write(f"tools:\n{tools}").view(user="ann")


async def error(tools: View, tool: str, url: str) -> ToolError:
    args = {"url": url, "method": "GET"} if tool == "http_request" else {"url": url}
    found = (await tools.call(tool, args)).error
    assert found is not None
    return found


@pytest.mark.parametrize("case", INTERNAL)
@pytest.mark.parametrize("tool", TOOLS)
async def test_an_address_inside_is_refused_unheard(
    project: Project, connects: list[str], tool: str, case: str
) -> None:
    async with RawServer(answer(b"internal"), host="127.0.0.2" if case == "ssrf_02" else "127.0.0.1") as listener:
        url, words = INTERNAL[case]
        found = await error(view(project), tool, url.format(port=listener.port))
        assert (found.kind, listener.hits, connects) == ("blocked_destination", 0, [])
    assert "internal" not in found.message
    assert words in found.message, found
    assert "127.0.0.1" in url or "127.0.0.1" not in found.message


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect"])
@pytest.mark.parametrize("tool", TOOLS)
async def test_ssrf_20_a_redirect_to_the_inside_is_refused_at_its_hop(project: Project, tool: str, status: str) -> None:
    async with (
        RawServer(answer(b"internal"), host="127.0.0.2") as inner,
        RawServer(redirect(f"http://127.0.0.2:{inner.port}/", status=status)) as start,
    ):
        rules = f"{{allow_private: true, allow_hosts: ['127.0.0.1:{start.port}']}}"
        found = await error(view(project, rules), tool, start.url)
        assert (found.kind, start.hits, inner.hits) == ("blocked_destination", 1, 0)
    assert found.message.startswith("Redirect 1:")


@pytest.mark.parametrize("tool", TOOLS)
async def test_ssrf_21_a_name_that_changes_its_answer_is_judged_by_the_one_that_is_connected_to(
    project: Project, connects: list[str], monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    asked = list[str]()

    def answers(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        # Good for who judges, bad for who connects; each further look finds the inner one.
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port))]

    async with RawServer(answer(b"inside"), host="127.0.0.2") as inner:
        async with RawServer(
            redirect(f"http://turns.example:{inner.port}/again", status="302 Found"), port=inner.port
        ) as outer:
            rules = "{allow_private: true, allow_hosts: ['127.0.0.1/32']}"
            tools = view(project, rules)
            monkeypatch.setattr(socket, "getaddrinfo", answers)
            found = await error(tools, tool, f"http://turns.example:{outer.port}/")
    assert (found.kind, outer.hits, inner.hits) == ("blocked_destination", 1, 0), found
    assert found.message.startswith("Redirect 1:")
    assert asked == ["turns.example"] * 2
    assert connects == [f"('127.0.0.1', {outer.port})"]


@pytest.mark.parametrize(
    "name", ["X\r\nHost", "X y", "X:", "Host", "Content-Length", "Transfer-Encoding", "Connection",
             "Proxy-Authorization", "Cookie", "Authorization", "Content_Length", "Transfer_Encoding", "Proxy_Host"],
)  # fmt: skip
async def test_ssrf_23_a_model_sets_no_header_that_frames_or_identifies(project: Project, name: str) -> None:
    async with RawServer(answer(b"ok")) as server:
        tools = view(project, "{allow_private: true}")
        result = await tools.call("http_request", {"method": "GET", "url": server.url, "headers": {name: "a"}})
        assert result.error is not None
        assert (result.error.kind, server.hits) == ("invalid_arguments", 0)
        result = await tools.call("http_request", {"method": "GET", "url": server.url, "headers": {"X": "a\r\nB: c"}})
        assert result.error is not None
        assert (result.error.kind, server.hits) == ("invalid_arguments", 0)


async def test_ssrf_23_a_configured_header_cannot_be_given_another_value(project: Project) -> None:
    async with RawServer(answer(b"ok")) as server:
        rules = f"{{allow_private: true, allow_hosts: ['127.0.0.1:{server.port}'], headers: {{X-Key: configured}}}}"
        project.write(f"tools: [{{name: http_request, type: builtin, config: {rules}}}]")
        tools = project.view(user="ann")
        for name in ("X-Key", "x-key", "X-KEY", "X_Key", "x_key"):
            args = {"method": "GET", "url": server.url, "headers": {name: "mine"}}
            result = await tools.call("http_request", args)
            assert result.error is not None
            assert (result.error.kind, server.hits) == ("invalid_arguments", 0)
        await tools.call("http_request", {"method": "GET", "url": server.url, "headers": {"X-Other": "mine"}})
        assert "x-key: configured" in server.heads[0].lower()


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\n<p>")
    await reader.read()


class Ends:
    """Notes how calls end."""

    def __init__(self) -> None:
        self.seen: list[bool | None] = []

    def on_tool_result(self, event: Event) -> None:
        self.seen.append(event.ok)


@pytest.mark.parametrize("script", [silence, stall])
@pytest.mark.parametrize("tool", TOOLS)
async def test_ssrf_26_a_server_that_falls_silent_costs_the_deadline_and_no_more(tool: str, script: Script) -> None:
    # A busy machine may spend a short time on the way there; of a request never sent, all is known.
    for timeout_s in (0.5, 5, 50):
        async with RawServer(script) as server:
            ends = Ends()
            tools = shelf(tool, {"allow_private": True, "timeout_seconds": timeout_s})
            tools.catalog.observe(ends)
            started = time.monotonic()
            found = await tools.error(tool, {"url": server.url} | ({"method": "GET"} if tool == "http_request" else {}))
            assert is_within(time.monotonic() - started, timeout_s + 0.5)
            assert (found.kind, found.retryable) == ("timeout", True)
            assert ends.seen == [False]
            if server.heads:
                async with asyncio.timeout(PATIENCE_S):
                    await server.closed_by_client.wait()
                break
    assert found.outcome_unknown


@pytest.mark.parametrize(
    "org", ["../../admin", "%2e%2e%2f", "a?x=", "a#b", "//evil.example", "@evil.example", "a\r\nHost: evil"]
)
async def test_ssrf_27_an_argument_of_an_api_stays_one_segment(project: Project, org: str) -> None:
    async with RawServer(answer(b"ok")) as server:
        path = {"get": {"operationId": "users", "parameters": [{"name": "org", "in": "path", "schema": {}}]}}
        project.file("api.json", json.dumps({"openapi": "3.1.0", "paths": {"/api/{org}/users": path}}))
        project.write(f"tools: [{{name: api, type: openapi, openapi: {{spec: api.json, base_url: '{server.url}'}}}}]")
        result = await project.view().call("api__users", {"org": org})
        assert result.error is None
        head = server.heads[0]
    parts = head.split(" ")[1].split("/")
    assert (len(parts), parts[:2], parts[3]) == (4, ["", "api"], "users")
    assert f"host: 127.0.0.1:{server.port}" in head.lower()
    assert "evil" not in head.lower().partition("\r\n")[2]


async def test_ssrf_27_a_segment_of_an_api_that_climbs_is_refused(project: Project) -> None:
    async with RawServer(answer(b"ok")) as server:
        path = {"get": {"operationId": "users", "parameters": [{"name": "org", "in": "path", "schema": {}}]}}
        project.file("api.json", json.dumps({"openapi": "3.1.0", "paths": {"/api/{org}/users": path}}))
        project.write(f"tools: [{{name: api, type: openapi, openapi: {{spec: api.json, base_url: '{server.url}'}}}}]")
        for org in ("", ".", ".."):
            result = await project.view().call("api__users", {"org": org})
            assert result.error is not None
            assert (result.error.kind, server.hits) == ("invalid_arguments", 0)


async def test_a_description_that_names_an_internal_server_reaches_none(project: Project, connects: list[str]) -> None:
    """The description is foreign: neither its server, nor what it refers to, is gone to."""
    async with RawServer(answer(b"internal")) as inner:
        operation = {"operationId": "steal", "responses": {}}
        remote = {"get": {"operationId": "remote", "parameters": [{"$ref": f"{inner.url}/x.json"}]}}
        description = {
            "openapi": "3.1.0",
            "servers": [{"url": inner.url}],
            "paths": {"/": {"get": operation}, "/r": remote},
        }
        project.file("api.json", json.dumps(description))
        project.write("tools: [{name: api, type: openapi, openapi: {spec: api.json}}]")
        tools = project.view()
        assert tools.names() == ["api__steal"]
        result = await tools.call("api__steal", {})
        assert result.error is not None
        assert (result.error.kind, inner.hits, connects) == ("blocked_destination", 0, [])
