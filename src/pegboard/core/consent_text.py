"""Consent text: the question that a person reads before approving a call, with every key and value.

Two different calls never have the same text. Arguments are written as JSON, which has one reading. A value that is too
long is shown as its beginning, end, length and SHA-256, outside of the quotes, so that no string can imitate this form.
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

# characters of the arguments in one question; a call with more is refused, never shown in part
CONSENT_TEXT_CHARS = 8_000
CONSENT_LINE_CHARS = 160  # characters of arguments that are shown in one line
CONSENT_VALUE_CHARS = 400  # characters of a key or value that is shown whole
CONSENT_ENDS_CHARS = 120  # characters shown of the beginning and of the end of a longer value
CONSENT_REASON_CHARS = 300  # characters of the reason for asking

_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Unicode categories: control, format, surrogate, private, unassigned; line and paragraph separators; spaces.
_HIDING = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me"))
# Letters, marks and symbols that are invisible: Default_Ignorable_Code_Point of Unicode, and two blanks.
_BLANKS = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0x13441, 0x13442), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159), (0xE0000, 0xE0FFF),
)  # fmt: skip
# Marks that strike out the preceding character.
_OVERLAYS = ((0x0334, 0x0338), (0x20D0, 0x20F0), (0x1ABE, 0x1ABE))
_MARKS_IN_A_ROW = 2  # the most marks that real languages put on a letter; more would cover the neighbours
_RIGHT_TO_LEFT = frozenset(("R", "AL"))
_BMP = 0xFFFF  # the last character that fits in four hexadecimal digits
_LOOKS_LIKE_JSON = frozenset('"{}[]:<&')
# A client may render the question as Markdown or HTML, which can hide comments, tags and link targets.
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|(?<=\])[(\[:]|!(?=\[)|&(?=#?\w{1,40};)|(?<!^)~|^~(?!/)")
# Only these characters may be shown inside an ASCII word: they are written without spaces and resemble no letter.
_WORD = re.compile(r"\w+")
_GUESTS = (
    "LATIN ", "CJK ", "HIRAGANA LETTER", "KATAKANA LETTER", "KATAKANA-HIRAGANA", "HANGUL SYLLABLE", "THAI CHARACTER",
    "LAO ", "KHMER ", "MICRO SIGN", "SUPERSCRIPT ", "VULGAR FRACTION",
)  # fmt: skip
_FALSE_LATIN = (
    "LATIN LETTER", "LATIN SMALL LETTER ALPHA", "LATIN SMALL LETTER SCRIPT G", "LATIN SMALL LETTER IOTA",
    "LATIN SMALL LETTER TONE",
)  # fmt: skip
# Marks that look like `.`, `/`, `:`, `-`, `@` and `"`, which structure addresses and the text around a value.
_FALSE_MARKS = frozenset(
    "\u2024\u2044\u2215\u29f8\u2571\u1735\ua789\u2236\u02d0\u0589\u05c3\u02ba\u02ee\u2033\u3003\uff02"
    "\ufe52\u2010\u2043\u02d7\u2212\ufe6b\uff20"
)
_SHORTENED = " (SHA-256 "


class QuestionTooLongError(ValueError):
    """The question would be longer than a person can read."""


def consent_text(request: ConsentRequest, *, max_chars: int | None = CONSENT_TEXT_CHARS) -> str:
    """Return the question that asks a person to approve one call.

    It shows every key and value. Invisible characters, and characters that change the order of others, are escaped. A
    long value is shown by its beginning, end, length and SHA-256; `request.arguments` has all of it.

    Raises:
        QuestionTooLongError: it would have more than `max_chars`; nothing is ever left out instead.
    """
    shown = shown_arguments(request.arguments, max_chars=max_chars)
    return f"Allow this call of {shown_name(request.tool)}? {_reason(request.reason)}. Arguments: {shown}"


def too_long(request: ConsentRequest, error: QuestionTooLongError) -> CallError:
    """Return the refusal of a call whose question would be too long to read."""
    text = (
        f"{request.tool!r} was not run: a person must agree first, and the question would be too long to read "
        f"({error}). Make calls with smaller arguments."
    )
    return CallError("consent_required", text)


def shown_arguments(arguments: Mapping[str, JSONValue], *, max_chars: int | None = CONSENT_TEXT_CHARS) -> str:
    """Return arguments in the form that a person sees; see `consent_text`.

    Raises:
        QuestionTooLongError: it would have more than `max_chars`.
    """
    try:
        line = _joined(_value(arguments, None), CONSENT_LINE_CHARS)
    except QuestionTooLongError:
        line = None
    # Right-to-left scripts would reorder their neighbours, so each member gets its own line.
    if line is None or any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in line):
        return _joined(_value(arguments, "\n"), max_chars)
    return line


def is_shortened(text: str) -> bool:
    """Tell whether a text shows a value by its beginning and end only; true in doubt."""
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
    """Yield a value in parts; each member on its own line, unless `indent` is `None`."""
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
        # Host code may pass any value; a value that is not JSON shows its type, outside of the quotes.
        yield f"{shown_name(type(value).__name__)} {_string(str(value))}"


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
    return _string(key) if isinstance(key, str) else f"{shown_name(type(key).__name__)} {_string(str(key))}"


def _number(value: float) -> str:
    digits = json.dumps(value)
    if len(digits) <= CONSENT_VALUE_CHARS:
        return digits
    first, last = digits[:CONSENT_ENDS_CHARS], digits[-CONSENT_ENDS_CHARS:]
    return f"{first} … {last}{_SHORTENED}{sha256(digits.encode()).hexdigest()}, {len(digits):,} digits)"


def _string(text: str, most: int = CONSENT_VALUE_CHARS) -> str:
    """Return a text in quotes with invisible characters escaped; a long one by its ends, length and digest."""
    spelled = _spelled(text[: most + 1])
    if len(text) <= most and len(spelled) <= most:
        return f'"{spelled}"'
    first, last = _first(text), _last(text)
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f'"{first}" … "{last}"{_SHORTENED}{digest}, {len(text):,} characters)'


def _first(text: str) -> str:
    """Return the beginning of a text, escaped."""
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
    """Return a text with quotes, backslashes and misleading characters escaped."""
    if text.isascii() and text.isprintable():
        return _without_markup(text.replace("\\", "\\\\").replace('"', '\\"'))
    false = _false_places(text)
    shown: list[str] = []
    marks = _MARKS_IN_A_ROW  # at the beginning there is no letter that a mark could belong to
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
        # A mark belongs on a letter; after anything else, or after an escape, it would change how that reads.
        marks = 0 if category[0] == "L" else marks + 1 if is_mark and category[0] == "M" else _MARKS_IN_A_ROW
    return _without_markup("".join(shown))


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= _BMP else f"\\U{ord(char):08x}"


def _without_markup(spelled: str) -> str:
    return _MARKUP.sub(lambda match: _code(match.group()), spelled)


def _false_places(text: str) -> frozenset[int]:
    """Return the places of lookalikes: a Cyrillic `р` in an ASCII word, a single `৪`, marks that resemble `/`."""
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
    """Tell whether a digit appears without letters of its script: it may look like another digit, or swap with it."""
    if char.isascii():
        return False
    if unicodedata.category(char) != "Nd" and unicodedata.bidirectional(char) != "AN":
        return char.isalpha() and _script(char) == "MATHEMATICAL"
    script = _script(char)
    return script == "MATHEMATICAL" or (script not in scripts and script != "FULLWIDTH")


def _script(char: str) -> str:
    """Return the first word of a character's name, e.g. ARABIC-INDIC for `ARABIC-INDIC DIGIT FIVE`: its script."""
    return unicodedata.name(char, "").removeprefix("EXTENDED ").partition(" ")[0].partition("-")[0]


def _hides(char: str, category: str) -> bool:
    if char == " ":
        return False
    code = ord(char)
    return category in _HIDING or any(first <= code <= last for first, last in (*_BLANKS, *_OVERLAYS))


def shown_name(name: str) -> str:
    """Return a name in quotes, with characters that hide or resemble others escaped."""
    return repr(name) if name.isascii() and name.isprintable() else _string(name)


def _reason(reason: str) -> str:
    """Return the reason for asking; parts that a hook copied from the call are shown in quotes."""
    is_plain = reason.isascii() and reason.isprintable() and len(reason) <= CONSENT_REASON_CHARS
    return reason if is_plain and not _LOOKS_LIKE_JSON.intersection(reason) else _string(reason, CONSENT_REASON_CHARS)
