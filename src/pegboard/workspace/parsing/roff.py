"""Roff: parses manual pages to text, with headings in Markdown."""

from __future__ import annotations

import re
import shlex
from typing import Final

from pegboard.workspace.parsing.encodings import decode
from pegboard.workspace.parsing.parsed import Parsed, cleaned, headings_of, one_line

_BREAKS: Final = frozenset("PP P LP Pp TP TQ IP HP sp br It Bl El RS RE Bd Ed nf fi EX EE".split())
# Requests and macros without text.
_SILENT: Final = frozenset(
    "ad na nh hy hw ne in ti ft ps ta tr nr ds if ie el so mso ll pl bp ce cs rr rm als lf UE ME YS SY "
    "ss LINKSTYLE PD DT UC AT Dd Dt Os Sm Ek Bk Rs Re TS TE EQ EN".split()
)
_ALTERNATING: Final = frozenset("BR RB IR RI BI IB".split())
_DEFINITIONS: Final = frozenset({"de", "ig", "am", "de1"})
_NAMED: Final = {
    "aq": "'", "dq": '"', "oq": "‘", "cq": "’", "lq": "“", "rq": "”", "bu": "•", "em": "—", "en": "–", "co": "©",
    "rg": "®", "tm": "™", "ti": "~", "ha": "^", "ga": "`", "rs": "\\", "at": "@", "sh": "#", "->": "→", "<-": "←",
    "mu": "×", "de": "°", "pl": "+", "mi": "-", "eq": "=", "ss": "ß", ":a": "ä", ":o": "ö", ":u": "ü", ":A": "Ä",
    ":O": "Ö", ":U": "Ü", "'e": "é", "`e": "è", "^e": "ê", "'a": "á", "`a": "à", "o/": "ø", "oa": "å", "12": "½",
    "Fo": "«", "Fc": "»", "ba": "|", "br": "|", "ul": "_", "hy": "-", "or": "|", "la": "⟨", "ra": "⟩",
}  # fmt: skip
_ESCAPE: Final = re.compile(
    r"\\(?:f(?:\[[^\]\n]{0,20}\]|\(..|.)|s[-+]?\d{0,2}|[hvwlLSHnDobxzY]'[^'\n]{0,100}'|\*?\[([^\]\n]{1,30})\]|\*?\((..)"
    r"|\*(.)|n(?:\(..|\[[^\]\n]{0,30}\]|.)|m(?:\(..|\[[^\]\n]{0,30}\]|.)|(.)|$)"
)
# The first section of a page, `NAME` in its language: `chmod - change file mode bits`.
_SUMMARY: Final = re.compile(r"## [^\n]+\n+[^#\n]{1,500}?\s[-–—]+\s(?=\S)(.{1,500}?)(?=\n\s*\n|\n#|\Z)", re.DOTALL)
_SIGNS: Final = {"-": "-", "e": "\\", "\\": "\\", "'": "'", "`": "`", " ": " ", "~": " ", "0": " ", ".": "."}


def parse_roff(options: object, payload: bytes) -> Parsed:
    """Parse a manual page (macros `man` and `mdoc`)."""
    source = decode(options, payload)
    text: list[str] = []
    headings: list[str] = []
    title, summary, until = "", "", ""
    for line in cleaned(source.text).replace("\\\n", "").split("\n"):
        if until:
            # In conditions the end of a definition is indented: `.  .` instead of `..`.
            until = "" if line.startswith(".") and f".{line[1:].lstrip()}".startswith(until) else until
            continue
        if not line.startswith((".", "'")):
            text.append(_plain(line))
            continue
        name, _, rest = line[1:].strip().partition(" ")
        if name.startswith(('\\"', "\\#")) or not name:
            continue
        words = _words(rest)
        if name in _DEFINITIONS:
            until = f".{words[1]}" if len(words) > 1 and name in ("de", "am") else ".."
        elif name in ("TH", "Dt") and words:
            title = f"{words[0]}({words[1]})" if len(words) > 1 else words[0]
        elif name == "Nd":
            summary = summary or one_line(" ".join(words))
            text.append(" ".join(words))
        elif name in ("SH", "Sh", "SS", "Ss"):
            heading = one_line(" ".join(words))
            if heading:
                headings.append(heading)
                text.append(f"\n{'##' if name.upper() == 'SH' else '###'} {heading}\n")
        elif name in _BREAKS:
            text.append("\n" + (words[0] if words and name in ("IP", "It") else ""))
        elif name in _ALTERNATING:
            text.append("".join(words))
        elif name not in _SILENT:
            text.append(" ".join([*(["-" + words.pop(0)] if name == "Fl" and words else []), *words]))
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip()
    parsed = Parsed(text=f"# {one_line(title)}\n\n{joined}" if title else joined, headings=headings_of(headings))
    if title:
        # The summary shows readers of a hit what the page is about, and searches find every passage by it.
        named = _SUMMARY.match(joined)
        summary = summary or (one_line(named[1]) if named else "")
        parsed["title"] = one_line(f"{title}: {summary}" if summary else title)
    return source.mark(parsed)


def _words(rest: str) -> list[str]:
    """Return the arguments of a macro, without escapes."""
    splitting = shlex.shlex(rest, posix=True, punctuation_chars=False)
    splitting.whitespace_split, splitting.commenters, splitting.quotes, splitting.escape = True, "", '"', ""
    try:
        words = list(splitting)
    except ValueError:
        words = rest.split()
    return [_plain(word) for word in words]


def _plain(line: str) -> str:
    """Return a line without escapes."""
    if "\\" not in line:
        return line
    return _ESCAPE.sub(_sign, line.partition('\\"')[0])


def _sign(escape: re.Match[str]) -> str:
    name = escape[1] or escape[2]
    if name is not None:
        return _NAMED.get(name, "")
    return _SIGNS.get(escape[4] or "", "")
