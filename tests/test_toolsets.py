"""Toolsets: a source or a view is narrowed, renamed, grouped and guarded in Python, as YAML does for a server."""

from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, Policy, Profile, ToolContext, Toolset
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from tests.core.parts import ANN, FakeSource, foreign


def git() -> FakeSource:
    return FakeSource(name="git", listed=[foreign("git", name) for name in ("log", "push", "pull_all")])


def board(source: Any, *groups: str) -> Catalog:
    catalog = Catalog()
    for group in groups:
        catalog.group(group)
    catalog.add_source(source)
    return catalog


def names(catalog: Catalog, **options: Any) -> list[str]:
    return sorted(catalog.view(ANN, **options).names())


def test_only_keeps_the_tools_that_a_glob_matches_and_skip_leaves_them_out() -> None:
    assert names(board(Toolset(git()).only("p*"))) == ["git__pull_all", "git__push"]
    assert names(board(Toolset(git()).only())) == []
    assert names(board(Toolset(git()).skip("p*", "LOG"))) == []
    assert names(board(Toolset(git()).only("p*").skip("*_all"))) == ["git__push"]


async def test_a_renamed_tool_is_called_by_its_new_name_alone() -> None:
    view = board(Toolset(git()).renamed({"log": "history"})).view(ANN)
    assert not (await view.call("git__history", {})).is_error
    assert (await view.call("git__log", {})).is_error
    with pytest.raises(DefinitionError, match="'no spaces'"):
        Toolset(git()).renamed({"log": "no spaces"})


def test_groups_are_replaced_for_the_tools_that_a_glob_matches() -> None:
    catalog = board(Toolset(git()).in_groups("write", tools="pu*").in_groups("read", tools="log"))
    assert names(catalog, include=["write"]) == ["git__pull_all", "git__push"]
    assert names(catalog, include=["read"]) == ["git__log"]
    assert names(catalog, include=["core"]) == []
    with pytest.raises(DefinitionError, match="needs at least one group"):
        Toolset(git()).in_groups()


async def test_asking_and_limited_guard_the_calls_of_the_tools_that_a_glob_matches() -> None:
    view = board(Toolset(git()).asking(tools="push").limited("1/60s", tools="log")).view(ANN)
    assert not (await view.call("git__pull_all", {})).is_error
    refused = await view.call("git__push", {})
    assert refused.error is not None
    assert refused.error.kind == "consent_required"
    kinds = [(await view.call("git__log", {})).error for _ in range(2)]
    assert kinds[0] is None
    assert kinds[1] is not None
    assert kinds[1].kind == "rate_limited"
    with pytest.raises(DefinitionError, match="rate limit"):
        Toolset(git()).limited("often")


def test_a_list_in_place_of_names_is_refused_with_the_right_form() -> None:
    wrong: Any = ["a", "b"]
    with pytest.raises(DefinitionError, match="each argument is one name or glob"):
        Toolset(git()).only(wrong)


def test_a_quarantined_tool_stays_hidden_under_its_new_name() -> None:
    source = git()
    source.now = SourceState(quarantined=frozenset({"git.push"}))
    catalog = board(Toolset(source).renamed({"push": "send"}))
    assert names(catalog) == ["git__log", "git__pull_all"]
    assert catalog.view(ANN).why("git__send").code == "quarantine"


def test_a_change_of_the_source_reaches_the_catalog_and_leaves_other_tools_the_same_objects() -> None:
    source = git()
    catalog = board(Toolset(source).renamed({"log": "history"}).limited("5/1s"))
    before = catalog.view(ANN)["git__history"].handler
    kept = next(entry for entry in catalog.registry.sources["git"].entries() if entry.spec.name == "history")
    source.relist([*source.listed, foreign("git", "tag")])
    assert "git__tag" in catalog.view(ANN)
    assert catalog.view(ANN)["git__history"].handler is before
    assert next(e for e in catalog.registry.sources["git"].entries() if e.spec.name == "history") is kept


async def test_a_toolset_starts_and_stops_with_its_source_and_tells_its_state() -> None:
    source = git()
    catalog = board(Toolset(source).only("log"))
    async with catalog:
        assert source.started == 1
        source.now = SourceState(status="unreachable", is_up=False, reason="it went away")
        assert names(catalog) == []
        assert catalog.view(ANN).why("git__log").code == "source"


# ---- views


def zoo() -> Catalog:
    catalog = Catalog()
    for name, group in (("feed", "care"), ("wash", "care"), ("sell", "shop")):
        catalog.tool(name=name, groups=group)(lambda: "done")
    catalog.profile(Profile(name="keeper", include=("care", "shop")))
    return catalog


def test_a_view_is_narrowed_by_globs_and_by_groups_and_never_widened() -> None:
    view = zoo().view(ToolContext(policy=Policy(deny=("wash",))))
    assert view.only("feed", "wash").names() == ["feed"]
    assert view.skip("s*").names() == ["feed"]
    assert view.in_groups("care").names() == ["feed"]
    assert view.only("feed").only("sell").names() == []
    assert view.only("feed").only("*").names() == ["feed"]
    assert view.names() == ["feed", "sell"]


def test_a_view_cannot_be_narrowed_to_a_group_that_it_does_not_have() -> None:
    catalog = zoo()
    with pytest.raises(DefinitionError, match=r"in_groups\('shop'\): no such group"):
        catalog.view(ANN, include=["care"]).in_groups("shop")
    with pytest.raises(DefinitionError, match="Did you mean 'shop'"):
        catalog.view(ANN).in_groups("shopp")


async def test_what_a_view_was_narrowed_by_cannot_be_called_and_why_says_so() -> None:
    view = zoo().view(ANN, profile="keeper").skip("feed")
    assert (await view.call("feed", {})).is_error
    assert view.why("feed").code == "policy"
    assert "View.skip" in str(view.why("feed"))


def test_a_narrowed_view_stays_narrow_when_its_profile_changes() -> None:
    catalog = zoo()
    narrow = catalog.view(ANN, profile="keeper").only("feed", "sell").in_groups("care")
    profiles = catalog.registry.profiles
    catalog.registry.change(profiles={**profiles, "keeper": replace(profiles["keeper"], include=("care",))})
    assert narrow.renewed().names() == ["feed"]
    catalog.registry.change(profiles={**profiles, "keeper": replace(profiles["keeper"], include=None)})
    assert narrow.renewed().names() == ["feed"]
    catalog.registry.change(profiles={**profiles, "keeper": replace(profiles["keeper"], include=("shop",))})
    assert narrow.renewed().names() == []


async def test_a_view_that_is_searched_is_narrowed_for_search_and_for_calls_in_a_batch() -> None:
    catalog = zoo()
    catalog.profile(Profile(name="finder", include=("care", "shop"), exposure="search"))
    view = catalog.exposed(catalog.view(ANN, profile="finder")).skip("sell")
    assert view.names() == ["searchTools", "getTools", "useTools"]
    calls = [{"agent": "main", "tool": "sell", "params": {}}]
    answer: Any = (await view.call("useTools", {"calls": calls})).structured
    assert answer["data"]["results"][0]["error"]["kind"] == "not_found"
    found: Any = (await view.call("searchTools", {"queries": ["sell wash"]})).structured
    assert {hit["tool"] for hit in found["data"]["results"][0]["hits"]} == {"wash", "feed"}


def test_one_off_tools_of_a_view_are_narrowed_too() -> None:
    def extra() -> str:
        return "here"

    view = zoo().view(ANN, extra_tools=[extra])
    assert "extra" in view.names()
    assert "extra" not in view.only("feed").names()


def test_the_handler_is_not_shared_between_two_catalogs_that_narrow_one_source() -> None:
    source = git()
    whole, narrow = board(source), board(Toolset(source).only("log"))
    assert names(whole) == ["git__log", "git__pull_all", "git__push"]
    assert names(narrow) == ["git__log"]


def test_a_new_name_that_another_tool_has_is_refused_with_both_names(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DefinitionError, match="'log' cannot be renamed to 'push', since 'push' has that name"):
        Toolset(git()).renamed({"log": "push"})
    with pytest.raises(DefinitionError, match="'push' cannot be renamed to 'Sent', since 'log' has that name"):
        Toolset(git()).renamed({"log": "sent", "push": "Sent"})
    swapped = Toolset(git()).renamed({"log": "push", "push": "log"})
    assert names(board(swapped)) == ["git__log", "git__pull_all", "git__push"]
    assert names(board(Toolset(git()).skip("push").renamed({"log": "push"}))) == ["git__pull_all", "git__push"]
    # A server that adds such a tool later: the one that has the name keeps it.
    source = FakeSource(name="git", listed=[foreign("git", "log")])
    catalog = board(Toolset(source).renamed({"log": "push"}))
    assert names(catalog) == ["git__push"]
    source.relist([foreign("git", "log"), foreign("git", "push")])
    assert names(catalog) == ["git__push"]
    assert "'log' cannot be renamed to 'push', since 'push' has that name" in caplog.text
