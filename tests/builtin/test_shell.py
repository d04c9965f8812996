"""Each of the built-in tools, called by the real command line, against counterparts on loopback."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from pegboard.cli import main
from pegboard.sources.builtin.builtins import BUILTINS
from tests.builtin.test_senders import Post, office
from tests.builtin.web import Asked, Site, as_json, page
from tests.timing import PATIENCE_S

KEY = "CANARY-key-0017"
ARTICLE = f"<html><head><title>Bees</title></head><body><article><p>{'Bees dance. ' * 40}</p></article></body></html>"
CONFIG = """
name: all
{models}
tools:
  - {{name: datetime_now, type: builtin}}
  - {{name: json_transform, type: builtin, config: {{template: true, timeout_seconds: {patience_s}}}}}
  - {{name: cache_store, type: builtin}}
  - {{name: http_request, type: builtin, config: {{allow_private: true}}}}
  - {{name: graphql_query, type: builtin, config: {{allow_private: true}}}}
  - {{name: web_search, type: builtin, config: {{provider: tavily, api_key: "${{KEY}}", base_url: "{url}"}}}}
  - {{name: web_scrape, type: builtin, config: {{allow_private: true}}}}
  - {{name: wikipedia, type: builtin, config: {{base_url: "{url}"}}}}
  - {{name: read_file, type: builtin, config: {{roots: [files]}}}}
  - {{name: write_file, type: builtin, config: {{roots: [files]}}}}
  - {{name: sql_query, type: builtin, config: {{connection_string: "sqlite:///shop.db",
      timeout_seconds: {patience_s}}}}}
  - {{name: send_webhook, type: builtin, config: {{allow_private: true, secret: "${{KEY}}"}}}}
  - {{name: send_slack, type: builtin, config: {{token: "${{KEY}}", base_url: "{url}/api", allow_private: true}}}}
  - {{name: send_email, type: builtin, config: {{smtp_host: 127.0.0.1, port: {port}, tls: none,
      from_address: bot@example.com}}}}
  - {{name: text_summarize, type: builtin}}
  - {{name: rag_query, type: builtin}}
  - {{name: rag_ingest, type: builtin}}
"""
MODELS = 'models: {{default: {{provider: openai_compatible, base_url: "{url}/v1", name: qwen3, api_key: "${{KEY}}"}}}}'


def town(asked: Asked) -> bytes:
    """Answer for every service that the tools call."""
    match asked.path:
        case "/graphql":
            return as_json({"data": {"user": {"name": "Ann"}}})
        case "/search":
            return as_json({"results": [{"title": "One", "url": "https://one.example/", "content": "first"}]})
        case "/article":
            return page(ARTICLE)
        case "/api/rest_v1/page/summary/Alan_Turing":
            return as_json({"title": "Alan Turing", "extract": "A mathematician."})
        case "/api/chat.postMessage":
            return as_json({"ok": True, "channel": "C1", "ts": "17.5"})
        case "/v1/chat/completions":
            return as_json({"choices": [{"message": {"role": "assistant", "content": "Many words."}}]})
        case _:
            return as_json({"method": asked.method, "body": asked.body.decode()}, headers=[f"X-Echo: {KEY}"])


class Shell:
    """Runs the command line in a folder, in a thread, while the servers go on in the loop of the test."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, words)
        out, err = self._capsys.readouterr()
        assert KEY not in out + err
        return code, out, err

    async def value(self, *words: str) -> Any:
        """Return what `pegboard call` printed, read as JSON."""
        code, out, err = await self("call", *words)
        assert (code, err) == (0, "")
        return orjson.loads(out)


Open = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Open:
    """Opens the town and gives a shell in a folder whose config names all 17."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", KEY)
    monkeypatch.delenv("PEGBOARD_CONFIG", raising=False)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "plan.txt").write_text("Saw the board.")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE tools (name TEXT)")
        connection.execute("INSERT INTO tools VALUES ('saw')")

    @asynccontextmanager
    async def open_town(
        *, post: Post | None = None, site: Site | None = None, models: str = ""
    ) -> AsyncIterator[Shell]:
        site = site or Site(town)
        async with site.server() as server, office(post or Post()) as mail:
            text = CONFIG.format(
                url=server.url, port=mail["port"], models=models.format(url=server.url), patience_s=PATIENCE_S
            )
            (tmp_path / "pegboard.yaml").write_text(text, encoding="utf-8")
            yield Shell(server.url, capsys)

    return open_town


async def test_all_load_and_list_shows_those_that_can_work(opened: Open) -> None:
    async with opened() as shell:
        assert (await shell("check"))[:2] == (
            0,
            f"OK: {len(BUILTINS)} tools, 0 profiles, 1 group, 0 predicates, 0 sources\n",
        )
        code, out, _ = await shell("list", "--json")
    listed = [tool["name"] for tool in orjson.loads(out)["tools"]]
    assert code == 0
    assert sorted(listed) == sorted(set(BUILTINS) - {"text_summarize", "rag_query", "rag_ingest"})


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("text_summarize", "a model is configured (models:)"),
        ("rag_query", "the config has a document store (workspace:), or the host supplies one (services: documents)"),
        ("rag_ingest", "the config has a document store (workspace:), or the host supplies one (services: documents)"),
    ],
)
async def test_what_cannot_work_says_why_and_cannot_be_called(opened: Open, name: str, missing: str) -> None:
    async with opened() as shell:
        code, out, _ = await shell("why", name)
        # Long reasons are wrapped where a terminal is narrow.
        assert (code, missing in " ".join(out.split())) == (1, True)
        code, out, err = await shell("call", name, "text=x")
    assert (code, out, "not_found" in err) == (1, "", True)


async def test_the_tools_that_need_nothing_work_from_the_shell(opened: Open) -> None:
    async with opened() as shell:
        assert (await shell.value("datetime_now", "timezone=Europe/Berlin"))["timezone"] == "Europe/Berlin"
        data = 'data:={"a": [1, 2, 3]}'
        assert await shell.value("json_transform", data, "expression=sum(a)") == {"result": 6.0}
        text = await shell.value("json_transform", data, "expression={{ data.a | join('-') }}", "language=template")
        assert text == {"result": "1-2-3"}
        assert await shell.value("cache_store", "action=set", "key=k", "value=v") == {"key": "k", "found": False}


async def test_files_and_databases_work_from_the_shell(opened: Open, tmp_path: Path) -> None:
    async with opened() as shell:
        assert (await shell.value("read_file", "path=plan.txt"))["content"] == "Saw the board."
        wrote = await shell.value("write_file", "path=new.txt", "content=done", "mode=create")
        assert (wrote["bytes_written"], (tmp_path / "files" / "new.txt").read_text()) == (4, "done")
        got = await shell.value("sql_query", "query=SELECT name FROM tools WHERE name = ?", 'params:=["saw"]')
        assert (got["columns"], got["rows"]) == (["name"], [["saw"]])


async def test_the_tools_of_the_web_work_from_the_shell(opened: Open) -> None:
    async with opened() as shell:
        got = await shell.value("http_request", "method=POST", f"url={shell.url}/x", 'body:={"a": 1}')
        assert (got["status_code"], got["body"]) == (200, {"method": "POST", "body": '{"a":1}'})
        asked = await shell.value("graphql_query", f"endpoint={shell.url}/graphql", "query={ user { name } }")
        assert asked == {"data": {"user": {"name": "Ann"}}}
        found = await shell.value("web_search", "query=bees", "max_results=3")
        assert (found["provider"], found["results"][0]["url"]) == ("tavily", "https://one.example/")
        article = await shell.value("web_scrape", f"url={shell.url}/article", "max_length=11")
        assert (article["title"], article["content"], article["truncated"]) == ("Bees", "Bees dance.", True)
        assert (await shell.value("wikipedia", "topic=Alan Turing"))["extract"] == "A mathematician."


async def test_the_tools_that_send_work_from_the_shell(opened: Open) -> None:
    post, site = Post(), Site(town)
    async with opened(post=post, site=site) as shell:
        hook = await shell.value("send_webhook", f"url={shell.url}/hook", 'payload:={"event": "paid"}')
        assert (hook["ok"], site.asked[-1].json) == (True, {"event": "paid"})
        assert (await shell.value("send_slack", "message=hi", "channel=#team"))["ok"] is True
        assert site.asked[-1].json["channel"] == "#team"
        mail = await shell.value("send_email", "to=ann@example.com", "subject=Report", "body=All is well.")
        assert (mail["accepted"], post.taken[0].rcpt_tos) == (["ann@example.com"], ["ann@example.com"])


async def test_with_a_model_a_text_is_summarised_from_the_shell(opened: Open) -> None:
    async with opened(models=MODELS) as shell:
        got = await shell.value("text_summarize", f"text={'word ' * 300}", "max_length=20")
    assert got == {"summary": "Many words.", "was_summarized": True}


@pytest.mark.parametrize("name", BUILTINS)
async def test_an_unknown_key_of_its_config_is_refused_with_line_and_column(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pegboard.yaml").write_text(f"tools:\n  - name: {name}\n    type: builtin\n    config: {{colour: red}}\n")
    code = await asyncio.to_thread(main, ["check"])
    assert code == 2
    said = capsys.readouterr().out
    assert "pegboard.yaml:4:14: tools[0].config.colour: unknown key 'colour'" in said
