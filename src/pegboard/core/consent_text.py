"""Consent text: what a person reads before saying yes: every key and every value, and nothing that hides.

Two different calls never have the same text. Arguments are written as JSON, which can be read in one way only; what is
too long to read stands as its beginning, its end, its length and its SHA-256, outside of the quotes, where JSON has no
place for a string's own words.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import cast

from pegboard.model.consent import ConsentRequest
from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue

CONSENT_TEXT_CHARS = 8_000  # of the arguments in one question; a call with more is refused, never shown in part
CONSENT_LINE_CHARS = 160  # of arguments that stand in one line
CONSENT_VALUE_CHARS = 400  # of one key or value that is shown whole
CONSENT_ENDS_CHARS = 120  # and of the beginning and the end of a longer one
CONSENT_REASON_CHARS = 300  # of why a person is asked

_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Control, format, surrogate, private, unassigned; separators of lines and paragraphs, all spaces but the plain one.
_HIDING = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me"))
# Letters, marks and symbols that show nothing: Default_Ignorable_Code_Point of Unicode, and two blanks.
_BLANKS = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0x13441, 0x13442), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159), (0xE0000, 0xE0FFF),
)  # fmt: skip
# Marks that strike out what stands before them.
_OVERLAYS = ((0x0334, 0x0338), (0x20D0, 0x20F0), (0x1ABE, 0x1ABE))
_MARKS_IN_A_ROW = 2  # as many as languages put on a letter; more cover their neighbours
_RIGHT_TO_LEFT = frozenset(("R", "AL"))
_BMP = 0xFFFF  # the last character that four hexadecimal digits can spell
_LOOKS_LIKE_JSON = frozenset('"{}[]:<&')
# A client may show the question as Markdown or HTML, which hide comments, tags and where a link leads, and strike out.
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|(?<=\])[(\[:]|!(?=\[)|&(?=#?\w{1,40};)|(?<!^)~|^~(?!/)")
# Within a word of ASCII only these are shown: what is written beside it without a space and passes for none of it.
_WORD = re.compile(r"\w+")
_GUESTS = (
    "LATIN ", "CJK ", "HIRAGANA LETTER", "KATAKANA LETTER", "KATAKANA-HIRAGANA", "HANGUL SYLLABLE", "THAI CHARACTER",
    "LAO ", "KHMER ", "MICRO SIGN", "SUPERSCRIPT ", "VULGAR FRACTION",
)  # fmt: skip
_FALSE_LATIN = (
    "LATIN LETTER", "LATIN SMALL LETTER ALPHA", "LATIN SMALL LETTER SCRIPT G", "LATIN SMALL LETTER IOTA",
    "LATIN SMALL LETTER TONE",
)  # fmt: skip
# Marks that pass for `.`, `/`, `:`, `-`, `@` and `"`: of an address, and of the text around a value.
_FALSE_MARKS = frozenset(
    "\u2024\u2044\u2215\u29f8\u2571\u1735\ua789\u2236\u02d0\u0589\u05c3\u02ba\u02ee\u2033\u3003\uff02"
    "\ufe52\u2010\u2043\u02d7\u2212\ufe6b\uff20"
)
_SHORTENED = " (SHA-256 "


class QuestionTooLongError(ValueError):
    """The question would be longer than a person reads."""


def consent_text(request: ConsentRequest, *, max_chars: int | None = CONSENT_TEXT_CHARS) -> str:
    """Return the question for a yes to one concrete call.

    Every key and every value stands in it. Characters that are not seen, or that move others, are spelled out; a long
    value is shown by its beginning, its end, its length and its SHA-256, and stands whole in `request.arguments`.

    Raises:
        QuestionTooLongError: it would have more than `max_chars`; nothing is ever left out instead.
    """
    shown = shown_arguments(request.arguments, max_chars=max_chars)
    return f"Allow this call of {_plain(request.tool)}? {_reason(request.reason)}. Arguments: {shown}"


def too_long(request: ConsentRequest, error: QuestionTooLongError) -> CallError:
    """Return the refusal of a call about which nobody could be asked in a text that is read."""
    text = (
        f"{request.tool!r} was not run: a person must agree first, and the question would be too long to read "
        f"({error}). Make calls with smaller arguments."
    )
    return CallError("consent_required", text)


def shown_arguments(arguments: Mapping[str, JSONValue], *, max_chars: int | None = CONSENT_TEXT_CHARS) -> str:
    """Return arguments as a person is shown them; see `consent_text`.

    Raises:
        QuestionTooLongError: it would have more than `max_chars`.
    """
    try:
        line = _joined(_value(arguments, None), CONSENT_LINE_CHARS)
    except QuestionTooLongError:
        line = None
    # Scripts that are written from right to left would move their neighbours: there each member has its own line.
    if line is None or any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in line):
        return _joined(_value(arguments, "\n"), max_chars)
    return line


def is_shortened(text: str) -> bool:
    """Tell whether a text shows a value by its beginning and end only; in doubt it does."""
    return _SHORTENED in text


def _joined(parts: Iterator[str], max_chars: int | None) -> str:
    read: list[str] = []
    left = max_chars
    for part in parts:
        read.append(part)
        if left is not None:
            left -= len(part)
            if left < 0:
                raise QuestionTooLongError(f"it would have more than {max_chars:,} characters")
    return "".join(read)


def _value(value: object, indent: str | None) -> Iterator[str]:
    """Yield a value in parts; each member on a line of its own, unless `indent` is `None`."""
    if isinstance(value, str):
        yield _string(value)
    elif value is None or isinstance(value, bool):
        yield json.dumps(value)
    elif isinstance(value, int | float):
        yield _number(value)
    elif isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        yield from _members("{}", ((f"{_key(key)}: ", member) for key, member in members.items()), indent)
    elif isinstance(value, list | tuple):
        yield from _members("[]", (("", item) for item in cast("Sequence[object]", value)), indent)
    else:
        # Host code may give anything; what is no JSON names its type, outside of the quotes.
        yield f"{_plain(type(value).__name__)} {_string(str(value))}"


def _members(brackets: str, members: Iterator[tuple[str, object]], indent: str | None) -> Iterator[str]:
    inner = None if indent is None else indent + "  "
    between = brackets[0] + (inner or "")
    for key, value in members:
        yield between + key
        yield from _value(value, inner)
        between = ", " if inner is None else "," + inner
    is_empty = between[0] == brackets[0]
    yield brackets if is_empty else (indent or "") + brackets[1]


def _key(key: object) -> str:
    return _string(key) if isinstance(key, str) else f"{_plain(type(key).__name__)} {_string(str(key))}"


def _number(value: float) -> str:
    digits = json.dumps(value)
    if len(digits) <= CONSENT_VALUE_CHARS:
        return digits
    first, last = digits[:CONSENT_ENDS_CHARS], digits[-CONSENT_ENDS_CHARS:]
    return f"{first} … {last}{_SHORTENED}{sha256(digits.encode()).hexdigest()}, {len(digits):,} digits)"


def _string(text: str, most: int = CONSENT_VALUE_CHARS) -> str:
    """Return a text in quotes, with what is not seen spelled out; a long one by its ends, length and digest."""
    spelled = _spelled(text[: most + 1])
    if len(text) <= most and len(spelled) <= most:
        return f'"{spelled}"'
    first, last = _first(text), _last(text)
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f'"{first}" … "{last}"{_SHORTENED}{digest}, {len(text):,} characters)'


def _first(text: str) -> str:
    """Return the beginning of a text, spelled out."""
    head = text[:CONSENT_ENDS_CHARS]
    while len(spelled := _spelled(head)) > CONSENT_ENDS_CHARS:
        head = head[:-1]
    return spelled


def _last(text: str) -> str:
    tail = text[-CONSENT_ENDS_CHARS:]
    while len(spelled := _spelled(tail)) > CONSENT_ENDS_CHARS:
        tail = tail[1:]
    return spelled


def _spelled(text: str) -> str:
    """Return a text with quotes, backslashes and every character that hides or moves something as an escape."""
    if text.isascii() and text.isprintable():
        return _without_markup(text.replace("\\", "\\\\").replace('"', '\\"'))
    false = _false_places(text)
    shown: list[str] = []
    marks = _MARKS_IN_A_ROW  # at the beginning there is no letter to stand on
    for place, char in enumerate(text):
        category = unicodedata.category(char)
        is_mark = category[0] == "M"
        if char in _SHORT_ESCAPES:
            shown.append(_SHORT_ESCAPES[char])
        elif place in false or _hides(char, category) or (is_mark and marks >= _MARKS_IN_A_ROW):
            shown.append(_code(char))
            category = "Cf"
        else:
            shown.append(char)
        # A mark belongs on a letter: on anything else, and on what was spelled out, it would change how that reads.
        marks = 0 if category[0] == "L" else marks + 1 if is_mark and category[0] == "M" else _MARKS_IN_A_ROW
    return _without_markup("".join(shown))


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= _BMP else f"\\U{ord(char):08x}"


def _without_markup(spelled: str) -> str:
    return _MARKUP.sub(lambda match: _code(match.group()), spelled)


def _false_places(text: str) -> frozenset[int]:
    """Return where stands what passes for another: `р` of Cyrillic in a word of ASCII, `৪` alone, marks like `/`."""
    scripts = {_script(char) for char in text if not char.isascii() and char.isalpha()}
    places = {place for place, char in enumerate(text) if char in _FALSE_MARKS or _is_stray(char, scripts)}
    for word in _WORD.finditer(text):
        letters = word.group()
        if letters.isascii() or not any(char.isascii() for char in letters):
            continue
        places |= {word.start() + place for place, char in enumerate(letters) if not _is_guest(char)}
    return frozenset(places)


def _is_guest(char: str) -> bool:
    name = unicodedata.name(char, "")
    return char.isascii() or (name.startswith(_GUESTS) and not name.startswith(_FALSE_LATIN))


def _is_stray(char: str, scripts: set[str]) -> bool:
    """Tell whether a digit stands where no letter of its script does: it looks like another digit, or swaps with it."""
    if char.isascii():
        return False
    if unicodedata.category(char) != "Nd" and unicodedata.bidirectional(char) != "AN":
        return char.isalpha() and _script(char) == "MATHEMATICAL"
    script = _script(char)
    return script == "MATHEMATICAL" or (script not in scripts and script != "FULLWIDTH")


def _script(char: str) -> str:
    """Return the script that a character's name begins with; that of `ARABIC-INDIC DIGIT FIVE` is Arabic."""
    return unicodedata.name(char, "").removeprefix("EXTENDED ").partition(" ")[0].partition("-")[0]


def _hides(char: str, category: str) -> bool:
    if char == " ":
        return False
    code = ord(char)
    return category in _HIDING or any(first <= code <= last for first, last in (*_BLANKS, *_OVERLAYS))


def _plain(name: str) -> str:
    return repr(name) if name.isascii() and name.isprintable() else _string(name)


def _reason(reason: str) -> str:
    """Return why a person is asked; a hook may have written words of the call into it, which then stand in quotes."""
    is_plain = reason.isascii() and reason.isprintable() and len(reason) <= CONSENT_REASON_CHARS
    return reason if is_plain and not _LOOKS_LIKE_JSON.intersection(reason) else _string(reason, CONSENT_REASON_CHARS)
