"""Prose: parses plain text, Markdown and source code."""

from __future__ import annotations

import re

from pegboard.workspace.chunking import heading_title
from pegboard.workspace.limits import DOCUMENT_TITLE_CHARS
from pegboard.workspace.parsing.encodings import decode
from pegboard.workspace.parsing.parsed import Parsed, cleaned, headings_of, one_line

# After `#` signs, or a line underlined with `=` or `-`.
_HEADING = re.compile(r"^#{1,6} (.*)$|(?:\A|(?<=\n\n))(?![-=#>|*+ ])(\S.*)\n(?:=+|-{2,}) *$", re.MULTILINE)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_FRONT = re.compile(r"\A---\n(.*?)\n(?:---|\.\.\.)\n", re.DOTALL)
_FIELD = re.compile(r"^([A-Za-z][\w-]*): *(\S.*)$", re.MULTILINE)


def parse_text(options: object, payload: bytes) -> Parsed:
    """Parse plain text. A short first line followed by an empty one is its title."""
    source = decode(options, payload)
    text = cleaned(source.text)
    first, _, rest = text.lstrip().partition("\n")
    is_title = 0 < len(first) <= DOCUMENT_TITLE_CHARS and rest.startswith("\n")
    return source.mark(Parsed(text=text, title=one_line(first)) if is_title else Parsed(text=text))


def parse_source(options: object, payload: bytes) -> Parsed:
    """Parse source code, or any text without a title: as it is."""
    source = decode(options, payload)
    return source.mark(Parsed(text=cleaned(source.text)))


def markdown_headings(text: str) -> list[str]:
    """Return the first headings of a text in Markdown, without those in code."""
    body = _FENCED.sub("", text)
    return headings_of([match[2] or heading_title(match[1]) for match in _HEADING.finditer(body)])


def parse_markdown(options: object, payload: bytes) -> Parsed:
    """Parse Markdown, including front matter between lines of dashes.

    Title, author, date and language are known; other keys with a plain value are metadata of the author's own.
    """
    source = decode(options, payload)
    text = cleaned(source.text)
    front = _FRONT.match(text)
    headings = markdown_headings(text[front.end() :] if front else text)
    parsed = Parsed(text=text, headings=headings)
    own: dict[str, str] = {}
    if headings:
        parsed["title"] = headings[0]
    for name, value in _FIELD.findall(front[1]) if front else ():
        declared = one_line(value.strip().strip("\"'"))
        match name.lower():
            case "title":
                parsed["title"] = declared
            case "author":
                parsed["author"] = declared
            case "date":
                parsed["created"] = declared
            case "lang" | "language":
                parsed["language"] = declared
            case _:
                # Not cut: what is too long is left out as a whole.
                own[name] = value.strip().strip("\"'")
    if own:
        parsed["own"] = own
    return source.mark(parsed)
