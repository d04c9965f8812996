"""Markup: parses HTML to visible text, with headings and lists in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Final

from pegboard.workspace.parsing.encodings import decode
from pegboard.workspace.parsing.parsed import Parsed, cleaned, headings_of, one_line

_UNSEEN: Final = frozenset({"script", "style", "noscript", "template", "title", "svg", "head", "iframe", "object"})
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_BLOCKS: Final = frozenset(
    "address article aside blockquote dd details div dl dt fieldset figcaption figure footer form header hr main nav "
    "ol option p pre section table tbody textarea thead tr ul br li h1 h2 h3 h4 h5 h6 caption summary".split()
)
# The elements of a page's head; any other element begins the body, whose tag is optional.
_IN_HEAD: Final = frozenset("base basefont bgsound head html link meta noscript script style template title".split())
# Elements without an end tag.
_VOID: Final = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_INVISIBLE = re.compile(r"(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*hidden)(?![\w-])", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_CODE: Final = "\0"  # marks lines of code during parsing; no text contains it
# Elements with optional end tags, and the start tags that end them. Source: the HTML standard, 13.1.2.4
_ENDS: Final = {
    "p": _BLOCKS - {"br", "caption", "li", "dd", "option", "tr", "tbody", "thead", "textarea", "figcaption", "summary"},
    "li": frozenset({"li"}),
    **dict.fromkeys(("dt", "dd"), frozenset({"dt", "dd"})),
    **dict.fromkeys(("td", "th"), frozenset({"td", "th", "tr", "tbody"})),
    "tr": frozenset({"tr", "tbody"}),
    "option": frozenset({"option"}),
}
_NAMED: Final = {"author": "author", "date": "created", "dc.date": "created", "article:published_time": "created"}
# Encoding labels, and their meaning in browsers. Source: https://encoding.spec.whatwg.org/#names-and-labels
_ENCODINGS: Final = {
    **dict.fromkeys(("ascii", "us-ascii", "iso-8859-1", "latin1", "windows-1252", "cp1252"), "cp1252"),
    **{f"iso-8859-{part}": f"iso8859_{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"windows-{page}": f"cp{page}" for page in (874, 1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258)},
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "korean"), "cp949"),
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "gb_2312-80"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "windows-31j", "x-sjis"), "cp932"),
    "iso-8859-9": "cp1254", "big5": "big5hkscs", "euc-jp": "euc_jp", "iso-2022-jp": "iso2022_jp", "koi8-r": "koi8_r",
    "koi8-u": "koi8_u", "ibm866": "cp866", "macintosh": "mac_roman", "tis-620": "cp874",
}  # fmt: skip
_CHARSET = re.compile(
    rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})|^\s*<\?xml[^>]{0,200}encoding=[\"']([\w-]{1,40})", re.IGNORECASE
)


def parse_html(options: object, payload: bytes) -> Parsed:
    """Parse a page, without scripts, styles and comments."""
    page = _Page()
    source = decode(options, payload, declared=_declared(payload))
    page.feed(cleaned(source.text))
    page.close()
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(map(_line, "".join(page.text).split("\n")))).strip()
    headings = headings_of(page.headings)
    title = one_line("".join(page.title)) or (headings[0] if headings else "")
    parsed = Parsed(text=text, headings=headings)
    if title:
        parsed["title"] = title
    if page.language:
        parsed["language"] = one_line(page.language)
    if "author" in page.told:
        parsed["author"] = page.told["author"]
    if "created" in page.told:
        parsed["created"] = page.told["created"]
    return source.mark(parsed)


def _declared(payload: bytes) -> str | None:
    """Return the encoding that a page declares, if browsers support it."""
    named = _CHARSET.search(payload[:2_048])
    return _ENCODINGS.get((named[1] or named[2]).decode().lower()) if named is not None else None


class _Page(HTMLParser):
    """Collects title, headings and all visible text of a page.

    `_unseen` are the open elements from the first invisible one on; their text is skipped.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.text: list[str] = []
        self.headings: list[str] = []
        self.language = ""
        self.told: dict[str, str] = {}
        self._unseen: list[str] = []
        self._in_title = False
        self._in_heading = False
        self._is_first_cell = True
        self._code_levels = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self._close_unseen_before(tag)
        if tag == "html":
            self.language = attributes.get("lang", "")
        elif tag == "meta":
            name = _NAMED.get((attributes.get("name") or attributes.get("property") or "").lower())
            if name:
                self.told.setdefault(name, one_line(attributes.get("content", "")))
        elif tag == "title":
            # An SVG picture in the page may have its own title.
            self._in_title = not self.title and self._unseen in ([], ["head"])
        if self._unseen or tag in _UNSEEN or _is_hidden(attributes):
            if tag not in _VOID:
                self._unseen.append(tag)
            return
        if tag in _BLOCKS:
            self._begin_block(tag)
        elif tag in ("td", "th"):
            self.text.append("" if self._is_first_cell else " | ")
            self._is_first_cell = False
        elif tag == "img" and attributes.get("alt"):
            self.text.append(attributes["alt"])

    def _close_unseen_before(self, tag: str) -> None:
        """Close elements that a start tag ends implicitly."""
        if tag == "body" or (self._unseen == ["head"] and tag not in _IN_HEAD):
            # Including unclosed elements inside.
            self._unseen.clear()
        elif self._unseen and tag in _ENDS.get(self._unseen[-1], ()):
            self._unseen.pop()

    def _begin_block(self, tag: str) -> None:
        if tag == "tr":
            self._is_first_cell = True
        elif tag == "pre":
            self._code_levels += 1
        if tag in _HEADINGS:
            self.text.append(f"\n\n{_HEADINGS[tag]} ")
            self.headings.append("")
            self._in_heading = True
        elif tag in ("p", "table", "ul", "ol", "section", "article", "blockquote"):
            self.text.append("\n\n")
        else:
            self.text.append("\n- " if tag == "li" else "\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # `<svg/>` has no content, so the text after it is visible.
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in self._unseen:
            # Including unclosed elements inside.
            while self._unseen.pop() != tag:
                pass
            return
        if self._unseen and self._unseen[0] in _ENDS and tag in _BLOCKS:
            # The surrounding element ends, and so does this one.
            self._unseen.clear()
        if self._unseen:
            return
        if tag in _BLOCKS and tag != "br":
            self.text.append("\n")
        if tag == "pre":
            self._code_levels = max(0, self._code_levels - 1)
        if tag in _HEADINGS:
            self._in_heading = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        if self._unseen == ["head"] and data.strip():
            self._unseen.clear()
        if self._unseen:
            return
        # Line breaks in the source are only meaningful in code.
        self.text.append(data.replace("\n", f"\n{_CODE}") if self._code_levels else " ".join(_SPACES.split(data)))
        if self._in_heading and self.headings:
            self.headings[-1] += data


def _is_hidden(attributes: Mapping[str, str]) -> bool:
    """Tell whether the attributes of an element hide it."""
    return "hidden" in attributes or _INVISIBLE.search(attributes.get("style", "")) is not None


def _line(text: str) -> str:
    """Return a line of a page without superfluous spaces; code keeps its indentation."""
    return text.replace(_CODE, "").rstrip() if _CODE in text else " ".join(text.split())
