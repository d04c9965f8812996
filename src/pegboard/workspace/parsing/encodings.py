"""Encodings: decodes text files, and reports their encoding."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from charset_normalizer import from_bytes

from pegboard.workspace.parsing.parsed import Parsed, UnreadableError

EncodingFrom = Literal["mark", "declared", "set", "detected"]

# UTF-32 first, since its byte order mark begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LATIN: Final = frozenset({"cp1252", "cp1250", "cp1254", "cp1257", "cp1258", "mac_roman"})
# Common letters and signs of these code pages, the likeliest page first.
_WESTERN: Final = "äöüÄÖÜßáàâãåæçéèêëíìîïñóòôõøœúùûÿÁÀÂÃÅÆÇÉÈÊËÍÎÑÓÔÕØŒÚÛ€£§°«»„“”‚‘’–—…·²³½µ¿¡©®\xa0"
_LATIN_LETTERS: Final = {
    "cp1252": frozenset(_WESTERN),
    "cp1250": frozenset("ąćęłńóśźżĄĆĘŁŃÓŚŹŻáčďéěíňóřšťúůýžÁČĎÉĚÍŇÓŘŠŤÚŮÝŽőűŐŰäöüÄÖÜßăâîşţđĐ€§°„“”‚‘’–—…\xa0"),
    "cp1254": frozenset(_WESTERN + "ğĞıİşŞ"),
    "mac_roman": frozenset(_WESTERN),
}
_CANDIDATES: Final = [
    *sorted(_LATIN), "cp874", "cp1251", "cp1253", "cp1255", "cp1256", "cp866", "koi8_r", "koi8_u",
    "cp932", "euc_jp", "gb18030", "big5hkscs", "cp949",
]  # fmt: skip
_TELLING_LINES: Final = re.compile(rb"[^\n]*[\x80-\xff][^\n]*\n?")
_TELLING_BYTES: Final = 65_536
_LATIN_SHARE: Final = 0.3  # the largest share of non-ASCII characters in Latin text
_LOOKED_AT: Final = 4_096
# Control bytes that only UTF-16 text has, without tab, line ends, form feed and escape.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


class Decoded(NamedTuple):
    """The text of a file, its encoding, and how it was determined."""

    text: str
    encoding: str
    encoding_from: EncodingFrom

    def mark(self, parsed: Parsed) -> Parsed:
        """Add the encoding to a parsed file, unless it is plain UTF-8."""
        if self.encoding != "utf-8":
            parsed["encoding"], parsed["encoding_from"] = self.encoding, self.encoding_from
        return parsed


def decode(options: object, payload: bytes, *, declared: str | None = None) -> Decoded:
    """Return the text of a file.

    The encoding is that of the byte order mark, the source's setting (`options["encoding"]`), the file's declaration,
    or UTF-8, in this order. Anything else is detected.

    Raises:
        UnreadableError: it is not text, or not in the encoding that is set.
    """
    for mark, encoding in _MARKS:
        if payload.startswith(mark):
            return Decoded(_strictly(payload, encoding), encoding.removesuffix("-sig"), "mark")
    chosen = options.get("encoding") if isinstance(options, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - of JSON
    if isinstance(chosen, str) and chosen:
        return Decoded(_strictly(payload, chosen), chosen, "set")
    if declared is not None:
        # Like browsers, which show the readable part of a page.
        return Decoded(payload.decode(declared, "replace"), declared, "declared")
    wide = _wide_encoding(payload[:_LOOKED_AT])
    if wide is not None:
        return Decoded(_strictly(payload, wide), wide, "detected")
    try:
        return Decoded(payload.decode(), "utf-8", "detected")
    except UnicodeDecodeError as error:
        if _BINARY.search(payload[:_LOOKED_AT]):
            raise UnreadableError(f"it is not a text: byte {error.start} belongs to no encoding") from None
    for encoding in _likely(payload):
        try:
            return Decoded(payload.decode(encoding), encoding, "detected")
        except UnicodeDecodeError:
            continue
    raise UnreadableError("its encoding cannot be detected; save it as UTF-8, or name it with --encoding")


def _strictly(payload: bytes, encoding: str) -> str:
    try:
        return payload.decode(encoding)
    except UnicodeDecodeError as error:
        text = f"it is not valid {encoding.removesuffix('-sig').upper()} near byte {error.start}; save it as UTF-8"
        raise UnreadableError(text) from None


def _wide_encoding(start: bytes) -> str | None:
    """Return the kind of UTF-16 without a mark: every other byte of ordinary text is zero."""
    pairs = len(start) // 2
    even, odd = start[: 2 * pairs : 2].count(0), start[1 : 2 * pairs : 2].count(0)
    if odd > pairs * 0.4 and not even:
        return "utf-16-le"
    return "utf-16-be" if even > pairs * 0.4 and not odd else None


def _likely(payload: bytes) -> list[str]:
    """Return the possible encodings of a text, the likeliest first.

    The library distinguishes scripts and multibyte encodings well, but Latin code pages badly in short texts. For those
    we take the page where most characters are common letters, and Windows-1252 on a tie.
    """
    telling: list[bytes] = []
    size = 0
    for line in _TELLING_LINES.finditer(payload):
        telling.append(line[0][:_TELLING_BYTES])
        size += len(telling[-1])
        if size >= _TELLING_BYTES:
            break
    sample = b"".join(telling)
    found = [match.encoding for match in from_bytes(sample, cp_isolation=_CANDIDATES)]
    strange = sum(byte >= 0x80 for byte in sample)
    is_latin = bool(found) and (found[0] in _LATIN or (strange < _LATIN_SHARE * len(sample) and _LATIN & {*found}))
    if not is_latin:
        return found
    shares = {name: _usual_share(sample, name, letters) for name, letters in _LATIN_LETTERS.items()}
    return [*sorted(shares, key=lambda name: -shares[name]), *found]


def _usual_share(sample: bytes, encoding: str, letters: frozenset[str]) -> float:
    strange = [character for character in sample.decode(encoding, "replace") if not character.isascii()]
    return sum(character in letters for character in strange) / max(1, len(strange))
