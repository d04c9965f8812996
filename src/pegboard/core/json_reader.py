"""JsonReader: the one strict parser for JSON text, so that two readers cannot see different values.

It refuses everything that parsers disagree on: duplicate keys, NaN and Infinity, numbers beyond a double, a byte order
mark, other encodings than UTF-8, lone surrogates, and NUL in requests.
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

JSON_PIECE_BYTES = 64 * KIB  # bytes of text whose keys are counted at once

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_ID = rb'(-?[0-9]{1,15}|"[^"\\\x00-\x1f]{0,100}")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:%b)?"id"\s*:\s*%b\s*,\s*"([a-z]+)"\s*:' % (_VERSION, _ID))
_FIRST_KEY = re.compile(rb'\s*\{\s*(?:%b)?"([a-z]+)"\s*:' % _VERSION)
_ID_LAST = re.compile(rb',\s*(?:%b)?"id"\s*:\s*%b\s*\}\s*$' % (_VERSION, _ID))
_ID_BYTES = 300  # bytes at each end of a message that are searched for its id
_QUOTES = 100_000  # strings in a text; with more it takes too long to separate strings from the rest
_KEY_CHARS = 80  # characters of a key in an error text
_FEW = 32  # brackets of a text that the quick path parses
_MANY = 1_000  # keys of a text that the quick path parses
_SHALLOW = 200  # brackets of a text that orjson can certainly write, which accepts less depth than it reads
_COMPARED_BYTES = 1 << 14  # bytes of a text that is compared with its re-serialised form; longer texts are scanned
_SCALARS = frozenset((str, int, bool, type(None)))
_NO_MORE_FLOATS = _SCALARS | {float}
_WHITE_SPACE = b" \t\r\n"
_NO_BRACES = bytes(set(range(256)) - {*b'"{}'})


def quickly_read(raw: bytes) -> JSON | None:
    """Parse a small object that is certainly strict JSON within every bound; `None` leaves it to the full parser.

    Most messages qualify: few brackets, so they are not deep; few keys without duplicates; no float that may have been
    an integer of more than 64 bits.
    """
    if not _few_brackets(raw, _FEW):
        return None
    try:
        value = orjson.loads(raw)
    except ValueError:
        return None
    written = orjson.dumps(value)
    if written == raw or written.translate(None, b" ") == raw.translate(None, _WHITE_SPACE):
        # If the text equals its re-serialised form, it has no duplicate keys and no rounded numbers. Most texts do.
        # Otherwise, compare both without white space, including that in strings: the number of members is then equal.
        is_plain = raw.count(b":") <= _MANY and b"\\u0000" not in raw
        return value if is_plain and is_object(value) else None
    keys, has_floats = _shape_of(value)
    if keys > _MANY or not _is_unique(raw, keys) or b"\\u0000" in raw or (has_floats and _LONG_NUMBER.search(raw)):
        return None
    return value if is_object(value) else None


def parse_json(text: str | bytes, *, bounds: Bounds = DEFAULT_BOUNDS) -> JSONValue:
    """Parse JSON text from a request, strictly and within the bounds.

    Raises:
        CallError: `invalid_arguments`, with the place where parsing stopped.
    """
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > bounds.request_body_bytes:
        raise _refused(f"the text is longer than {bounds.request_body_bytes} bytes (`limits.request_body_bytes`)")
    # Counted before parsing: parsing a million small keys costs more than refusing them.
    if raw.count(b":") > bounds.json_keys and members_written(raw) > bounds.json_keys:
        raise _refused(f"the text has more than {bounds.json_keys} keys in all (`limits.json_keys`)")
    value = _unique(raw, bounds)
    check_bounds(value, bounds=bounds)
    if b"\\u0000" in raw and any("\0" in item for item in _texts(value)):
        raise _refused("the text has a NUL character (\\u0000)")
    return value


def read_answer(body: bytes, *, bounds: Bounds = DEFAULT_BOUNDS) -> JSONValue:
    """Parse the JSON of a response: strictly, but NUL is allowed, and there is no limit of length.

    Keys and depth are not checked here.

    Raises:
        TooManyValuesError: it has more values, or more lists and objects, than an answer may have.
        ValueError: it is not valid JSON; says what is wrong.
    """
    check_count(body, bounds=bounds)
    return read_counted(body, bounds=bounds)


def read_message(body: bytes, *, bounds: Bounds) -> JSONValue:
    """Parse one message from a server that we asked, like `read_answer`.

    Raises:
        TooManyValuesError: it has more values, or more lists and objects, than a message may have.
        ValueError: it is not valid JSON; says what is wrong.
    """
    check_message_count(body, bounds=bounds)
    return read_counted(body, bounds=bounds)


def read_counted(body: bytes, *, bounds: Bounds) -> JSONValue:
    """Parse a body that has passed `check_count` or `check_message_count`.

    Raises:
        ValueError: it is not valid JSON; says what is wrong.
    """
    try:
        return _unique(body, bounds)
    except CallError as error:
        raise ValueError(fault_of(error)) from None


def check_count(body: bytes, *, bounds: Bounds = DEFAULT_BOUNDS) -> None:
    """Refuse a response that is slow to parse: five megabytes of `[]` would block the event loop for a second.

    Raises:
        TooManyValuesError: it has more values, or more lists and objects, than an answer may have.
    """
    if has_more_values(body, bounds.answer_values):
        raise TooManyValuesError(f"more than {bounds.answer_values} values (`answer_values`)")
    _check_containers(body, bounds)


def check_message_count(body: bytes, *, bounds: Bounds) -> None:
    """Refuse a message that is slow to parse, as `check_count` does for a response.

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
    """A response was not parsed, because it has too many values; the text says how many are allowed."""


def fault_of(error: CallError) -> str:
    """Return the fault in JSON text, without the words about its consequence."""
    return str(error).partition(": ")[2].rstrip(".")


class Envelope(NamedTuple):
    """The addressee of a refused JSON-RPC message: a request with this id, or the answer to it."""

    id: int | str
    is_answer: bool


def envelope_of(refused: bytes) -> Envelope | None:
    """Return the addressee of a refused message, if its beginning or end shows it; otherwise `None`.

    On a stream with many messages, a caller waits for this answer, whatever is wrong with the rest of it.
    """
    first, last = _ID_FIRST.match(refused), _ID_LAST.search(refused[-_ID_BYTES:])
    if first is not None:
        written, beside = first.groups()
    elif last is not None and (key := _FIRST_KEY.match(refused)) is not None:
        written, beside = last[1], key[1]
    else:
        return None
    if not _is_closed(refused):
        # An incomplete message: the rest may still come.
        return None
    try:
        return Envelope(orjson.loads(written), is_answer=beside in (b"result", b"error"))
    except ValueError:
        return None


def _is_closed(raw: bytes) -> bool:
    """Tell whether the braces of a text are balanced, so that the last one closes the first."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    # Two adjacent quotes end one string and begin the next, or enclose an empty one; text outside strings is kept.
    plain = plain.translate(None, _NO_BRACES).replace(b'""', b"")
    if plain.count(b'"') > _QUOTES:
        return False
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b"{") == outside.count(b"}")


def members_written(raw: bytes) -> int:
    """Count the members of all objects in a JSON text, including duplicates.

    Exact for valid JSON: without escapes each `"` begins or ends a string, and each colon outside strings belongs to a
    member.
    """
    return sum(outside.count(b":") for outside in _outside_of_texts(raw))


def has_more_values(raw: bytes, most: int) -> bool:
    """Tell whether a JSON text has more values than `most`, including objects and lists.

    Does not parse the text: millions of small values take seconds to parse.
    """
    return _has_more(raw, most - 1, _values_begun)


def _has_more(raw: bytes, most: int, begun: Callable[[bytes], int]) -> bool:
    """Tell whether more than `most` values begin in a JSON text outside of its strings."""
    if len(raw) <= most or begun(raw) <= most:
        return False
    # Stops as soon as there are too many: a text of nothing but quotes takes long to scan.
    return any(count > most for count in accumulate(map(begun, _outside_of_texts(raw))))


def _values_begun(part: bytes) -> int:
    # Each value follows a comma, or is the first in a list or object that is not empty, or is the whole text.
    return part.count(b",") + _containers_begun(part) - part.count(b"[]") - part.count(b"{}")


def _containers_begun(part: bytes) -> int:
    return part.count(b"[") + part.count(b"{")


def _outside_of_texts(raw: bytes) -> Iterator[bytes]:
    """Yield the parts of a JSON text outside its strings, in pieces; one `"` stands for each string."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    # 0 if a piece begins outside a string, 1 if inside.
    first = 0
    for at in range(0, len(plain), JSON_PIECE_BYTES):
        parts = plain[at : at + JSON_PIECE_BYTES].split(b'"')
        yield b'"'.join(parts[first::2])
        first ^= (len(parts) - 1) & 1


# ---------------------------------------------------------------- parsing


def _unique(raw: bytes, bounds: Bounds) -> JSONValue:
    """Return the value of a text without duplicate keys."""
    try:
        value = orjson.loads(raw)
    except ValueError as error:
        # orjson treats an integer of 309 digits as out of range.
        if _LONG_NUMBER.search(raw):
            return _exactly(raw, bounds)
        raise _refused(f"the text is not JSON, or nested too deep: {_first_line(error)}") from None
    if len(raw) <= _COMPARED_BYTES and _few_brackets(raw, _SHALLOW) and orjson.dumps(value) == raw:
        # As in `quickly_read`. Most programs write this way; a long text is not serialised to compare it.
        return value
    keys, has_floats = _shape_of(value)
    if has_floats and _LONG_NUMBER.search(raw):
        # orjson turns integers of more than 64 bits into floats.
        return _exactly(raw, bounds)
    if _is_unique(raw, keys):
        return value
    # Python's parser names the key, if the text is not too deep for it.
    fault = "a key occurs twice in one object"
    try:
        json.loads(raw, object_pairs_hook=_unique_keys)
    except RecursionError:
        pass
    except ValueError as error:
        fault = _first_line(error)
    raise _refused(fault)


def _exactly(raw: bytes, bounds: Bounds) -> JSONValue:
    """Parse with Python's own parser, which keeps every digit; what it accepts beyond JSON is refused here."""
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
        raise _refused(f"the text is nested more than {bounds.json_depth} levels deep (`limits.json_depth`)") from None
    except UnicodeError as error:
        raise _refused(f"the text is not UTF-8: {_first_line(error)}") from None
    except ValueError as error:
        raise _refused(_first_line(error)) from None


def _few_brackets(raw: bytes, most: int) -> bool:
    return raw.count(b"{") + raw.count(b"[") <= most


def _is_unique(raw: bytes, keys: int) -> bool:
    """Tell whether a JSON text has as many members as its value has keys; a duplicate key is stored only once.

    Each member has a colon, and most messages have no other colons.
    """
    return keys == raw.count(b":") or keys == members_written(raw)


def _unique_keys(pairs: list[tuple[str, JSONValue]]) -> JSON:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:_KEY_CHARS]!r} occurs twice in one object")
    return found


def _no_number(name: str) -> JSONValue:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:_KEY_CHARS]} is larger than a number may be")
    return value


def _integer(digits: str, bounds: Bounds) -> int:
    if len(digits.lstrip("-")) > bounds.integer_digits:
        raise ValueError(f"an integer has more than {bounds.integer_digits} digits (`limits.integer_digits`)")
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
    """Yield every string of a value, including keys."""
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
