"""The meta tools know what spaces and folders a caller has, and narrow its calls to one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pegboard import Profile
from pegboard.model.record import replace
from tests.discovery.calling import say
from tests.workspace.library import Library, as_bytes, in_space


@pytest.fixture
async def shown(library: Library) -> Library:
    """A library whose tools stand behind two meta tools, with three spaces of which bob has two."""
    library.catalog.profile(Profile(name="all", exposure="two_tool"))
    for space in ("alpha", "beta", "gamma"):
        texts = {f"{folder}/deep/{space}.txt": f"lease of {space}" for folder in "abcdef"[: len(space)]}
        await library.add(space, f"files of {space}", {**texts, "top.txt": f"top of {space}"})
        await library.add(space, "flat", {"note.txt": f"note of {space}"})
    await library.store.grant("user:bob", "alpha", "read")
    await library.store.grant("role:support", "beta", "write")
    return library


BOB = in_space(None, "bob", "support")


async def test_get_tools_names_the_spaces_and_the_first_folders_of_the_caller(shown: Library) -> None:
    ask = [{"agent": "docs", "tools": ["find_by_name"]}]
    data = (await say(shown.catalog, "getTools", ctx=BOB, request=ask))["data"]
    assert data["workspaces"] == ["default", "alpha", "beta"]
    assert data["folders"] == [*(f"files of alpha/{folder}" for folder in "abcde"), "..."]
    data = (await say(shown.catalog, "getTools", ctx=in_space("beta", "eve"), request=ask))["data"]
    assert (data["workspaces"], data["folders"]) == (
        ["default", "beta"],
        [*(f"files of beta/{folder}" for folder in "abcd"), "flat/"],
    )
    nobody = (await say(shown.catalog, "getTools", ctx=in_space(None, None), request=ask))["data"]
    assert (nobody["workspaces"], nobody["folders"]) == (["default"], [])


async def used(library: Library, ctx: Any, workspace: str, tool: str, **params: Any) -> Any:
    call = {"agent": "docs", "tool": tool, "params": params}
    return await say(library.catalog, "useTools", ctx=ctx, calls=[call], context={"workspaceId": workspace})


@pytest.mark.parametrize(
    ("workspace", "seen"),
    [("default", {"alpha", "beta"}), ("N/A", {"alpha", "beta"}), ("alpha", {"alpha"}), ("beta", {"beta"})],
)
async def test_a_workspace_narrows_every_call_of_the_batch_to_it(
    shown: Library, workspace: str, seen: set[str]
) -> None:
    for tool, params in (
        ("search_documents", {"query": "lease"}),
        ("grep_documents", {"pattern": "note"}),
        ("find_by_name", {"pattern": "*"}),
    ):
        answer = await used(shown, BOB, workspace, tool, **params)
        assert answer["success"] is True, answer
        text = as_bytes(answer).decode()
        names = {"search_documents": "lease of ", "grep_documents": "note of ", "find_by_name": ""}[tool]
        if names:
            assert {space for space in ("alpha", "beta", "gamma") if f"{names}{space}" in text} == seen


async def test_a_workspace_is_a_space_to_the_tools_that_need_one_and_gives_no_more_than_was_granted(
    shown: Library,
) -> None:
    listed = await used(shown, BOB, "beta", "list_sources")
    assert b"files of beta" in as_bytes(listed)
    assert b"alpha" not in as_bytes(listed)
    # Without one these tools are not there.
    assert b"not found" in as_bytes(await used(shown, BOB, "default", "list_sources"))
    for elsewhere in ("gamma", "delta"):
        refused = await used(shown, BOB, elsewhere, "find_by_name", pattern="*")
        known = "Available: default, alpha, beta."
        assert refused == {"success": False, "error": f'Workspace "{elsewhere}" is not available. {known}'}
    # Who is in a space has that one, whatever else is granted.
    inside = await used(shown, in_space("beta", "bob"), "alpha", "find_by_name", pattern="*")
    assert inside["error"] == 'Workspace "alpha" is not available. Available: default, beta.'


async def test_the_word_of_a_call_about_a_space_opens_none_whoever_let_it_through(shown: Library) -> None:
    for word, spaces in (("gamma", ()), ("delta", ()), ("alpha", ("alpha",))):
        ctx = replace(BOB, services={"call_intent": SimpleNamespace(narrows_to=word)})
        scope = await shown.store.scope(ctx)
        assert (scope.spaces, scope.writable) == (spaces, frozenset())
        found = await shown.catalog.view(ctx).call("find_by_name", {"pattern": "gamma"})
        assert "gamma.txt" not in found.text


async def test_every_name_makes_a_uri_that_reads_its_document_and_no_other(shown: Library) -> None:
    names = [
        "a b.txt",
        "100%.txt",
        "ü/ñ 日本.txt",
        "q?x=1#y.txt",
        "%2e%2e/x.txt",
        "deep/a+b&c.txt",
        "{x}.txt",
        "back\\.txt",
    ]
    await shown.add("odd space", "web/pages: 1", {name: f"text of {name}" for name in names})
    resources, ctx = shown.catalog.resources, in_space("odd space")
    view = resources.view(ctx)
    [(_, template)] = resources.resources(view)
    assert template.members is not None
    members = await template.members(ctx)
    assert sorted(each.name for each in members) == sorted(names)
    for each in members:
        match = await resources.find_resource(each.uri, view)
        assert match is not None
        result = await view.call(match[0], match[2])
        assert [getattr(block, "text", None) for block in result.content] == [f"text of {each.name}"], each.uri
