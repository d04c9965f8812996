"""`workspace:` in a config: the tools that it brings, the built-ins on the same store, and what is refused."""

from __future__ import annotations

import importlib.util

import pytest

from pegboard.config import context_for
from pegboard.extras import install_command
from tests.config.project import Project

TOOLS = {
    "document_info", "find_by_name", "folder_tree", "grep_documents", "list_folder_contents", "list_sources",
    "query_documents", "read_document", "search_documents",
}  # fmt: skip


def test_it_brings_the_tools_in_their_groups_and_makes_no_file_yet(project: Project) -> None:
    project.write("workspace: {}\nprofiles: {looking: {include: [navigation, document]}}\n")
    assert set(project.view(user="ann", space="s1").names()) == TOOLS
    assert set(project.view(user="ann", space="s1", profile="looking").names()) == {
        "document_info", "folder_tree", "list_folder_contents", "list_sources", "query_documents", "read_document",
    }  # fmt: skip
    assert [path.name for path in project.folder.glob("*.db")] == []


async def test_the_built_in_tools_for_documents_use_its_store(project: Project) -> None:
    project.write(
        "workspace: {store: 'sqlite:d.db'}\n"
        "tools: [{name: rag_ingest, type: builtin}, {name: rag_query, type: builtin}]\n"
    )
    view = project.view(user="ann", space="s1")
    first = (await view.call("rag_ingest", {"document": "The lease ends in May.", "name": "a/b.txt"})).structured
    second = (await view.call("rag_ingest", {"document": "The lease ends in June.", "name": "a/b.txt"})).structured
    assert first["document_id"] != second["document_id"]
    found = (await view.call("rag_query", {"query": "lease in May"})).structured["results"]
    assert [(each["source"], each["text"]) for each in found] == [
        ("a_b.txt", "The lease ends in May."),
        ("a_b (2).txt", "The lease ends in June."),
    ]
    assert 0 < found[0]["score"] <= 1
    read = (await view.call("read_document", {"document_id": first["document_id"]})).structured
    assert read["text"] == "The lease ends in May."
    assert (await view.call("rag_query", {"query": "lease", "collection": "other"})).structured["results"] == []
    large = await view.call("rag_ingest", {"document": "x", "metadata": {"note": "x" * 20_000}})
    assert large.error is not None
    assert large.error.kind == "invalid_arguments"
    elsewhere = project.view(user="ann", space="s2")
    assert (await elsewhere.call("rag_query", {"query": "lease"})).structured["results"] == []
    assert (project.folder / "d.db").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "workspace: {store: documents.db}",
            "pegboard.yaml:1:20: workspace.store: a store of the kind 'documents.db' is unknown; write "
            "sqlite:FILE or postgresql://HOST/NAME",
        ),
        (
            "workspace: {store: 'sqlite:nowhere/d.db'}",
            "pegboard.yaml:1:20: workspace.store: there is no folder 'nowhere' for it",
        ),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_where_it_stands(project: Project, text: str, said: str) -> None:
    project.write(text)
    assert project.said() == [said]


def test_without_its_extra_it_is_refused_with_the_line_that_installs_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("pegboard.config.workspace.find_spec", lambda name: None if name == "re2" else found(name))
    project.write("workspace: {}")
    [said] = project.said()
    assert said.startswith("pegboard.yaml:1:")
    command = install_command("docs")
    assert said.endswith(f"needs the package 'google-re2', which is not installed; run `{command}`")


def test_a_tool_that_would_stand_in_its_namespace_is_told_of(project: Project) -> None:
    project.write(
        "workspace: {}\ntools: [{name: read_document, namespace: docs, type: internal, handler: 'python:mine:read'}]\n",
        mine="def read(): ...\n",
    )
    [problem] = project.problems()
    assert "docs.read_document" in problem.message


async def test_an_embedder_of_documents_is_named_in_the_config(project: Project) -> None:
    project.write("workspace: {store: 'sqlite:d.db', embedder: hashing}\ntools: [{name: rag_ingest, type: builtin}]\n")
    view = project.view(user="ann", space="s1")
    await view.call("rag_ingest", {"document": "Ask for vacation in March."})
    found = (await view.call("search_documents", {"query": "vacatoin"})).structured
    assert (found["mode_used"], len(found["hits"])) == ("hybrid", 1)


SEARCHED = "tools: [{name: web_search, type: builtin, groups: [core], config: {provider: duckduckgo}}]\n"


@pytest.mark.parametrize(
    ("workspace", "tools", "in_web"),
    [
        ("{}", SEARCHED, {"web_search", "fetch_web_page"}),
        ("{web_fetch: false}", SEARCHED, {"web_search"}),
        ("{web_fetch: {allow_hosts: [example.com]}}", SEARCHED, {"web_search", "fetch_web_page"}),
        ("{web_fetch: true}", "", {"fetch_web_page"}),
        ("{}", "", None),
    ],
)
def test_the_one_search_of_the_web_is_in_its_group_and_pages_are_fetched_where_it_is(
    project: Project, workspace: str, tools: str, in_web: set[str] | None
) -> None:
    web = "" if in_web is None else "profiles: {web: {include: [web]}}\n"
    project.write(f"workspace: {workspace}\n{tools}{web}")
    catalog, config = project.load()
    ctx = context_for(config, user="ann", space="s1")
    if in_web is not None:
        assert {tool.spec.name for tool in catalog.view(ctx, profile="web").tools()} == in_web
    assert {tool.spec.name for tool in catalog.view(ctx, include=["core"]).tools()} == (
        {"web_search"} if tools else set()
    )
    named = [tool.spec.name for tool in catalog.view(ctx).tools()]
    assert named.count("web_search") == bool(tools)
    assert named.count("fetch_web_page") == (in_web is not None and "fetch_web_page" in in_web)
