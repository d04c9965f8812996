"""Web paths: the path and the stored bytes of a page of the web."""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import unquote, urlsplit

from pegboard.egress.responses import Response, media_type, text_of
from pegboard.workspace.parsing.formats import FORMATS, format_of
from pegboard.workspace.shown_names import can_be_shown

_SUFFIXES: Final = {kind.mime: suffix for suffix, kind in reversed(FORMATS.items())}
_PATH_CHARS = 500  # characters of a path; longer ones are cut, with a digest appended


def is_address(path: str) -> bool:
    """Tell whether a path is a web address."""
    return path.lower().startswith(("http://", "https://"))


def payload_of(response: Response) -> bytes:
    """Return the bytes of a response; a text with a declared encoding is converted to UTF-8 with a byte order mark."""
    if media_type(response).startswith("text/") and "charset=" in response.headers.get("content-type", "").lower():
        return text_of(response).encode("utf-8-sig")
    return response.body


def path_of(url: str, kind: str) -> str | None:
    """Return the path for an address, with the extension of its format; `None` for an unsupported format."""
    address = urlsplit(url)
    path = unquote(address.path)
    parts = [each for part in path.split("/") if (each := _name(part)) not in ("", ".", "..")]
    if not parts or path.endswith("/"):
        parts.append("index")
    if address.query:
        parts[-1] += f"?{_name(unquote(address.query))}"
    plain = "/".join((_name(address.hostname or "web"), *parts))
    known = format_of(plain)
    suffix = _SUFFIXES.get(kind)
    if suffix is None and known is None:
        return None
    if suffix is not None and (known is None or known.mime != kind):
        plain += suffix
    if len(plain) > _PATH_CHARS:
        end = f"~{hashlib.sha256(plain.encode()).hexdigest()[:16]}{suffix or '.' + plain.rpartition('.')[2]}"
        plain = plain[: _PATH_CHARS - len(end)] + end
    return plain


def _name(text: str) -> str:
    """Return a part of an address as a name, without unprintable characters and path separators."""
    return "".join(each for each in text if can_be_shown(each) and each not in "/\\").strip()
