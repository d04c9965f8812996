"""Pages say first what they are for, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *EXAMPLES]
SHELVES = ("tutorial", "howto", "reference", "explanation")
SHELVED = [page for shelf in SHELVES for page in sorted((DOCS / shelf).glob("*.md"))]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return what the headings of a page can be linked to by."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_resolve(page: Path) -> None:
    for target in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        found = page.parent / name if name else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", SHELVED, ids=lambda page: page.stem)
def test_a_page_opens_with_a_title_and_a_sentence(page: Path) -> None:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line and not line.startswith("<!--")]

    assert lines[0].startswith("# ")
    assert lines[1].rstrip(")").endswith((".", ":")), "say in one sentence what the page does"


def test_every_page_is_on_the_front_page() -> None:
    linked = set(_LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))

    assert {str(page.relative_to(DOCS)) for page in SHELVED} <= linked
