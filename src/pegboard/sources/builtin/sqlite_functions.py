"""SQLite functions: replaces functions of SQLite that may take hours for two long strings.

SQLite checks its clock between the steps of a statement, never inside a function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import apsw

from pegboard.model.bounds import MIB

SQLITE_VALUE_BYTES = 4 * MIB  # bytes of a value that one function may produce
SQLITE_TRIM_CHARS = 1_000  # different characters to trim


# Refused without a replacement.
ENDLESS: Final = frozenset({"jsonb_patch", "geopoly_overlap", "geopoly_within"})


def replace_endless(connection: apsw.Connection) -> None:
    """Replace the connection's slow functions with ones that take linear time."""
    untyped: Any = connection
    for name, (function, arguments) in _OURS.items():
        untyped.create_scalar_function(name, function, arguments, deterministic=True)


def _instr(text: Any, part: Any) -> int | None:
    if text is None or part is None:
        return None
    if isinstance(text, bytes) and isinstance(part, bytes):
        return text.find(part) + 1
    return _as_text(text).find(_as_text(part)) + 1


def _replace(text: Any, old: Any, new: Any) -> str | None:
    if text is None or old is None or new is None:
        return None
    whole, part, other = _as_text(text), _as_text(old), _as_text(new)
    if not part:
        return whole
    if len(whole) + whole.count(part) * (len(other) - len(part)) > SQLITE_VALUE_BYTES:
        raise ValueError("string or blob too big")
    return whole.replace(part, other)


def _trimming(strip: Callable[[str, str], str]) -> Callable[[Any, Any], str | None]:
    def trim(text: Any, chars: Any) -> str | None:
        if text is None or chars is None:
            return None
        return strip(_as_text(text), "".join(_few(chars)))

    return trim


def _few(chars: Any) -> set[str]:
    characters = set(_as_text(chars))
    if len(characters) > SQLITE_TRIM_CHARS:
        raise ValueError(f"more than {SQLITE_TRIM_CHARS} different characters")
    return characters


def _unhex(text: Any, between: Any) -> bytes | None:
    if text is None or between is None:
        return None
    decoded, ignored = bytearray(), _few(between) - set("0123456789abcdefABCDEF")
    digits = iter(_as_text(text))
    for first in digits:
        if first in ignored:
            continue
        try:
            decoded += bytes.fromhex(first + next(digits, "?"))
        except ValueError:
            return None
    return bytes(decoded)


def _json_patch(target: Any, patch: Any) -> str | None:
    if target is None or patch is None:
        return None
    try:
        merged = _merged(json.loads(_as_text(target)), json.loads(_as_text(patch)))
        return json.dumps(merged, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("malformed JSON: nested too deeply") from None
    except ValueError:
        raise ValueError("malformed JSON") from None


def _merged(target: Any, patch: Any) -> Any:
    """Source: RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = cast("dict[str, Any]", dict(cast("Any", target))) if isinstance(target, dict) else dict[str, Any]()
    for key, value in cast("dict[str, Any]", patch).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_OURS: Final[Mapping[str, tuple[Callable[..., Any], int]]] = {
    "instr": (_instr, 2),
    "replace": (_replace, 3),
    "trim": (_trimming(str.strip), 2),
    "ltrim": (_trimming(str.lstrip), 2),
    "rtrim": (_trimming(str.rstrip), 2),
    "unhex": (_unhex, 2),
    "json_patch": (_json_patch, 2),
}
