"""Responses: an HTTP response and its interpretation: text, JSON and status."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pegboard.core.json_reader import TooManyValuesError, read_answer
from pegboard.model.error import CallError
from pegboard.model.record import CarriesCredentials

LONGEST_RETRY_AFTER_S = 999_999.0  # the longest `Retry-After` that is believed, in seconds

_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
# A page's own encoding: `<meta charset=…>`, `<meta … content="text/html; charset=…">`, `<?xml encoding=…?>`.
_IN_PAGE = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})|^\s*<\?xml[^>]{0,200}?encoding=[\"']([\w.:-]{1,40})",
    re.I,
)
_MARKUP = frozenset({"text/html", "application/xhtml+xml", "application/xml", "text/xml", ""})
_LOOKED_AT_BYTES = 2_048  # bytes of a page searched for its encoding; the HTML standard requires 1,024
# The web's encodings (WHATWG, Encoding), by Python's names. In all but UTF-16 ASCII bytes are ASCII characters, so a
# check of the bytes sees them. This is not so in UTF-7, HZ, ISO-2022 and EBCDIC.
_CHARSETS = frozenset({
    "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "big5", "big5hkscs", "cp866", "cp874", "cp932",
    "cp949", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "koi8-r", "koi8-u", "mac-cyrillic", "mac-roman",
    "shift_jis", "tis-620", *(f"cp125{number}" for number in range(9)),
    *(f"iso8859-{part}" for part in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)),
})  # fmt: skip


class Response(CarriesCredentials, frozen=True, kw_only=True):
    """A response, read to its end or to the cap.

    `headers` has lower-case names; repeated ones are joined with ", ". `body` is unpacked. `url` is the final one after
    redirects. `truncated` says that the body was longer than the cap.
    """

    status_code: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    truncated: bool
    elapsed_s: float


def media_type(response: Response) -> str:
    """Return the media type of the response, without parameters; empty without one."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Tell whether a media type is JSON or based on it."""
    return media == "application/json" or media.endswith("+json")


def text_of(response: Response) -> str:
    """Return the body as text, in its declared encoding if that is one of the web's, else in UTF-8.

    Without a declared encoding the page's own is used, since servers seldom declare one. Undecodable bytes become `�`.
    """
    declared = _CHARSET.search(response.headers.get("content-type", ""))
    codec = _codec(declared[1]) if declared else _codec_in_page(response)
    return response.body.decode(codec, "replace")


def _codec_in_page(response: Response) -> str:
    """Return a page's own encoding; UTF-16 is recognised by its first bytes, since no text in it could be read."""
    if media_type(response) not in _MARKUP:
        return "utf-8"
    if response.body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    named = _IN_PAGE.search(response.body[:_LOOKED_AT_BYTES])
    codec = _codec((named[1] or named[2]).decode()) if named and not response.body.startswith(codecs.BOM_UTF8) else ""
    # Pages in "Latin-1" use Windows-1252, as browsers assume.
    return "cp1252" if codec in ("ascii", "iso8859-1") else "utf-8" if codec.startswith("utf-16") else codec or "utf-8"


def _codec(charset: str) -> str:
    try:
        codec = codecs.lookup(charset)
    except LookupError:
        return "utf-8"
    return codec.name if codec.name in _CHARSETS else "utf-8"


def json_of(response: Response, who: str) -> Any:
    """Return the body as JSON.

    Raises:
        CallError: protocol_error if it is not JSON; result_too_large if it has too many values.
    """
    try:
        return read_answer(response.body)
    except TooManyValuesError as error:
        raise CallError("result_too_large", f"{who} answered {response.status_code} with {error}.") from None
    except ValueError:
        text = f"{who} answered {response.status_code} with something that is not JSON. Try again later."
        raise CallError("protocol_error", text) from None


def retry_after_s(response: Response) -> float | None:
    """Return the seconds of `Retry-After`, a number or a date; `None` without one."""
    return seconds_of(response.headers.get("retry-after", ""))


def seconds_of(retry_after: str) -> float | None:
    """Return the seconds of a `Retry-After` value, up to a limit; `None` if it is invalid."""
    header = retry_after.strip()
    if header.isascii() and header.isdigit():
        return min(float(header[:20]), LONGEST_RETRY_AFTER_S)
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    now = datetime.now(UTC)
    at = date if date.tzinfo else date.replace(tzinfo=UTC)
    return min(max(at.timestamp() - now.timestamp(), 0.0), LONGEST_RETRY_AFTER_S)


def check_status(response: Response, who: str) -> None:
    """Raise the error for a status of 400 or more.

    Raises:
        CallError: upstream_auth, rate_limited, upstream_unavailable or upstream_error.
    """
    status = response.status_code
    if status < 400:
        return
    if status in (401, 403):
        raise CallError("upstream_auth", f"{who} refused our credentials ({status}). The operator must correct them.")
    if status == 429:
        raise CallError("rate_limited", f"{who} says: too many requests. Wait.", retry_after_s=retry_after_s(response))
    kind = "upstream_unavailable" if status in (502, 503, 504) else "upstream_error"
    raise CallError(kind, f"{who} answered {status}: {text_of(response)[:200]!r}.", details={"status": status})
