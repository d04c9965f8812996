"""http_request, send_webhook and graphql_query against a server on loopback."""

import base64
import gzip
import hashlib
import hmac
import resource
from datetime import UTC, datetime
from typing import Any

import pytest

from pegboard import DefinitionError
from pegboard.sources.builtin.builtins import builtin_entry
from tests.builtin.parts import Shelf, shelf
from tests.builtin.web import Asked, Site, answer, as_json, page
from tests.egress.loopback import RawServer, names, redirect

OPEN = {"allow_private": True}
CANARY = "CANARY-key-0001"


async def test_a_request_goes_out_and_its_answer_comes_back() -> None:
    site = Site(lambda asked: as_json({"got": asked.json}, status="201 Created"))
    async with site.server() as server:
        got = await shelf("http_request", OPEN).value(
            "http_request",
            {"method": "POST", "url": f"{server.url}/a?b=1", "headers": {"X-One": "1"}, "body": {"n": [1]}},
        )
    assert (got["status_code"], got["ok"], got["body"], got["encoding"]) == (201, True, {"got": {"n": [1]}}, "json")
    assert got["url"] == f"{server.url}/a?b=1"
    asked = site.asked[0]
    assert (asked.method, asked.target, asked.headers["x-one"]) == ("POST", "/a?b=1", "1")
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "301 Moved"])
async def test_any_status_is_a_result(status: str) -> None:
    async with RawServer(page("no such page", status=status)) as server:
        got = await shelf("http_request", OPEN).value("http_request", {"method": "GET", "url": server.url})
    assert (got["status_code"], got["ok"], got["body"]) == (int(status[:3]), status[:3] == "301", "no such page")


async def test_bodies_that_are_no_json_come_as_text_or_base64() -> None:
    for body, kind, shown in (
        ("h\u00e9".encode("latin-1"), "text/plain; charset=latin-1", ("h\u00e9", "text")),
        (b"{broken", "application/json", ("{broken", "text")),
        (b"\x89PNG\0\1", "image/png", (base64.b64encode(b"\x89PNG\0\1").decode(), "base64")),
        (b"x", "text/plain; charset=zip", ("x", "text")),
        (b"\\d", "text/plain; charset=undefined", ("\\d", "text")),
        (b"+ADw-b+AD4-", "text/plain; charset=utf-7", ("+ADw-b+AD4-", "text")),
        (b"+ADw-b+AD4-", "text/plain; charset=csUnicode11UTF7", ("+ADw-b+AD4-", "text")),
        (b"~{<:~}", "text/plain; charset=hz-gb-2312", ("~{<:~}", "text")),
        (b"\x1b$)C\x0eab\x0f", "text/plain; charset=iso-2022-kr", ("\x1b$)C\x0eab\x0f", "text")),
        (b"LaN", "text/plain; charset=cp037", ("LaN", "text")),
        ("\u65e5".encode("shift_jis"), "text/plain; charset=Shift_JIS", ("\u65e5", "text")),
        (b"\\d", "text/plain; charset=unicode_escape", ("\\d", "text")),
        # A page may say it itself, in no encoding that hides what others see in it.
        (b"<meta charset=iso-8859-1>caf\xe9 \x96", "text/html", ("<meta charset=iso-8859-1>caf\xe9 \u2013", "text")),
        ("<meta charset='sjis'>\u65e5".encode("shift_jis"), "text/html", ("<meta charset='sjis'>\u65e5", "text")),
        (b"<meta charset=utf-7>+ADw-b", "text/html", ("<meta charset=utf-7>+ADw-b", "text")),
        (b"<meta charset=utf-16>caf\xc3\xa9", "text/html", ("<meta charset=utf-16>caf\xe9", "text")),
        (b"<meta charset=koi8-r>\xc3\xa9", "text/html; charset=utf-8", ("<meta charset=koi8-r>\xe9", "text")),
        (b"<meta charset=koi8-r>\xc3\xa9", "text/plain", ("<meta charset=koi8-r>\xe9", "text")),
    ):
        async with RawServer(answer(body, headers=[f"Content-Type: {kind}"])) as server:
            got = await shelf("http_request", OPEN).value("http_request", {"method": "GET", "url": server.url})
        assert (got["body"], got["encoding"]) == shown


async def test_a_response_larger_than_its_cap_is_cut_while_it_streams() -> None:
    async with RawServer(page("x" * 300_000)) as server:
        tools = shelf("http_request", OPEN | {"max_response_bytes": 1000})
        got = await tools.value("http_request", {"method": "GET", "url": server.url})
        assert (got["truncated"], len(got["body"])) == (True, 1000)
    # What fits the cap of the tool and not that of a result is cut too, and is not an error.
    async with RawServer(page('"\\' * 1_500_000)) as server:
        got = await shelf("http_request", OPEN).value("http_request", {"method": "GET", "url": server.url})
        assert got["truncated"] is True
        assert 300_000 < len(got["body"]) < 1_000_000


async def test_a_gzip_bomb_is_never_held_in_memory() -> None:
    bomb = gzip.compress(gzip.compress(b"\0" * 400_000_000, 1), 1)
    single = gzip.compress(b"\0" * 300_000_000, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for body, encoding in ((single, "gzip"), (bomb, "gzip")):
        headers = [f"Content-Encoding: {encoding}", "Content-Type: text/plain"]
        async with RawServer(answer(body, headers=headers)) as server:
            result = await shelf("http_request", OPEN).call("http_request", {"method": "GET", "url": server.url})
        assert len(str(result.structured)) < 2_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000


LOCAL = [
    "http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://2130706433:{port}/", "http://127.1:{port}/",
    "http://0x7f000001:{port}/", "http://0177.0.0.1:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
    "http://0.0.0.0:{port}/", "http://allowed.example@127.0.0.1:{port}/", "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/", "file:///etc/passwd", "gopher://127.0.0.1:{port}/", "unix:/run/docker.sock",
]  # fmt: skip


@pytest.mark.parametrize("url", LOCAL)
async def test_no_tool_reaches_a_private_address_however_it_is_spelled(url: str) -> None:
    async with RawServer(page(CANARY)) as server:
        where = url.format(port=server.port)
        tools = Shelf().put("http_request").put("web_scrape").put("send_webhook").put("graphql_query")
        calls: list[tuple[str, dict[str, Any]]] = [
            ("http_request", {"method": "GET", "url": where}),
            ("web_scrape", {"url": where}),
            ("send_webhook", {"url": where, "payload": 1}),
            ("graphql_query", {"endpoint": where, "query": "{a}"}),
        ]
        for name, args in calls:
            error = await tools.error(name, args)
            assert error.kind in ("blocked_destination", "invalid_arguments"), (name, error)
            assert CANARY not in str(error)
        assert server.hits == 0


async def test_a_redirect_to_a_private_address_is_refused() -> None:
    async with RawServer(page(CANARY)) as inner, RawServer(redirect(f"http://127.0.0.1:{inner.port}/")) as outer:
        # The first host is let in by name; what it redirects to is judged anew.
        config = {"allow_private": True, "allow_hosts": [f"localhost:{outer.port}"]}
        for name, args in (("http_request", {"method": "GET"}), ("web_scrape", {})):
            error = await shelf(name, config).error(name, args | {"url": f"http://localhost:{outer.port}/"})
            assert error.kind == "blocked_destination"
            assert "Redirect 1" in error.message
        assert inner.hits == 0


async def test_a_host_that_the_operator_names_is_open_and_no_other() -> None:
    async with RawServer(page(CANARY)) as inner, RawServer(redirect(f"http://127.0.0.1:{inner.port}/")) as outer:
        tools = Shelf().put("wikipedia", {"base_url": outer.url})
        tools.put("web_search", {"provider": "searxng", "base_url": outer.url})
        tools.put("send_slack", {"webhook_url": outer.url})
        for name, args in (
            ("wikipedia", {"topic": "x"}),
            ("web_search", {"query": "x"}),
            ("send_slack", {"message": "x"}),
        ):
            assert (await tools.error(name, args)).kind == "blocked_destination"
        assert (outer.hits, inner.hits) == (3, 0)


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    async with RawServer(page(CANARY)) as server:
        answers = iter([["8.8.8.8", "127.0.0.1"], ["127.0.0.1"]])

        async def resolve(host: str, port: int) -> list[str]:
            return next(answers)

        tools = shelf("http_request", resolve=resolve)
        for _ in range(2):
            url = f"http://rebind.example:{server.port}/"
            error = await tools.error("http_request", {"method": "GET", "url": url})
            assert error.kind == "blocked_destination"
        assert server.hits == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("X", "a\r\nHost: evil"), ("X", "a\nb"), ("X", "a\0b"), ("X Y", "a"), ("X:Y", "a"), ("X\r\nY", "a"), ("", "a"),
     ("Host", "evil"), ("Content-Length", "0"), ("Transfer-Encoding", "chunked"), ("Connection", "close"),
     ("Proxy-Authorization", "x"), ("Authorization", "Bearer x"), ("Cookie", "a=b"), ("Content-Type", "a\r\nb")],
)  # fmt: skip
async def test_no_argument_can_inject_a_header(name: str, value: str) -> None:
    async with RawServer(page("x")) as server:
        tools = Shelf().put("http_request", OPEN).put("send_webhook", OPEN).put("graphql_query", OPEN)
        headers = {name: value}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("http_request", {"method": "GET", "url": server.url, "headers": headers}),
            ("send_webhook", {"url": server.url, "payload": 1, "headers": headers}),
            ("graphql_query", {"endpoint": server.url, "query": "{a}", "headers": headers}),
        ]
        for tool, args in calls:
            assert (await tools.error(tool, args)).kind == "invalid_arguments", tool
        assert server.hits == 0


async def test_configured_headers_go_out_to_their_hosts_alone_and_never_come_back() -> None:
    site = Site(lambda asked: as_json({"echo": asked.headers}))
    async with site.server() as server:
        config = OPEN | {"headers": {"Authorization": f"Bearer {CANARY}"}, "allow_hosts": [f"127.0.0.1:{server.port}"]}
        result = await shelf("http_request", config).call("http_request", {"method": "GET", "url": server.url})
    assert site.asked[0].headers["authorization"] == f"Bearer {CANARY}"
    assert CANARY not in str(result)
    with pytest.raises(DefinitionError, match="allow_hosts") as caught:
        builtin_entry("http_request", config={"headers": {"Authorization": CANARY}})
    assert CANARY not in str(caught.value)


async def test_a_slow_server_ends_at_the_deadline() -> None:
    async def silent(reader: Any, writer: Any) -> None:
        await reader.read()

    async with RawServer(silent) as server:
        # On a busy machine a short limit can end before the request is sent.
        for limit_s in (0.3, 3, 30):
            tools = shelf("http_request", OPEN | {"timeout_seconds": limit_s})
            error = await tools.error("http_request", {"method": "POST", "url": server.url})
            assert error.kind == "timeout"
            if server.heads:
                break
    assert error.outcome_unknown


async def test_a_webhook_is_signed_and_named() -> None:
    site = Site(lambda asked: page("taken", status="202 Accepted", kind="text/plain"))
    async with site.server() as server:
        tools = shelf("send_webhook", OPEN | {"secret": CANARY}, now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
        got = await tools.value("send_webhook", {"url": server.url, "payload": {"a": 1}, "headers": {"X-A": "b"}})
    assert (got["status_code"], got["ok"], got["response"], got["truncated"]) == (202, True, "taken", False)
    asked = site.asked[0]
    assert asked.body == b'{"a":1}'
    assert asked.headers["idempotency-key"] == asked.headers["webhook-id"] == got["webhook_id"]
    signed = f"{got['webhook_id']}.1767225600.".encode() + asked.body
    expected = base64.b64encode(hmac.digest(CANARY.encode(), signed, hashlib.sha256)).decode()
    assert asked.headers["webhook-signature"] == f"v1,{expected}"
    assert (
        asked.headers["x-signature-256"] == "sha256=" + hmac.digest(CANARY.encode(), asked.body, hashlib.sha256).hex()
    )
    assert CANARY not in str(asked) + str(got)


async def test_a_webhook_is_sent_once_and_not_redirected() -> None:
    async with RawServer(page(CANARY)) as inner:
        site = Site(lambda asked: redirect(inner.url, status="307 Temporary Redirect"))
        async with site.server() as server:
            got = await shelf("send_webhook", OPEN).value("send_webhook", {"url": server.url, "payload": 1})
        assert (got["status_code"], got["ok"], inner.hits, len(site.asked)) == (307, False, 0, 1)


async def test_a_webhook_answer_is_capped_and_ours_headers_stay_ours() -> None:
    async with RawServer(page("x" * 200_000)) as server:
        tools = shelf("send_webhook", OPEN)
        got = await tools.value("send_webhook", {"url": server.url, "payload": 1})
        assert (len(got["response"]), got["truncated"]) == (65_536, True)
        for name in ("Webhook-Signature", "Idempotency-Key", "X-Signature-256", "Content-Type"):
            error = await tools.error("send_webhook", {"url": server.url, "payload": 1, "headers": {name: "x"}})
            assert error.kind == "invalid_arguments"


def graph(asked: Asked) -> bytes:
    query = asked.json["query"]
    if "bad" in query:
        return as_json({"errors": [{"message": "no field 'bad'"}], "data": None}, status="400 Bad Request")
    if "partly" in query:
        return as_json({"errors": [{"message": "half of it"}], "data": {"a": 1}})
    if "login" in query:
        return as_json({"errors": [{"message": "who?"}]}, status="401 Unauthorized")
    if "html" in query:
        return page("<html>oops", status="502 Bad Gateway")
    if "odd" in query:
        return as_json([1])
    return as_json({"data": {"user": asked.json["variables"]}})


async def test_graphql_gives_data_or_the_messages_of_its_server() -> None:
    async with Site(graph).server() as server:
        tools = shelf("graphql_query", OPEN)
        got = await tools.value("graphql_query", {"endpoint": server.url, "query": "{u}", "variables": {"id": "7"}})
        assert got == {"data": {"user": {"id": "7"}}}
        for query, kind, words in (
            ("{bad}", "upstream_error", "no field 'bad'"),
            ("{partly}", "upstream_error", "half of it"),
            ("{login}", "upstream_auth", "credentials"),
            ("{html}", "upstream_unavailable", "502"),
            ("{odd}", "protocol_error", "neither"),
        ):
            error = await tools.error("graphql_query", {"endpoint": server.url, "query": query})
            assert error.kind == kind
            assert words in error.message


async def test_a_host_is_refused_that_the_config_does_not_name() -> None:
    tools = shelf("http_request", {"allow_hosts": ["api.example.com"]}, resolve=names(evil_example="8.8.8.8"))
    error = await tools.error("http_request", {"method": "GET", "url": "http://evil.example/"})
    assert error.kind == "blocked_destination"
    with pytest.raises(DefinitionError, match="allow_hosts"):
        builtin_entry("http_request", config={"allow_hosts": ["http://x/y"]})
