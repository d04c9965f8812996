"""The templates have nothing that a browser would run from a page itself, and nothing that skips escaping."""

from __future__ import annotations

import re
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

import pegboard.server.console as package
from pegboard.config import load_catalog

FOLDER = Path(package.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
# Evaluates text: htmx's own handlers, values and trigger filters, and those of HTML.
REFUSED = {
    "an inline handler": r"\son[a-z]+=[\"'{]",
    "a handler of htmx": r"hx-on",
    "a value that is evaluated": r"\b(js|javascript):",
    "a filter of a trigger": r"hx-trigger=\"[^\"]*\[",
    "an inline style": r"\sstyle\s*=|<style",
    "an inline script": r"<script(?![^>]*\ssrc=)",
    "another site": r"(src|href|action)=\"(https?:)?//",
    "a value that is not escaped": r"\|\s*safe\b|autoescape\s+false|Markup\(",
    "a value outside of quotes": r"=\{\{",
}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_what_the_policy_of_content_would_refuse(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert {name: re.findall(pattern, text) for name, pattern in REFUSED.items() if re.search(pattern, text)} == {}


def test_the_lint_of_templates_finds_each_refused_form() -> None:
    bad = (
        '<a onclick="x">', '<a hx-on:click="x">', '<a href="javascript:x">', '<a hx-trigger="click[x]">',
        '<a style="x">', "<script>x</script>", '<img src="//x.example/a">', "{{ a | safe }}", "<a href={{ a }}>",
    )  # fmt: skip
    for pattern, text in zip(REFUSED.values(), bad, strict=True):
        assert re.search(pattern, text), text


def test_a_search_while_typing_ends_the_request_of_an_earlier_word() -> None:
    # htmx 4 keeps one waiting request and drops the later ones, so the hits would be those of half a word.
    tags = [
        tag for path in TEMPLATES for tag in re.findall(r"<[^<>]*hx-trigger=\"[^\"]*delay:[^<>]*>", path.read_text())
    ]
    assert len(tags) == 2
    assert [tag for tag in tags if 'hx-sync="this:replace"' not in tag] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_field_has_a_label_and_every_form_that_changes_something_its_token(path: Path) -> None:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.labels, self.fields = set[str](), set[str]()

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            named = dict(attrs)
            if tag == "label" and named.get("for"):
                self.labels.add(str(named["for"]))
            is_typed = tag in ("select", "textarea") or (tag == "input" and named.get("type") not in ("hidden",))
            if is_typed and not named.get("aria-label"):
                self.fields.add(str(named.get("id")))

    text, reader = path.read_text(encoding="utf-8"), Reader()
    reader.feed(text)
    assert reader.fields <= reader.labels
    posts = re.findall(r'<form[^>]*method="post".*?</form>', text, re.DOTALL)
    assert [form for form in posts if 'name="form_token" value="{{ form_token }}"' not in form] == []


def test_htmx_is_the_published_file_with_its_licence() -> None:
    # htmx 4.0.1; a new version needs a new digest, and a look at what it evaluates.
    assert sha256((FOLDER / "static/htmx.min.js").read_bytes()).hexdigest() == HTMX
    assert "Zero-Clause BSD" in (FOLDER / "static/htmx.LICENSE.txt").read_text(encoding="utf-8")


def test_uplot_is_the_published_file_with_its_licence() -> None:
    # uPlot 1.6.32, `dist/uPlot.iife.min.js` and `dist/uPlot.min.css` of the package.
    files = {name: sha256((FOLDER / "static" / name).read_bytes()).hexdigest() for name in UPLOT}
    assert files == UPLOT
    assert "The MIT License (MIT)" in (FOLDER / "static/uplot.LICENSE.txt").read_text(encoding="utf-8")


UPLOT = {
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
HTMX = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"


# Whole configs of the pages that are empty; those of `identity:` and `files:` need keys and files next to them.
EXAMPLES = [
    pytest.param(unescape(text), id=f"{path.name}-{text.partition(':')[0]}")
    for path in TEMPLATES
    for text in re.findall(
        r'<pre tabindex="0">((?:audit|connections|consents|tasks|tools|workspace):[^<]+)</pre>',
        path.read_text(encoding="utf-8"),
    )
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_empty_page_shows_a_config_that_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    monkeypatch.setenv("CONNECTIONS_KEY", "a-random-text-of-at-least-32-characters")
    (tmp_path / "pegboard.yaml").write_text(example)
    load_catalog(tmp_path / "pegboard.yaml")


def test_most_empty_pages_show_a_config() -> None:
    assert len({example.id.partition("-")[0] for example in EXAMPLES if example.id}) >= 6
