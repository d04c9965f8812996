"""`discovery: {embedder: …}` in pegboard.yaml: from the file to a search that compares meanings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegboard.config import context_for
from pegboard.config.reload import Reloader
from pegboard.discovery.finder import Found
from tests.builtin.web import Asked, Site, as_json
from tests.config.project import Project

KEY = "CANARY-key-embedder"
TOOLS = """
tools:
  - {name: ledger, type: webhook, webhook: {url: "https://x.example/a"}, description: Moves funds., groups: core}
  - {name: kennel, type: webhook, webhook: {url: "https://x.example/b"}, description: Feeds a feline., groups: core}
  - {name: garden, type: webhook, webhook: {url: "https://x.example/c"}, description: Trims the hedges., groups: core}
  - {name: museum, type: webhook, webhook: {url: "https://x.example/d"}, description: Names a painter., groups: core}
  - {name: bakery, type: webhook, webhook: {url: "https://x.example/e"}, description: Mixes a dough., groups: core}
  - {name: harbour, type: webhook, webhook: {url: "https://x.example/f"}, description: Lists ships., groups: core}
  - {name: theatre, type: webhook, webhook: {url: "https://x.example/g"}, description: Sells a seat., groups: core}
  - {name: library, type: webhook, webhook: {url: "https://x.example/h"}, description: Lends a novel., groups: core}
  - {name: station, type: webhook, webhook: {url: "https://x.example/i"}, description: Announces a delay., groups: core}
  - {name: orchard, type: webhook, webhook: {url: "https://x.example/j"}, description: Counts apples., groups: core}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def model(asked: Asked) -> bytes:
    rows = [[float(any(w in t for w in ("cash", "funds"))), 0.1] for t in asked.json["input"]]
    return as_json({"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]})


async def found(project: Project, query: str) -> Found:
    catalog, config = project.load()
    return await catalog.search(catalog.view(context_for(config, user="ann")), query)


async def test_a_model_behind_an_endpoint_finds_what_words_do_not_and_is_asked_once(project: Project) -> None:
    site = Site(model)
    async with site.server() as server:
        project.env = {"KEY": KEY}
        where = f'base_url: "{server.url}/v1", model: small, api_key: "${{KEY}}"'
        project.write(f"discovery: {{embedder: {{type: openai, {where}}}}}\n{TOOLS}")
        answer = await found(project, "send cash")
        assert answer.words_alone is None
        assert answer.tools[0].entry.wire_name == "ledger"
        read = len(site.asked)
        assert {request.headers["authorization"] for request in site.asked} == {f"Bearer {KEY}"}
        # Anew, as after a restart: the file has what was read.
        assert (await found(project, "send cash")).tools[0].entry.wire_name == "ledger"
        assert len(site.asked) == read
    kept = (project.path.parent / ".pegboard-embeddings.sqlite").read_bytes()
    assert b"send cash" not in kept
    assert KEY.encode() not in kept


async def test_an_endpoint_that_is_away_leaves_the_words(project: Project) -> None:
    project.write(
        f'discovery: {{embedder: {{type: openai, base_url: "http://127.0.0.1:9/v1", model: small}}}}\n{TOOLS}'
    )
    answer = await found(project, "trim hedges")
    assert (answer.tools[0].entry.wire_name, answer.words_alone) == ("garden", "the embedder does not answer")


async def test_hashing_needs_nothing_else(project: Project) -> None:
    project.write(f"discovery: {{embedder: {{type: hashing, dimension: 128}}}}\n{TOOLS}")
    answer = await found(project, "trim hedges")
    assert (answer.tools[0].entry.wire_name, answer.words_alone) == ("garden", None)


@pytest.mark.parametrize(
    ("embedder", "said"),
    [
        ("{type: openai, base_url: http://x}", "an embedder of type openai needs `model`"),
        ("{type: openai, model: small}", "the variable 'OPENAI_API_KEY' is not set; set it, or write `api_key`"),
        ("{type: openai, model: small, base_url: 'ftp://x'}", "is not an http or https URL"),
        ("{type: hashing, model: small}", "an embedder of type hashing takes no `model`"),
        ("{type: hashing, dimension: 0}", "dimension"),
        ("{type: fastembed}", "an embedder of type fastembed needs `model` or `path`"),
        ("{type: fastembed, model: small, base_url: http://x}", "an embedder of type fastembed takes no `base_url`"),
        ("{type: fastembed, model: small, pooling: cls}", "`pooling` is for a model that `path` alone names"),
        ("{type: openai, model: m, base_url: http://x, threads: 2}", "an embedder of type openai takes no `threads`"),
        ("{type: magic}", "magic"),
        ("{type: hashing, dimensions: 3}", "dimensions"),
        ("hashing", "expected a mapping"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_its_line(project: Project, embedder: str, said: str) -> None:
    project.env = {}
    project.write(f"discovery:\n  embedder: {embedder}\n{TOOLS}")
    refused = project.said()
    assert len(refused) == 1
    assert said in refused[0]
    assert ":2:" in refused[0] or ":1:" in refused[0]


def test_the_key_is_in_no_output(project: Project) -> None:
    project.env = {"KEY": KEY}
    project.write(f'discovery: {{embedder: {{type: openai, model: m, api_key: "${{KEY}}"}}}}\n{TOOLS}')
    catalog = project.catalog()
    assert KEY not in repr(catalog.discovery.finder.embedder)
    assert KEY in [secret.reveal() for secret in catalog.secrets]


async def test_a_reload_brings_takes_away_and_keeps_an_embedder(project: Project) -> None:
    project.write(TOOLS)
    catalog, config = project.load()
    reloader = Reloader(project.path, project.env, catalog, config=config)
    finder = catalog.discovery.finder
    assert finder.embedder is None
    project.write(f"discovery: {{embedder: {{type: hashing, dimension: 64}}}}\n{TOOLS}")
    assert await reloader.reload()
    brought = finder.embedder
    assert brought is not None
    assert brought.model_id == "hashing-64"
    project.write(f"name: other\ndiscovery: {{embedder: {{type: hashing, dimension: 64}}}}\n{TOOLS}")
    assert await reloader.reload()
    assert finder.embedder is brought, "what it has read stays read"
    project.write(TOOLS)
    assert await reloader.reload()
    assert finder.embedder is None
