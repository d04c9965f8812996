"""No secret of any built-in tool's config comes back, whatever the other side does with it."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from tests.builtin.parts import Shelf
from tests.builtin.test_senders import MAIL
from tests.builtin.web import Asked, Site, as_json, page
from tests.config.project import Project

CANARY = "CANARY:pass/w+rd=0018"
OPEN = {"allow_private": True}
FORMS = (CANARY, quote(CANARY, safe=""), quote(CANARY), base64.b64encode(CANARY.encode()).decode(), CANARY[:12])


def forms_of(asked: Asked) -> str:
    """All that was sent, and the secret in every spelling, whether it was sent or not."""
    return orjson.dumps({"sent": asked.headers, "target": asked.target, "forms": FORMS[:-1]}).decode()


def generous(asked: Asked) -> bytes:
    said = forms_of(asked)
    return as_json(
        {
            "ok": True, "channel": said, "ts": CANARY, "data": {"echo": said}, "title": said, "extract": said,
            "results": [{"title": said, "url": f"https://one.example/{quote(CANARY)}", "content": said}],
            "web": {"results": [{"title": said, "url": f"https://one.example/{CANARY}", "description": said}]},
            "choices": [{"message": {"content": said}}],
        },
        headers=[f"X-Echo: {CANARY}"],
    )  # fmt: skip


def failing(asked: Asked) -> bytes:
    return page(forms_of(asked), status="500 Broken", kind="text/plain")


def faulty(asked: Asked) -> bytes:
    said = forms_of(asked)
    return as_json({"ok": False, "error": CANARY, "errors": [{"message": said}], "message": said})


def shelf_for(url: str) -> tuple[Shelf, Sequence[tuple[str, dict[str, Any]]]]:
    """Return a shelf of all tools that keep a secret for the web, and a call of each."""
    headers = {"headers": {"Authorization": f"Bearer {CANARY}"}, "allow_hosts": ["127.0.0.1"]}
    tools = Shelf().put("http_request", OPEN | headers).put("graphql_query", OPEN | headers)
    for provider in ("tavily", "brave", "searxng"):
        config = {"provider": provider, "api_key": CANARY, "base_url": url}
        tools.put("web_search", config, as_name=f"search_{provider}")
    tools.put("send_webhook", OPEN | {"secret": CANARY})
    tools.put("send_slack", OPEN | {"token": CANARY, "base_url": url}, as_name="slack_token")
    tools.put("send_slack", OPEN | {"webhook_url": f"{url}/{quote(CANARY)}?key={CANARY}"}, as_name="slack_hook")
    return tools, [
        ("http_request", {"method": "GET", "url": url}),
        ("graphql_query", {"endpoint": url, "query": "{a}"}),
        *((f"search_{provider}", {"query": "x"}) for provider in ("tavily", "brave", "searxng")),
        ("send_webhook", {"url": url, "payload": 1}),
        ("slack_token", {"message": "x", "channel": "#x"}),
        ("slack_hook", {"message": "x"}),
    ]


@pytest.mark.parametrize("reply", [generous, failing, faulty])
async def test_a_secret_comes_back_from_no_web_service(reply: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="pegboard")
    async with Site(reply).server() as server:
        tools, calls = shelf_for(server.url)
        said = {name: str(await tools.call(name, args)) for name, args in calls}
        heard = "\n".join(server.heads)
    # The servers did hear it, or there would be nothing to keep back.
    assert CANARY in heard
    for name, text in {**said, "log": caplog.text}.items():
        for form in FORMS:
            assert form not in text, (name, form)


def told(line: bytes) -> bytes:
    """Answer as a mail server that repeats the password in whatever it refuses."""
    match line[:4].upper():
        case b"EHLO":
            return b"250-me\r\n250 AUTH PLAIN\r\n"
        case b"AUTH":
            return b"235 in\r\n"
        case _:
            spelled = base64.b64encode(CANARY.encode())
            return b"554 no: " + CANARY.encode() + b" " + spelled + b" " + line + b"\r\n"


async def test_a_password_comes_back_from_no_mail_server() -> None:
    ended = asyncio.Event()

    async def tell_tale(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        with suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(told(line.strip()))
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(tell_tale, "127.0.0.1", 0) as server:
        config = {"smtp_host": "127.0.0.1", "port": server.sockets[0].getsockname()[1], "tls": "none",
                  "user": "bot@example.com", "password": CANARY}  # fmt: skip
        result = await Shelf().put("send_email", config).call("send_email", MAIL)
        await ended.wait()
    assert result.error is not None
    assert "554" in result.error.message
    for form in FORMS:
        assert form not in str(result), form


async def test_a_password_comes_back_from_no_database(tmp_path: Path) -> None:
    name = CANARY.replace("/", "-")
    with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection, connection:
        connection.execute("CREATE TABLE t (a TEXT)")
        connection.execute("INSERT INTO t VALUES (?)", (f"sqlite:///{name}.db",))
    project = Project(tmp_path, env={"DB": f"sqlite:///{name}.db"})
    project.write('tools:\n  - {name: sql_query, type: builtin, config: {connection_string: "${DB}"}}\n')
    view = project.view(user="ann")
    for query in ("SELECT * FROM t", f"SELECT 'sqlite:///{name}.db' FROM", "SELECT file FROM pragma_database_list"):
        assert f"sqlite:///{name}.db" not in str(await view.call("sql_query", {"query": query})), query
    url = f"postgresql://ann:{quote(CANARY, safe='')}@127.0.0.1:1/db"
    result = (
        await Shelf().put("sql_query", {"connection_string": url}).call("sql_query", {"query": f"SELECT '{CANARY}'"})
    )
    for form in FORMS:
        assert form not in str(result), form


@pytest.mark.parametrize("lead", range(150, 215))
async def test_a_secret_that_was_cut_in_half_does_not_come_back_either(lead: int) -> None:
    """What is quoted in an error is cut; no place of the cut may leave eight characters."""
    secret = "q7Zk-2mVx-9fTa-4LwP-1cRs"

    def fail(asked: Asked) -> bytes:
        return page("." * lead + secret, status="500 Broken", kind="text/plain")

    async with Site(fail).server() as server:
        config = OPEN | {"token": secret, "base_url": server.url}
        result = await Shelf().put("send_slack", config).call("send_slack", {"message": "x", "channel": "#x"})
    assert result.error is not None
    assert "answered 500" in result.error.message
    assert not any(secret[start : start + 8] in str(result) for start in range(len(secret) - 7))


async def test_the_key_of_a_model_does_not_come_back(tmp_path: Path) -> None:
    for reply in (generous, failing, faulty):
        async with Site(reply).server() as server:
            project = Project(tmp_path, env={"KEY": CANARY})
            project.write(
                f"""
                models:
                  default: {{provider: openai_compatible, base_url: "{server.url}", name: m, api_key: "${{KEY}}"}}
                tools:
                  - {{name: text_summarize, type: builtin}}
                """
            )
            result = await project.view(user="ann").call("text_summarize", {"text": "word " * 300})
        assert CANARY in server.heads[0]
        for form in FORMS:
            assert form not in str(result), form
