"""Pages: renders the templates of the console, and serves its stylesheet and scripts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response, StreamingResponse

from pegboard.core.safe_text import safe
from pegboard.server.console.decision_words import in_words, worded
from pegboard.server.console.outcome_words import outcome_in_words
from pegboard.server.console.shown_json import pretty

SHOWN_TEXT_CHARS = 4_000  # of a description or another text; the rest is counted
UNBROKEN_CHARS = 16  # of a tool's name, which fit on a peg
PARTS_TOGETHER = 400  # pieces of a template that are sent as one

_FOLDER = Path(__file__).parent
_STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "drop.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "plots.js": "text/javascript; charset=utf-8",
    "uplot.min.css": "text/css; charset=utf-8",
    "uplot.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# Without inline scripts and styles, a hostile name that slipped through unescaped would still be inert.
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # With `no-referrer`, browsers would send forms with the origin `null`.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

_POLICY = SECURITY_HEADERS["content-security-policy"]
# Images and sounds run no code; they would need a store if they had their own addresses.
_WITH_MEDIA = {
    **SECURITY_HEADERS,
    "content-security-policy": _POLICY.replace("img-src 'self'", "img-src 'self' data:").replace(
        "media-src 'self'", "media-src 'self' data:"
    ),
}


class Pages:
    """The templates and files of the console; they are read once, at the first request."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    @cached_property
    def _templates(self) -> Environment:
        # Every value is spelled out (control and bidi characters) and then escaped, wherever a template puts it.
        environment = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False, finalize=_finalized,
        )  # fmt: skip
        # Jinja does not type them.
        untyped: Any = environment
        untyped.filters.update(cut=cut, pretty=pretty, plural=plural, worded=worded, breakable=breakable)
        untyped.filters.update(outcome=outcome_in_words, in_words=in_words)
        untyped.globals["asset"] = self.asset_version
        return environment

    def page(self, template: str, values: Mapping[str, Any], *, status: int = 200, has_media: bool = False) -> Response:
        """Return a whole page; with `has_media` its images and sounds may be part of it."""
        text = self._templates.get_template(template).render(values)
        return HTMLResponse(text, status, headers=_WITH_MEDIA if has_media else SECURITY_HEADERS)

    def streamed(self, template: str, values: Mapping[str, Any]) -> Response:
        """Return a page whose first part is sent before the last is rendered."""
        stream = self._templates.get_template(template).stream(values)
        stream.enable_buffering(PARTS_TOGETHER)

        async def parts() -> AsyncIterator[str]:
            for part in stream:
                yield part
                # Other requests are answered while a large board is drawn.
                await asyncio.sleep(0)

        return StreamingResponse(parts(), media_type="text/html; charset=utf-8", headers=SECURITY_HEADERS)

    def asset_version(self, name: str) -> str:
        """Return a short digest of a file, which changes its address with its content."""
        return sha256(self._file(name)).hexdigest()[:12]

    def file(self, name: str) -> Response | None:
        """Return a file of the console; `None` if there is no such file."""
        if name not in _STATIC:
            return None
        headers = {**SECURITY_HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        return Response(self._file(name), media_type=_STATIC[name], headers=headers)

    def _file(self, name: str) -> bytes:
        if name not in self._files:
            self._files[name] = (_FOLDER / "static" / name).read_bytes()  # raw: part of the package
        return self._files[name]


def _finalized(value: object) -> object:
    # Most values are short and plain.
    if isinstance(value, Markup):
        return value
    return safe("" if value is None else value, lines=True)


def cut(text: str, chars: int = SHOWN_TEXT_CHARS) -> str:
    """Return the beginning of a long text, with the number of characters that were left out."""
    return text if len(text) <= chars else f"{text[:chars]} … ({len(text) - chars:,} more characters)"


def breakable(name: str) -> Markup:
    """Return a long name of a tool that a browser may break after `_` and `.`, and not within a word."""
    if len(name) <= UNBROKEN_CHARS:
        return escape(name)
    return Markup("<wbr>").join(re.split(r"(?<=[_.])(?=[^_.])", name))


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: `1 tool`, `2 tools`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
