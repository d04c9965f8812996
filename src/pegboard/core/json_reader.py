"""JsonReader: read JSON text in one way, whoever sent it, so that no two readers of it see different values.

What readers differ in is refused: a key that stands twice in one object, NaN and Infinity, numbers beyond a double, a
byte order mark, other encodings than UTF-8, halves of characters, and in what comes in also NUL.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

import orjson

from pegboard.core.schema import check_bounds, refused_arguments
from pegboard.model.bounds import DEFAULT_BOUNDS, KIB, Bounds
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

JSON_PIECE_BYTES = 64 * KIB  # of a text whose keys are counted, at once

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_ID = rb'(-?[0-9]{1,15}|"[^"\\\x00-\x1f]{0,100}")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:%b)?"id"\s*:\s*%b\s*,\s*"([a-z]+)"\s*:' % (_VERSION, _ID))
_FIRST_KEY = re.compile(rb'\s*\{\s*(?:%b)?"([a-z]+)"\s*:' % _VERSION)
_ID_LAST = re.compile(rb',\s*(?:%b)?"id"\s*:\s*%b\s*\}\s*$' % (_VERSION, _ID))
_ID_BYTES = 300  # in so many at its end a message has its id
_QUOTES = 100_000  # of a text with more it takes too long to tell what stands outside of them
_KEY_CHARS = 80  # how much of a key is shown
_FEW = 32  # what has more brackets is left to the careful reader
_MANY = 1_000  # what has more keys is left to it too
_SHALLOW = 200  # what has no more brackets is not too deep for orjson to write, which reads deeper
_COMPARED_BYTES = 1 << 14  # a longer text is looked through, not written again
_SCALARS = frozenset((str, int, bool, type(None)))
_NO_MORE_FLOATS = _SCALARS | {float}
_WHITE_SPACE = b" \t\r\n"
_NO_BRACES = bytes(set(range(256)) - {*b'"{}'})


def quickly_read(raw: bytes) -> JSON | None:
    """Return a small object that certainly is strict JSON within every bound; `None` leaves it to the careful reader.

    Most messages are such: few brackets, so they are not deep; not many keys, and none of them twice; no float that may
    have been an integer of more than 64 bits.
    """
    if not _few_brackets(raw, _FEW):
        return None
    try:
        value = orjson.loads(raw)
    except ValueError:
        return None
    written = orjson.dumps(value)
    if written == raw or written.translate(None, b" ") == raw.translate(None, _WHITE_SPACE):
        # It is what writing it gives, so nothing in it stands twice or is a float that was none. Most is written so.
        # Without white space, that inside of texts included, as many members are left of either.
        is_plain = raw.count(b":") <= _MANY and b"\\u0000" not in raw
        return value if is_plain and is_object(value) else None
    keys, has_floats = _shape_of(value)
    if keys > _MANY or not _is_unique(raw, keys) or b"\\u0000" in raw or (has_floats and _LONG_NUMBER.search(raw)):
        return None
    return value if is_object(value) else None


def parse_json(text: str | bytes, *, bounds: Bounds = DEFAULT_BOUNDS) -> JSONValue:
    """Read JSON text that somebody sends us, strictly and within the bounds.

    Raises:
        CallError: `invalid_arguments`, saying where reading stopped.
    """
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > bounds.request_body_bytes:
        raise _refused(f"the text is longer than {bounds.request_body_bytes} bytes")
    # Counted before reading: a million small keys cost more to read than to refuse.
    if raw.count(b":") > bounds.json_keys and members_written(raw) > bounds.json_keys:
        raise _refused(f"they have more than {bounds.json_keys} keys in all")
    value = _unique(raw, bounds)
    check_bounds(value, bounds=bounds)
    if b"\\u0000" in raw and any("\0" in item for item in _texts(value)):
        raise _refused("they have a NUL character")
    return value


def read_answer(body: bytes, *, bounds: Bounds = DEFAULT_BOUNDS) -> JSONValue:
    """Read the JSON that somebody answered us: as strictly, but with NUL in its texts, and as long as it came.

    What it has of keys and levels is not judged here.

    Raises:
        TooManyValuesError: it has more values, or more lists and objects, than an answer may have.
        ValueError: it is no such JSON, with what is wrong.
    """
    check_count(body, bounds=bounds)
    return read_counted(body, bounds=bounds)


def read_message(body: bytes, *, bounds: Bounds) -> JSONValue:
    """Read what a server that we asked sent as one message, as `read_answer` does.

    Raises:
        TooManyValuesError: it has more values, or more lists and objects, than a message may have.
        ValueError: it is no such JSON, with what is wrong.
    """
    check_message_count(body, bounds=bounds)
    return read_counted(body, bounds=bounds)


def read_counted(body: bytes, *, bounds: Bounds) -> JSONValue:
    """Read what `check_count` or `check_message_count` has let through.

    Raises:
        ValueError: it is no such JSON, with what is wrong.
    """
    try:
        return _unique(body, bounds)
    except CallError as error:
        raise ValueError(fault_of(error)) from None


def check_count(body: bytes, *, bounds: Bounds = DEFAULT_BOUNDS) -> None:
    """Refuse an answer that takes long to read: five megabytes of `[]` are a second in which nobody else is served.

    Raises:
        TooManyValuesError: it has more values, or more lists and objects, than an answer may have.
    """
    if has_more_values(body, bounds.answer_values):
        raise TooManyValuesError(f"more than {bounds.answer_values} values (`answer_values`)")
    _check_containers(body, bounds)


def check_message_count(body: bytes, *, bounds: Bounds) -> None:
    """Refuse a message that takes long to read, as `check_count` does an answer.

    Raises:
        TooManyValuesError: it has more values, or more lists and objects, than a message may have.
    """
    if has_more_values(body, bounds.json_values):
        raise TooManyValuesError(f"more than {bounds.json_values} values (`json_values`)")
    _check_containers(body, bounds)


def _check_containers(body: bytes, bounds: Bounds) -> None:
    if _has_more(body, bounds.answer_containers, _containers_begun):
        raise TooManyValuesError(f"more than {bounds.answer_containers} lists and objects (`answer_containers`)")


class TooManyValuesError(ValueError):
    """An answer was not read, as that would take too long; says how many of what an answer may have."""


def fault_of(error: CallError) -> str:
    """Return what was wrong with JSON text, without the words that say what became of it."""
    return str(error).partition(": ")[2].rstrip(".")


class Envelope(NamedTuple):
    """Whose a message of JSON-RPC is that cannot be taken: a request of this id, or the answer to it."""

    id: int | str
    is_answer: bool


def envelope_of(refused: bytes) -> Envelope | None:
    """Return whose a refused message is, where its first or last words say it; `None` for all others.

    On a stream of many messages somebody waits for the answer to this one, whatever is wrong with the rest of it.
    """
    first, last = _ID_FIRST.match(refused), _ID_LAST.search(refused[-_ID_BYTES:])
    if first is not None:
        written, beside = first.groups()
    elif last is not None and (key := _FIRST_KEY.match(refused)) is not None:
        written, beside = last[1], key[1]
    else:
        return None
    if not _is_closed(refused):
        # A part of a message is none: the whole of it may come yet.
        return None
    try:
        return Envelope(orjson.loads(written), is_answer=beside in (b"result", b"error"))
    except ValueError:
        return None


def _is_closed(raw: bytes) -> bool:
    """Tell whether every brace of a text has its other one, so that its last belongs to its first."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    # Two quotes in a row begin and end a text, or end one and begin the next: what is outside of texts stays so.
    plain = plain.translate(None, _NO_BRACES).replace(b'""', b"")
    if plain.count(b'"') > _QUOTES:
        return False
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b"{") == outside.count(b"}")


def members_written(raw: bytes) -> int:
    """Count the members of all objects in a JSON text, those included that an object has twice.

    Exact for what is JSON: after the escapes are gone each `"` begins or ends a text, and the colons outside of texts
    are those of members.
    """
    return sum(outside.count(b":") for outside in _outside_of_texts(raw))


def has_more_values(raw: bytes, most: int) -> bool:
    """Tell whether a JSON text has more values than so many, objects and lists included.

    Without reading it: millions of small values are megabytes, and seconds of work.
    """
    return _has_more(raw, most - 1, _values_begun)


def _has_more(raw: bytes, most: int, begun: Callable[[bytes], int]) -> bool:
    """Tell whether more than so many begin in a JSON text; texts inside of it do not count."""
    if len(raw) <= most or begun(raw) <= most:
        return False
    # Told as soon as there are too many: a text that is all quotes takes long to look through.
    return any(count > most for count in accumulate(map(begun, _outside_of_texts(raw))))


def _values_begun(part: bytes) -> int:
    # Each value but the first of all comes after a comma, or first in an object or a list that is not empty.
    return part.count(b",") + _containers_begun(part) - part.count(b"[]") - part.count(b"{}")


def _containers_begun(part: bytes) -> int:
    return part.count(b"[") + part.count(b"{")


def _outside_of_texts(raw: bytes) -> Iterator[bytes]:
    """Yield what of a JSON text stands outside of its texts, in pieces; a `"` stands for each text."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    # The first part of a piece is outside of a text, or (1) inside.
    first = 0
    for at in range(0, len(plain), JSON_PIECE_BYTES):
        parts = plain[at : at + JSON_PIECE_BYTES].split(b'"')
        yield b'"'.join(parts[first::2])
        first ^= (len(parts) - 1) & 1


# ---------------------------------------------------------------- the reading


def _unique(raw: bytes, bounds: Bounds) -> JSONValue:
    """Return the value of a text in which no key stands twice."""
    try:
        value = orjson.loads(raw)
    except ValueError as error:
        # It takes an integer of 309 digits for a number beyond all bounds.
        if _LONG_NUMBER.search(raw):
            return _exactly(raw, bounds)
        raise _refused(f"they are no JSON, or nested too deep: {_first_line(error)}") from None
    if len(raw) <= _COMPARED_BYTES and _few_brackets(raw, _SHALLOW) and orjson.dumps(value) == raw:
        # As in `quickly_read`. Most programs write so; a long text would be written for nothing where one does not.
        return value
    keys, has_floats = _shape_of(value)
    if has_floats and _LONG_NUMBER.search(raw):
        # It makes floats of integers of more than 64 bits.
        return _exactly(raw, bounds)
    if _is_unique(raw, keys):
        return value
    # Python's reader says which key it is, where the text is not too deep for it.
    fault = "a key stands twice in one object"
    try:
        json.loads(raw, object_pairs_hook=_unique_keys)
    except RecursionError:
        pass
    except ValueError as error:
        fault = _first_line(error)
    raise _refused(fault)


def _exactly(raw: bytes, bounds: Bounds) -> JSONValue:
    """Read with Python's own reader, which keeps every digit and takes more than is JSON: that is refused here."""
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_int=lambda digits: _integer(digits, bounds),
            parse_float=_finite,
            parse_constant=_no_number,
        )
        if b"\\u" in raw:
            for text in _texts(value):
                text.encode()
        return value
    except RecursionError:
        raise _refused(f"they are nested more than {bounds.json_depth} levels deep") from None
    except UnicodeError as error:
        raise _refused(f"they are no UTF-8: {_first_line(error)}") from None
    except ValueError as error:
        raise _refused(_first_line(error)) from None


def _few_brackets(raw: bytes, most: int) -> bool:
    return raw.count(b"{") + raw.count(b"[") <= most


def _is_unique(raw: bytes, keys: int) -> bool:
    """Tell whether a JSON text has as many members as its value has keys: a key that stands twice is one key there.

    Each member has a colon, and in most messages nothing else has one.
    """
    return keys == raw.count(b":") or keys == members_written(raw)


def _unique_keys(pairs: list[tuple[str, JSONValue]]) -> JSON:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:_KEY_CHARS]!r} stands twice in one object")
    return found


def _no_number(name: str) -> JSONValue:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:_KEY_CHARS]} is larger than a number may be")
    return value


def _integer(digits: str, bounds: Bounds) -> int:
    if len(digits.lstrip("-")) > bounds.integer_digits:
        raise ValueError(f"an integer has more than {bounds.integer_digits} digits")
    return int(digits)


def _shape_of(value: JSONValue) -> tuple[int, bool]:
    """Return the number of keys in all objects, and whether there are floats."""
    keys, has_floats, waiting, passed = 0, False, [value], _SCALARS
    while waiting:
        item = waiting.pop()
        kind = type(item)  # pyright: ignore[reportUnknownVariableType] - any JSON
        if kind is dict:
            keys += len(item)
            waiting += [inner for inner in item.values() if type(inner) not in passed]
        elif kind is list:
            waiting += [inner for inner in item if type(inner) not in passed]
        elif kind is float:
            has_floats, passed = True, _NO_MORE_FLOATS
    return keys, has_floats


def _texts(value: JSONValue) -> Iterator[str]:
    """Yield every text of a value, keys as well."""
    waiting: list[JSONValue] = [value]
    while waiting:
        item = waiting.pop()
        if is_object(item):
            yield from item
            waiting += item.values()
        elif is_list(item):
            waiting += item
        elif isinstance(item, str):
            yield item


def _refused(what: str) -> CallError:
    return refused_arguments(f"The arguments were refused unread: {what}.", "bounds", value="(not read)")


def _first_line(error: object) -> str:
    return (str(error).splitlines() or [""])[0][:300]
