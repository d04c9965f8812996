"""The table of the built-in tools, as a caller and a config see them: names, defaults, hints, results."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from pegboard.sources.builtin.builtins import BUILTINS, builtin_kind
from pegboard.sources.builtin.kind import Services
from tests.builtin.parts import Shelf, shelf
from tests.builtin.test_models_and_documents import Shelves, Writer
from tests.builtin.web import Site, as_json, page
from tests.egress.loopback import names

MIB = 1024 * 1024
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Line:
    """What is promised of one tool. `hints`: read-only, destructive, idempotent, open-world, for those that are so."""

    required: str = ""
    optional: str = ""
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    needs: str = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    result: str
    hints: str
    sample: dict[str, Any] = field(default_factory=dict[str, Any])


NETWORK: dict[str, Any] = {"timeout_seconds": 30.0, "max_response_bytes": 5 * MIB, "allow_hosts": (),
                           "allow_private": False}  # fmt: skip
TABLE = {
    "datetime_now": Line(
        optional="timezone", defaults={"timezone": "UTC"}, result="datetime timezone unix_timestamp", hints="read"
    ),
    "json_transform": Line(
        required="data expression", config={"timeout_seconds": 1.0, "template": False}, result="result",
        hints="read idempotent",
    ),
    "cache_store": Line(
        required="action key", optional="value ttl_s", hints="destructive idempotent", result="key found value",
        config={"max_entries": 10_000, "max_value": MIB, "scope": "space"},
    ),
    "http_request": Line(
        required="method url", optional="headers body", config=NETWORK, hints="destructive open",
        result="status_code ok headers body encoding truncated url",
    ),
    "graphql_query": Line(
        required="endpoint query", optional="variables headers", config=NETWORK, hints="destructive open", result="data"
    ),
    "web_search": Line(
        required="query", optional="max_results recency site", defaults={"max_results": 5},
        config=NETWORK | {"api_key": None, "base_url": None}, result="results provider", hints="read idempotent open",
    ),
    "web_scrape": Line(
        required="url", optional="max_length format", defaults={"max_length": 10_000, "format": "text"},
        config=NETWORK, result="title content url status_code truncated", hints="read idempotent open",
    ),
    "wikipedia": Line(
        required="topic", optional="language", defaults={"language": "en"}, result="title extract url",
        config=NETWORK | {"base_url": "https://{language}.wikipedia.org"}, hints="read idempotent open",
    ),
    "read_file": Line(
        required="path", optional="encoding start max_chars", needs="roots", hints="read idempotent",
        defaults={"encoding": "utf-8", "start": 0, "max_chars": 50_000}, sample={"roots": ["."]},
        result="content path size truncated next_start",
    ),
    "write_file": Line(
        required="path content", optional="encoding mode", defaults={"encoding": "utf-8", "mode": "overwrite"},
        needs="roots", config={"max_bytes": 10 * MIB}, result="path bytes_written size", hints="destructive",
        sample={"roots": ["."]},
    ),
    "sql_query": Line(
        required="query", optional="params", needs="connection_string", hints="read idempotent",
        config={"read_only": True, "max_rows": 1000, "timeout_seconds": 5.0}, sample={"connection_string": "sqlite:///a"},
        result="columns rows row_count truncated affected_rows",
    ),
    "send_webhook": Line(
        required="url payload", optional="headers", hints="open",
        config={"timeout_seconds": 30.0, "secret": None, "idempotency_header": "Idempotency-Key", "allow_hosts": (),
                "allow_private": False},
        result="status_code ok response truncated webhook_id",
    ),
    "send_slack": Line(
        required="message", optional="channel", result="ok channel ts", hints="open", sample={"token": "t"},
        config=NETWORK | {"webhook_url": None, "token": None, "base_url": "https://slack.com/api"},
    ),
    "send_email": Line(
        required="to subject body", optional="cc html", needs="smtp_host", hints="destructive open",
        config={"port": 587, "user": None, "password": None, "from_address": None, "tls": "starttls"},
        result="accepted refused message_id", sample={"smtp_host": "h", "from_address": "a@example.com"},
    ),
    "text_summarize": Line(
        required="text", optional="max_length", defaults={"max_length": 200}, config={"model": None},
        result="summary was_summarized", hints="read open",
    ),
    "rag_query": Line(
        required="query", optional="top_k collection", defaults={"top_k": 5}, result="results", hints="read idempotent",
        config={"collection": "default", "score_threshold": 0.0},
    ),
    "rag_ingest": Line(
        required="document", optional="name metadata collection", result="document_id chunks", hints="",
        config={"collection": "default", "max_bytes": 2 * MIB},
    ),
}  # fmt: skip
EXACT_ROWS = {
    "web_search": ("results", {"title", "url", "snippet", "published"}),
    "rag_query": ("results", {"text", "score", "document_id", "source", "start", "end"}),
}


def test_the_table_has_a_line_for_each_tool() -> None:
    assert list(TABLE) == list(BUILTINS)


def test_the_readme_says_how_many_there_are() -> None:
    assert f"{len(BUILTINS)} built-in tools" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", TABLE)
def test_arguments_results_and_hints_are_those_of_the_table(name: str, tmp_path: Path) -> None:
    line = TABLE[name]
    tools = shelf(name, line.sample, folder=tmp_path)
    entry = tools.catalog.snapshot().find(f"builtin.{name}")
    assert entry is not None
    spec, taken, given = entry.spec, entry.spec.input_schema, entry.spec.output_schema
    assert taken is not None
    assert given is not None
    assert (spec.namespace, set(taken.get("required", ()))) == ("builtin", set(line.required.split()))
    assert set(taken["properties"]) == {*line.required.split(), *line.optional.split()}
    defaults = {key: value["default"] for key, value in taken["properties"].items() if "default" in value}
    assert defaults == line.defaults
    assert set(given["properties"]) == set(line.result.split())
    if name in EXACT_ROWS:
        key, columns = EXACT_ROWS[name]
        assert set(given["properties"][key]["items"]["properties"]) == columns
    hints = spec.annotations
    found = {"read": hints.read_only, "destructive": hints.destructive, "idempotent": hints.idempotent,
             "open": hints.open_world}  # fmt: skip
    assert {word for word, is_so in found.items() if is_so} == set(line.hints.split())


@pytest.mark.parametrize("name", TABLE)
def test_the_keys_of_a_config_have_the_defaults_of_the_table(name: str) -> None:
    line = TABLE[name]
    fields = {each.alias or key: each for key, each in builtin_kind(name).config.model_fields.items()}
    assert {key for key, each in fields.items() if each.default is PydanticUndefined and each.is_required()} == set(
        line.needs.split()
    )
    assert {key: fields[key].default for key in line.config} == line.config


@pytest.mark.parametrize(
    ("name", "change"),
    [("json_transform", {"template": True}), ("sql_query", {"read_only": False}), ("http_request", {})],
)
def test_what_the_config_changes_is_declared(name: str, change: dict[str, Any], tmp_path: Path) -> None:
    tools = shelf(name, TABLE[name].sample | change, folder=tmp_path)
    entry = tools.catalog.snapshot().find(f"builtin.{name}")
    assert entry is not None
    spec = entry.spec
    if name == "json_transform":
        assert spec.input_schema is not None
        assert spec.input_schema["properties"]["language"]["default"] == "jmespath"
    elif name == "sql_query":
        assert (spec.annotations.read_only, spec.annotations.destructive) == (False, True)
    else:
        # The tool's own deadline comes first, so that it says what ran out of time.
        assert spec.timeout_s == 31.0


async def test_a_long_file_page_and_result_are_cut_where_the_table_says(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("é" * 50_001, encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "a")) as connection, connection:
        count = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1001)"
        connection.execute(f"CREATE TABLE t AS {count} SELECT x FROM c")
    tools = Shelf(services=Services(folder=tmp_path))
    for name in ("read_file", "sql_query"):
        tools.put(name, TABLE[name].sample)
    part = await tools.value("read_file", {"path": "long.txt"})
    assert (len(part["content"]), part["truncated"], part["next_start"], part["size"]) == (
        50_000,
        True,
        50_000,
        100_002,
    )
    rest = await tools.value("read_file", {"path": "long.txt", "start": 50_000})
    assert (rest["content"], rest["truncated"], rest["next_start"]) == ("é", False, None)
    rows = await tools.value("sql_query", {"query": "SELECT x FROM t"})
    assert (rows["row_count"], rows["truncated"]) == (1000, True)
    async with Site(lambda asked: page("x" * 10_001, kind="text/plain")).server() as server:
        got = await shelf("web_scrape", {"allow_private": True}).value("web_scrape", {"url": server.url})
    assert (len(got["content"]), got["truncated"]) == (10_000, True)


async def test_a_text_of_200_words_stays_and_five_passages_are_found() -> None:
    model, store = Writer(), Shelves()
    tools = Shelf().put("text_summarize").put("rag_query").put("rag_ingest")
    who = {"services": {"model": model, "documents": store}}
    stays = await tools.value("text_summarize", {"text": "word " * 200}, **who)
    shortened = await tools.value("text_summarize", {"text": "word " * 201}, **who)
    assert (stays["was_summarized"], shortened["was_summarized"], len(model.prompts)) == (False, True, 1)
    for number in range(7):
        await tools.value("rag_ingest", {"document": f"lease {number}"}, **who)
    assert len((await tools.value("rag_query", {"query": "lease"}, **who))["results"]) == 5


async def test_wikipedia_is_asked_in_english_unless_said() -> None:
    site = Site(lambda asked: as_json({"title": "x", "extract": "…"}))
    async with site.server() as server:
        base = server.url.replace("127.0.0.1", "{language}.wiki.test")
        book = names(en_wiki_test="127.0.0.1", de_wiki_test="127.0.0.1")
        tools = shelf("wikipedia", {"base_url": base}, resolve=book)
        await tools.value("wikipedia", {"topic": "Köln"})
        await tools.value("wikipedia", {"topic": "Köln", "language": "de"})
    assert [asked.headers["host"].partition(":")[0] for asked in site.asked] == ["en.wiki.test", "de.wiki.test"]


async def test_text_files_keep_their_encoding_on_both_ways(tmp_path: Path) -> None:
    tools = Shelf(services=Services(folder=tmp_path))
    tools.put("read_file", {"roots": ["."]}).put("write_file", {"roots": ["."]})
    done = await tools.value("write_file", {"path": "a.txt", "content": "Größe", "encoding": "latin-1"})
    assert (done["bytes_written"], (tmp_path / "a.txt").read_bytes()) == (5, b"Gr\xf6\xdfe")
    more = await tools.value("write_file", {"path": "a.txt", "content": "!", "encoding": "latin-1", "mode": "append"})
    assert (more["bytes_written"], more["size"]) == (1, 6)
    assert (await tools.error("read_file", {"path": "a.txt"})).kind == "invalid_arguments"
    assert (await tools.value("read_file", {"path": "a.txt", "encoding": "latin-1"}))["content"] == "Größe!"
    assert (
        "exists already"
        in (await tools.error("write_file", {"path": "a.txt", "content": "", "mode": "create"})).message
    )


async def test_the_event_of_a_webhook_may_be_named_by_another_header() -> None:
    site = Site(lambda asked: as_json({}))
    async with site.server() as server:
        tools = shelf("send_webhook", {"allow_private": True, "idempotency_header": "X-Event"})
        got = await tools.value("send_webhook", {"url": server.url, "payload": 1})
        for taken in ("x-event", "X-EVENT"):
            args = {"url": server.url, "payload": 1, "headers": {taken: "mine"}}
            assert (await tools.error("send_webhook", args)).kind == "invalid_arguments"
    assert [asked.headers["x-event"] for asked in site.asked] == [got["webhook_id"]]
    assert "idempotency-key" not in site.asked[0].headers
