"""The quickstart holds what its files say, on the documentation and on the pages that come with it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, View
from pegboard.config import Config, context_for, load_catalog

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "quickstart"
CORE = ["list_pages", "read_page", "page_links", "count_words", "outline", "search_docs"]
CHANGE = {"page": "glossary.md", "old": "# Glossary", "new": "# Words"}


@pytest.fixture(params=["in the repository", "on its own"])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Catalog, Config]:
    folder = FOLDER
    if request.param == "on its own":
        folder = Path(shutil.copytree(FOLDER, tmp_path / "_quickstart", ignore=shutil.ignore_patterns("__pycache__")))
    return load_catalog(folder / "pegboard.yaml", env={})


def view_of(loaded: tuple[Catalog, Config], profile: str, **fields: Any) -> View:
    catalog, config = loaded
    return catalog.view(context_for(config, user=profile, **fields), profile=profile)


async def test_each_profile_sees_other_tools(loaded: tuple[Catalog, Config]) -> None:
    def tools(profile: str, **fields: Any) -> set[str]:
        return {entry.wire_name for entry in view_of(loaded, profile, **fields).tools()}

    assert tools("reader") == set(CORE)
    assert tools("editor") == {*CORE, "replace_text"}
    assert tools("operator") == {*CORE, "replace_text"}
    assert tools("operator", factories={"publisher": lambda ctx: print}) == {*CORE, "replace_text", "publish"}
    assert "WebFetch" in view_of(loaded, "editor").names()
    assert "WebFetch" not in view_of(loaded, "reader").names()


async def test_what_hides_a_tool_is_named(loaded: tuple[Catalog, Config]) -> None:
    codes = {
        ("reader", "replace_text"): ("group", "visible"),
        ("editor", "publish"): ("policy", "factory"),
        ("operator", "publish"): ("factory", "visible"),
        ("editor", "show_changes"): ("available", None),
        ("operator", "call_tally"): ("internal", "visible"),
    }

    decided = {asked: view_of(loaded, asked[0]).why(asked[1]) for asked in codes}

    assert {asked: (decision.code, decision.next) for asked, decision in decided.items()} == codes


async def test_reading_tools_read_real_pages(loaded: tuple[Catalog, Config]) -> None:
    reader = view_of(loaded, "reader")

    pages = (await reader.call("list_pages")).unwrap()
    text = (await reader.call("read_page", {"path": "glossary.md"})).unwrap()
    hits = (await reader.call("search_docs", {"query": "caller tool"})).unwrap()

    assert "glossary.md" in pages
    assert text.startswith("# Glossary")
    assert (await reader.call("outline", {"path": "glossary.md"})).unwrap()[0] == "Glossary"
    assert (await reader.call("count_words", {"page": "glossary.md"})).unwrap() > 20
    assert (await reader.call("page_links", {"page": "glossary.md"})).error is None
    assert len(hits) == 3
    assert all(hit["page"] in pages for hit in hits)


@pytest.mark.parametrize("page", ["nothing.md", "../pyproject.md", "/etc/passwd", "/etc/x.md", "generate.py", ""])
async def test_no_other_file_can_be_read(loaded: tuple[Catalog, Config], page: str) -> None:
    result = await view_of(loaded, "reader").call("read_page", {"page": page})

    assert result.error is not None
    assert result.error.kind == "invalid_arguments"


async def test_a_change_needs_a_yes_and_leaves_the_page_as_it_is(loaded: tuple[Catalog, Config]) -> None:
    refused = await view_of(loaded, "editor").call("replace_text", CHANGE)
    same = await view_of(loaded, "editor").call("replace_text", {**CHANGE, "new": CHANGE["old"]})
    sent: list[str] = []
    yes: dict[str, Any] = {
        "approve": lambda request: True,
        "factories": {"publisher": lambda ctx: lambda page, text: sent.append(text)},
    }
    changed = await view_of(loaded, "operator", **yes).call("replace_text", {**CHANGE, "file": CHANGE["page"]})

    assert [result.error and result.error.kind for result in (refused, same, changed)] == [
        "consent_required",
        "invalid_arguments",
        None,
    ]
    assert changed.structured["replaced"] == 1
    shown = (await view_of(loaded, "editor").call("show_changes")).text
    assert shown.endswith("-# Glossary\n+# Words")
    assert (await view_of(loaded, "operator", **yes).call("publish")).text == "published: glossary.md"
    assert sent[0].startswith("# Words")
    assert (await view_of(loaded, "operator", **yes).call("discard_changes")).text == "1 changed page forgotten"
    assert (await view_of(loaded, "editor").call("show_changes")).error is not None
    assert (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").startswith("# Glossary")


async def test_decisions_are_kept_and_calls_are_tallied(loaded: tuple[Catalog, Config]) -> None:
    decision = {"page": "decisions/0001-run-the-stages-of-a-call-in-one-fixed-order.md", "old": "a", "new": "b"}

    refused = await view_of(loaded, "editor", approve=lambda request: True).call("replace_text", decision)

    assert refused.error is not None
    assert refused.error.kind == "hook_refused"
    catalog, config = loaded
    tally = await catalog.view(context_for(config), internal=["call_tally"]).call("call_tally")
    assert tally.structured == {"replace_text hook_refused": 1}


async def test_a_limit_of_its_own_and_one_of_the_profile(loaded: tuple[Catalog, Config]) -> None:
    results = [await view_of(loaded, "reader").call("search_docs", {"query": "tool"}) for _ in range(6)]

    assert [result.error and result.error.kind for result in results] == [None] * 5 + ["rate_limited"]
