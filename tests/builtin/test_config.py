"""Built-in tools named in pegboard.yaml."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

from pegboard.config import context_for, load_catalog
from pegboard.extras import install_command
from pegboard.sources.builtin.builtins import BUILTINS
from tests.builtin.web import Asked, Site, as_json
from tests.config.project import Project

EXAMPLE = Path(__file__).parents[2] / "examples" / "builtins" / "pegboard.yaml"
CANARY = "CANARY-key-0003"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_config_that_names_all_17_loads_and_tells_what_the_hidden_ones_miss() -> None:
    catalog, config = load_catalog(EXAMPLE, env={})
    view = catalog.view(context_for(config, user="ann", space="s1"))
    hidden = {"text_summarize", "rag_query", "rag_ingest"}
    assert set(view.names()) == set(BUILTINS) - hidden | {"intranet_request"}
    assert len(BUILTINS) == 17
    assert "a model is configured" in view.why("text_summarize").reason
    for name in ("rag_query", "rag_ingest"):
        assert "the config has a document store (workspace:)" in view.why(name).reason


def test_every_builtin_has_schemas_hints_words_and_examples_that_its_schema_takes() -> None:
    catalog, _ = load_catalog(EXAMPLE, env={})
    snapshot = catalog.snapshot()
    for name in BUILTINS:
        entry = snapshot.find(f"builtin.{name}")
        assert entry is not None
        spec = entry.spec
        assert spec.description
        assert spec.output_schema is not None
        hints = spec.annotations
        assert None not in (hints.read_only, hints.destructive, hints.idempotent, hints.open_world), name
        assert spec.examples
        for example in spec.examples:
            assert snapshot.plan(entry).arguments.is_valid(example), (name, example)


def test_an_unknown_key_or_wrong_value_is_refused_at_its_line_and_column(project: Project) -> None:
    project.write(
        """
        tools:
          - {name: cache_store, type: builtin, config: {max_entrys: 5}}
          - name: http_request
            type: builtin
            config:
              timeout_seconds: soon
              allow_hosts: ["http://x"]
          - {name: read_file, type: builtin}
          - {name: read_file, as: other, type: builtin, config: {roots: [nowhere]}}
          - {name: web_search, type: builtin, config: {provider: brave}}
          - {name: web_serch, type: builtin}
          - {name: sql_query, type: builtin, config: {connection_string: "nosuch://x"}}
          - {name: sql_query, as: lite, type: builtin, config: {connection_string: "sqlite+pysqlite:///a.db"}}
          - {name: datetime_now, as: now, type: builtin, available: no_such_question}
        """
    )
    said = "\n".join(project.said())
    for expected in (
        "pegboard.yaml:3:49: tools[0].config.max_entrys: unknown key 'max_entrys'. Did you mean 'max_entries'?",
        "pegboard.yaml:7:24: tools[1].config.timeout_seconds: ",
        "tools[2]", "'roots' is missing", "nowhere", "needs `api_key`", "Did you mean 'web_search'?",
        "not a database URL", "write 'sqlite:///", "no_such_question",
    ):  # fmt: skip
        assert expected in said, said
    assert len(project.said()) == 9, said


def test_urls_headers_and_roots_that_cannot_be_used_are_refused_at_load(project: Project) -> None:
    project.env = {"PLACE": CANARY}
    project.write(
        """
        tools:
          - {name: web_search, type: builtin, config: {provider: searxng, base_url: search.example.com}}
          - {name: wikipedia, type: builtin, config: {base_url: "${PLACE}"}}
          - {name: send_slack, type: builtin, config: {webhook_url: "hooks.example.com/${PLACE}"}}
          - {name: send_slack, as: other, type: builtin, config: {token: t, base_url: "ftp://u:${PLACE}@h"}}
          - {name: send_webhook, type: builtin, config: {idempotency_header: Event Id}}
          - {name: http_request, type: builtin, config: {headers: {Host: "${PLACE}"}, allow_hosts: [a.example]}}
          - {name: graphql_query, type: builtin, config: {headers: {X: "${PLACE}é"}, allow_hosts: [a.example]}}
          - {name: read_file, type: builtin, config: {roots: []}}
        """
    )
    said = project.said()
    wanted = [
        "config.base_url: this is not an http or https URL", "config.base_url: this is not an http or https URL",
        "config.webhook_url: this is not an http or https URL", "config.base_url: this is not an http or https URL",
        "config.idempotency_header: 'Event Id' is not a header name", "config: The header 'Host' cannot be set",
        "config: The header 'X' has a line break", "config.roots: `roots` names no folder",
    ]  # fmt: skip
    assert [words in line for words, line in zip(wanted, said, strict=True)] == [True] * len(wanted), said
    assert CANARY not in str(said)


@pytest.mark.parametrize(
    ("name", "config", "package", "extra"),
    [("json_transform", "{}", "jmespath", "tools"), ("json_transform", "{template: true}", "jinja2", "tools"),
     ("send_email", "{smtp_host: h, from_address: a@example.com}", "aiosmtplib", "tools"),
     ("web_scrape", "{}", "trafilatura", "tools"),
     ("sql_query", '{connection_string: "postgresql://h/d"}', "psycopg", "postgres"),
     ("sql_query", '{connection_string: "mysql://h/d"}', "sqlalchemy", "tools")],
)  # fmt: skip
def test_a_tool_whose_package_is_not_installed_is_refused_with_what_to_install(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, config: str, package: str, extra: str
) -> None:
    # What Python then finds is what it finds where the package is missing.
    monkeypatch.setitem(sys.modules, package, None)
    project.write(
        f"""
        tools:
          - name: {name}
            type: builtin
            config: {config}
        """
    )
    wanted = f"{name!r} needs the package {package!r}, which is not installed; run `{install_command(extra)}`"
    assert project.said() == [f"pegboard.yaml:5:13: tools[0].config: {wanted}"]


async def test_one_builtin_may_stand_there_several_times(project: Project) -> None:
    for name in ("a", "b"):
        folder = project.folder / name
        folder.mkdir()
        (folder / "x.txt").write_text(f"of {name}")
    project.write(
        """
        tools:
          - {name: read_file, type: builtin, config: {roots: [a]}}
          - {name: read_file, type: builtin, as: read_other, description: The other., config: {roots: [b]}}
        """
    )
    view = project.view(user="ann")
    assert view.names() == ["read_file", "read_other"]
    assert (await view.call("read_file", {"path": "x.txt"})).structured["content"] == "of a"
    assert (await view.call("read_other", {"path": "x.txt"})).structured["content"] == "of b"
    project.write(
        """
        tools:
          - {name: cache_store, type: builtin}
          - {name: cache_store, type: builtin}
        """
    )
    assert "declared twice" in project.said()[0]


async def test_secrets_of_the_environment_work_and_never_come_back(project: Project) -> None:
    connection = sqlite3.connect(project.folder / f"{CANARY}.db")
    connection.execute("CREATE TABLE t (a TEXT)")
    connection.commit()
    connection.close()
    project.env = {"DB": f"sqlite:///{CANARY}.db", "WAIT": "3", "ROWS": "7"}
    project.write(
        """
        tools:
          - name: sql_query
            type: builtin
            config: {connection_string: "${DB}", timeout_seconds: "${WAIT}", max_rows: "${ROWS}"}
        """
    )
    view = project.view(user="ann")
    result = await view.call("sql_query", {"query": "SELECT * FROM t"})
    assert result.error is None
    broken = await view.call("sql_query", {"query": f"SELECT 'sqlite:///{CANARY}.db' FROM"})
    assert CANARY not in str(broken)
    project.env = {"DB": f"nosuch://{CANARY}", "WAIT": "3", "ROWS": "7"}
    assert CANARY not in "\n".join(project.said())


async def test_a_configured_model_summarises_through_its_endpoint(project: Project) -> None:
    def reply(asked: Asked) -> bytes:
        return as_json({"choices": [{"message": {"role": "assistant", "content": f"short, {CANARY}"}}]})

    site = Site(reply)
    async with site.server() as server:
        project.env = {"KEY": CANARY}
        project.write(
            f"""
            models:
              default: {{provider: openai_compatible, base_url: "{server.url}/v1", name: qwen3, api_key: "${{KEY}}"}}
            tools:
              - {{name: text_summarize, type: builtin}}
              - {{name: text_summarize, as: other, type: builtin, config: {{model: cheap}}}}
            """
        )
        view = project.view(user="ann")
        assert view.names() == ["text_summarize"]
        result = await view.call("text_summarize", {"text": "word " * 300})
    assert result.structured == {"summary": "short, [redacted]", "was_summarized": True}
    asked = site.asked[0]
    assert (asked.target, asked.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {CANARY}")
    assert (asked.json["model"], asked.json["messages"][0]["role"]) == ("qwen3", "user")


async def test_the_openai_key_of_the_environment_is_not_sent_to_another_base_url(project: Project) -> None:
    site = Site(lambda asked: as_json({"choices": [{"message": {"role": "assistant", "content": "short"}}]}))
    async with site.server() as server:
        for env in ({"OPENAI_API_KEY": CANARY}, {}):
            project.env = env
            project.write(
                f"""
                models: {{default: {{provider: openai, base_url: "{server.url}/v1", name: qwen3}}}}
                tools: [{{name: text_summarize, type: builtin}}]
                """
            )
            result = await project.view(user="ann").call("text_summarize", {"text": "word " * 300})
            assert result.error is None, result.error
    assert ["authorization" in asked.headers for asked in site.asked] == [False, False]


def test_a_model_that_cannot_be_asked_is_refused_at_its_line(project: Project) -> None:
    project.write(
        """
        models:
          default: "openai:gpt-5.2"
          other: {provider: openai_compatible, name: x}
          odd: "acme:x"
          wrong: {provider: openai_compatible, name: x, base_url: "ftp://x"}
        tools:
          - {name: text_summarize, type: builtin}
        """
    )
    said = "\n".join(project.said())
    for expected in (":3:", "OPENAI_API_KEY", ":4:", "needs `base_url`", ":5:", "openai:name"):
        assert expected in said, said
