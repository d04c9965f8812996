"""Pages say first what they are for, and their links lead somewhere."""

from pathlib import Path

import pytest

from docs import build_site

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *EXAMPLES]
SHELVES = ("tutorial", "howto", "reference", "explanation")
SHELVED = [page for shelf in SHELVES for page in sorted((DOCS / shelf).glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_resolve(page: Path) -> None:
    assert build_site.dead_links(page) == []


def test_dead_links_are_found_in_text_and_pictures_and_not_in_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `page`\n[ok](#a-page) [`code`](no.md) ![](no.svg) [x](page.md#no)\n"
        "`[x](no.py)`\n```text\n[x](no.txt)\n```\n",
        encoding="utf-8",
    )

    assert build_site.dead_links(page) == ["no.md", "no.svg", "page.md#no"]


def test_comments_above_a_title_do_not_hide_it_from_the_navigation_of_the_site() -> None:
    page = "<!-- Written by a script. -->\n<!-- fmt: off -->\n\n# Command line\n\n<!-- kept -->\n"

    assert build_site.for_renderer(page) == "# Command line\n\n<!-- kept -->\n"


def test_columns_of_text_do_not_wrap_in_the_site_and_code_in_a_table_has_no_backslash() -> None:
    page = "```text\nid   # one\n```\n```text\nplain\n```\n| `a \\| b` | c \\| d |\n"

    assert build_site.for_renderer(page) == (
        "``` { .text .columns }\nid   # one\n```\n```text\nplain\n```\n| `a | b` | c \\| d |\n"
    )


@pytest.mark.parametrize("page", SHELVED, ids=lambda page: page.stem)
def test_a_page_opens_with_a_title_and_a_sentence(page: Path) -> None:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line and not line.startswith("<!--")]

    assert lines[0].startswith("# ")
    assert lines[1].rstrip(")").endswith((".", ":")), "say in one sentence what the page does"


def test_every_page_is_on_the_front_page() -> None:
    linked = set(build_site.links_of((DOCS / "README.md").read_text(encoding="utf-8")))

    assert {str(page.relative_to(DOCS)) for page in SHELVED} <= linked


def test_every_page_but_decisions_is_in_the_navigation_of_the_site_once() -> None:
    listed = [page for _section, pages in build_site.navigation() for page in pages]
    pages = (page.relative_to(DOCS) for page in DOCS.rglob("*.md"))

    assert sorted(listed) == sorted(
        [
            "decisions/index.md",  # lists them; written by the build
            *(page.as_posix() for page in pages if page.parts[0] != "decisions"),
        ]
    )


def test_the_comparison_links_every_tick_of_others_to_a_source_and_of_ours_to_a_test() -> None:
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines() if line.startswith("| ")]
    ticked = [[cell for cell in row if "✔" in cell] for row in rows]

    assert sum(map(len, ticked)) >= 60
    for row in rows:
        for place, cell in enumerate(row):
            linked = "](../tests/" if place == 0 else "](https://"
            assert "✔" not in cell or linked in cell, cell
            assert "✘" not in cell or place == 0, cell


# What people look for first, and the page and heading that answer it.
QUESTIONS = {
    "connect Claude Code": "howto/install.md",
    "log who called what": "howto/logging.md",
    "rotate a key": "howto/keys.md#rotate-a-key",
    "back up": "howto/backup.md",
    "why is my tool missing": "howto/missing-tool.md",
    "use my OpenAPI": "howto/openapi.md",
    "approve calls": "howto/approvals.md",
    "documents on Postgres": "howto/documents.md#keep-documents-in-postgresql",
    "two workers": "howto/deploy.md",
    "write a test": "howto/test-your-tools.md",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_ten_first_questions_are_one_link_from_the_start_page(question: str) -> None:
    start = (DOCS / "README.md").read_text(encoding="utf-8")
    asked = start.partition("## What do you want to do?")[2].partition("\n## ")[0]

    assert QUESTIONS[question] in build_site.links_of(asked)
