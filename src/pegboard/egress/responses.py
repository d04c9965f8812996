"""Answers: read what came back over HTTP."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

from pegboard.egress.http import Response
from pegboard.model.error import CallError

_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
# Of no text that a server sends: transports, and codecs that are slow, warn or fail on what is not theirs.
_NO_CHARSETS = frozenset({"base64-codec", "bz2-codec", "hex-codec", "idna", "punycode", "zlib-codec", "undefined",
                          "unicode-escape", "raw-unicode-escape"})  # fmt: skip
_LONGEST_WAIT_S: Final = 999_999.0


def media_type(response: Response) -> str:
    """Return the type that the answer says it has, without parameters; empty where it says none."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Tell whether a media type is JSON, or built on it."""
    return media == "application/json" or media.endswith("+json")


def text_of(response: Response) -> str:
    """Return the body as text, in the encoding that the answer names, else UTF-8; what cannot be read becomes `�`."""
    named = _CHARSET.search(response.headers.get("content-type", ""))
    return response.body.decode(_codec(named[1] if named else "utf-8"), "replace")


def _codec(charset: str) -> str:
    try:
        codec = codecs.lookup(charset)
    except LookupError:
        return "utf-8"
    is_text = getattr(codec, "_is_text_encoding", False) and codec.name.replace("_", "-") not in _NO_CHARSETS
    return codec.name if is_text else "utf-8"


def json_of(response: Response, who: str) -> Any:
    """Return the body as JSON.

    Raises:
        CallError: protocol_error when it is none.
    """
    try:
        return orjson.loads(response.body)
    except ValueError:
        text = f"{who} answered {response.status_code} with something that is no JSON. Try again later."
        raise CallError("protocol_error", text) from None


def retry_after_s(response: Response) -> float | None:
    """Return the seconds that the answer asks to wait, said in seconds or as a date; `None` where it says none."""
    said = response.headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return min(float(said[:20]), _LONGEST_WAIT_S)
    try:
        date = parsedate_to_datetime(said)
    except ValueError:
        return None
    now = datetime.now(UTC)
    return min(
        max((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp(), 0.0), _LONGEST_WAIT_S
    )
