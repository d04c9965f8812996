"""Own metadata: keys and values that people give to documents, to filter searches by them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue

METADATA_KEYS = 20  # keys of one document
METADATA_KEY_CHARS = 64  # characters of a key
METADATA_VALUE_CHARS = 200  # characters of a value

RESERVED = frozenset({
    "title", "author", "created", "modified", "language", "headings", "pages", "encoding", "encoding_from", "url",
    "date", "lang", "parser", "ocr",
})  # fmt: skip
"""The keys that parsers fill."""
_KEY = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{METADATA_KEY_CHARS - 1}}}")


def checked_metadata(metadata: Mapping[str, object]) -> dict[str, str]:
    """Return valid metadata with its values as texts.

    Raises:
        CallError: invalid_arguments; a key or value is not allowed, or there are too many.
    """
    if len(metadata) > METADATA_KEYS:
        raise _refused(f"{len(metadata)} keys of metadata are too many; at most {METADATA_KEYS} are stored.")
    return {_checked_key(key): _checked_value(key, value) for key, value in metadata.items()}


def metadata_of(pairs: Iterable[str]) -> dict[str, str]:
    """Return the metadata in texts of the form `key=value`.

    Raises:
        CallError: invalid_arguments; one is not of that form, or not allowed.
    """
    metadata: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise _refused(f"{pair[:100]!r} is not metadata. Write KEY=VALUE, such as team=support.")
        metadata[key.strip()] = value.strip()
    return checked_metadata(metadata)


def readable_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a file's own metadata that can be stored, such as that of front matter."""
    fitting = {
        key: value
        for key, value in metadata.items()
        if _KEY.fullmatch(key) and key.lower() not in RESERVED and 0 < len(value) <= METADATA_VALUE_CHARS
    }
    return dict(list(fitting.items())[:METADATA_KEYS])


def filter_value(key: str, value: JSONValue) -> JSONValue:
    """Return the value that a document must have under a key: a text, except for what parsers fill."""
    is_single = isinstance(value, str | int | float)
    return value if key in RESERVED or not is_single else as_text(value)


def as_text(value: object) -> str:
    """Return a value as it is stored."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        text = f"{key[:100]!r} is not a key of metadata: use a letter, then letters, digits, - and _, up to"
        raise _refused(f"{text} {METADATA_KEY_CHARS} characters.")
    if key.lower() in RESERVED:
        raise _refused(f"The key {key!r} is filled by what reads the file. Choose another one.")
    return key


def _checked_value(key: str, value: object) -> str:
    if not isinstance(value, str | int | float) or not 0 < len(as_text(value)) <= METADATA_VALUE_CHARS:
        text = f"The value of {key!r} has to be a text, a number or a truth value of 1 to {METADATA_VALUE_CHARS}"
        raise _refused(f"{text} characters.")
    plain = as_text(value)
    if "\0" in plain or any("\ud800" <= each <= "\udfff" for each in plain):
        raise _refused(f"The value of {key!r} has a NUL or half a character, as no stored text has. Leave it out.")
    return plain


def _refused(text: str) -> CallError:
    return CallError("invalid_arguments", text)
