"""JSON texts: well-formed ones in every spelling, broken ones, and a reference reader that keeps every pair."""

from __future__ import annotations

import json
import math
import random
from typing import Any

MARKS = ["a", "b", "z\\", '"', ":", '":', "é", "\u2028", "😀", "", " ", "\t", "{", "}", "[", "a\\u0061", "u003a", "ä:"]
NUMBERS = [
    "0", "-0", "1", "-17", "1.5", "1e3", "1E-2", "9223372036854775807", "18446744073709551616", "-9223372036854775809",
    "0.1234567890123456789012", "12345678901234567890.5", "1e19", "1" * 40,
]  # fmt: skip
SPACES = ["", "", "", " ", "\n", "\t", "\r", " \r\n\t "]
ODD = ["NaN", "Infinity", "-Infinity", "1e400", "01", "+1", ".5", "1.", "'a'", "undefined", '"\\x41"', '"\\u00"', "1,"]

# What was found by hand or by an earlier run. Each once got past a reader, or looks as if it might.
CORPUS: list[bytes] = [
    b'{"a":1,"a":2}',
    b'{"a" :1,"a":2}',
    b'{"a"\n:1,"a"\t:2}',
    b'{"a":1,"a":2,"z\\\\":3}',
    b'{"z\\\\":3,"a":1,"a":2}',
    b'{"a":"\\\\","a":"\\\\"}',
    b'{"a":"x\\"","a":1}',
    b'{"a":1,"\\u0061":2}',
    b'{"\\u0061":1,"a":2,"t":":"}',
    b'{"a":1,"\\u0061":2,"t":"\\u003a"}',
    b'{"a":1,"a":2,"t":"\\u003A"}',
    b'{"":1,"":2}',
    b'{"o":{"a":1,"a":2}}',
    b'{"o":[{"b":1},{"a":1,"a" : 2}]}',
    b'{"o":[[[{"a":{"c":1,"c":1}}]]]}',
    b'{"n":12345678901234567890,"a":1,"a":2}',
    b'{"n":1.5,"t":"1234567890123456789","a":1,"a":2}',
    b'{"a:":1,"a":2}',
    b'{"a":"b:c:d\\":"}',
    b'{"a":"\\\\\\\\\\":\\\\"}',
    b'{"\\"":1,"\\"":2}',
    b'{"\\ud83d\\ude00":1,"\xf0\x9f\x98\x80":2}',
    b'{"a":"\\u0000"}',
    b'{"\\u0000":1}',
    b'{"a":"\\\\u0000"}',
    b'{"a":"\\ud800"}',
    b'{"a":"\\udc00\\ud800","n":12345678901234567890}',
    b'{"\\ud800":1}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\xff"}',
    b'{"a":"\xc0\xaf"}',
    b"\xef\xbb\xbf{}",
    b'\xef\xbb\xbf{"n":12345678901234567890}',
    '{"a":1}'.encode("utf-16"),
    '{"n":12345678901234567890}'.encode("utf-16"),
    '{"n":12345678901234567890}'.encode("utf-32"),
    b'{"a":NaN}',
    b'{"a":-Infinity,"n":12345678901234567890}',
    b'{"a":1e400}',
    b'{"a":1e400,"n":12345678901234567890}',
    b'{"a":' + b"9" * 1000 + b"}",
    b'{"a":' + b"9" * 1001 + b"}",
    b'{"a":' + b"[" * 62 + b"]" * 62 + b"}",
    b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"a":' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}",
    b'{"a":1,"a":' + b"[" * 1000 + b"]" * 1000 + b"}",
    b'{"a":"\xff","n":12345678901234567890}',
    b'{"a":1}{"a":2}',
    b'{"a":1,}',
    b'{"a":1\x00}',
    b'{"a":"\n"}',
    b"{}\x00",
    b"",
]


def random_text(rng: random.Random) -> bytes:
    """Return the text of an object, now and then broken."""
    text = _object(rng, 0).encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        at = rng.randrange(len(text) + 1)
        junk = rng.choice(
            [b'"', b":", b"\\", b"\x00", b"\xff", b",", b"{", b"}", b"\xed\xa0\x80", b"0", b"\xef\xbb\xbf"]
        )
        text = text[:at] + junk + text[at + rng.randrange(2) :]
    return text


def _object(rng: random.Random, depth: int) -> str:
    few = rng.choice([MARKS, MARKS[:3], ["a"], [chr(97 + n) for n in range(26)]])
    pairs = [
        f"{_space(rng)}{_text(rng, rng.choice(few))}{_space(rng)}:{_space(rng)}{_value(rng, depth)}{_space(rng)}"
        for _ in range(rng.randrange(4 if depth else 6))
    ]
    return "{" + (",".join(pairs) or _space(rng)) + "}"


def _value(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind < 2:
        return _text(rng, "".join(rng.choices(MARKS, k=rng.randrange(4))))
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice(["true", "false", "null"]) if rng.random() < 0.97 else rng.choice(ODD)
    if kind == 5:
        return "[" + ",".join(_value(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    return _object(rng, depth + 1)


def _text(rng: random.Random, text: str) -> str:
    """Return a text with each character written as it is, or as an escape."""
    parts: list[str] = []
    for char in text:
        if rng.random() < 0.12:
            units = char.encode("utf-16-be")
            codes = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
            parts += [f"\\u{code.upper() if rng.random() < 0.5 else code}" for code in codes]
        else:
            parts.append(json.dumps(char, ensure_ascii=False)[1:-1])
    if rng.random() < 0.01:
        parts.append(rng.choice(["\\u0000", "\\ud800", "\\udfff", "\\/"]))
    return '"' + "".join(parts) + '"'


def _space(rng: random.Random) -> str:
    return rng.choice(SPACES)


class Refused(ValueError):
    """The reference reader refuses a text."""


def reference(raw: bytes, *, takes_nul: bool = False) -> Any:
    """Return what a text says, read slowly: every pair of every object is kept, and looked at.

    Raises:
        Refused: no two readers would have to agree on it.
    """
    try:
        value = json.loads(
            raw.decode("utf-8", "strict"), object_pairs_hook=_checked_pairs, parse_constant=_refuse, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise Refused(str(error)) from None
    _look(value, takes_nul, 1)
    return value


def _checked_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for at, (key, _) in enumerate(pairs):
        if any(key == other for other, _ in pairs[:at]):
            raise Refused(f"{key!r} is there twice")
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise Refused(name)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Refused(digits)
    return value


def _look(value: Any, takes_nul: bool, depth: int) -> None:
    if isinstance(value, str):
        if any(0xD800 <= ord(char) <= 0xDFFF for char in value) or ("\0" in value and not takes_nul):
            raise Refused(ascii(value))
    elif isinstance(value, int):
        if len(str(abs(value))) > 1000:
            raise Refused("long integer")
    elif isinstance(value, dict | list):
        if depth > 64:
            raise Refused("deep")
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            _look(inner, takes_nul, depth + 1)


def seen(value: Any) -> str:
    """Return a value for comparison, in which 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)
