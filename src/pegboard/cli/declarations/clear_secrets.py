"""Clear secrets: find plain-text secrets; in doubt, a value counts as one."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|passcode|(?:^|[-_.])(?:pwd|pat|pin|sig|sid|pass|key|keys|auth|jwt|otp|cookie|creds?)(?:$|[-_.])|"
    r"api[-_.]?key|apikey|credential|private|authori[sz]ation|bearer|session|dsn|connection[-_.]?string|webhook|"
    r"(?:^|[-_.])(?:db|database|redis|mongo\w*|postgres\w*|mysql|amqp)[-_.]?(?:url|uri)",
    re.IGNORECASE,
)
_KNOWN_FORM = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghu|ghs|ghr|github_pat|glpat|glptt|xox[a-z]|xapp|hf|npm|pypi|dop|doo|shpat|shpss|sq0|lin|ntn|"
    r"tvly|pplx|gsk|fig[du]|dckr|sbp|re|whsec|key|api|pat|secret|tok)[-_][A-Za-z0-9_-]{8,}"
    r"|(?:AKIA|ASIA|AIza|ya29\.|SG\.|eyJ)[A-Za-z0-9_.-]{10,}"
    r"|-----BEGIN|(?:bearer|basic|token|apikey)\s+\S{6,}",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"^[a-z][a-z0-9+.-]*://[^/?#\s]*@", re.IGNORECASE)
_ADDRESS = re.compile(
    r"^(?P<base>[a-z][a-z0-9+.-]*://[^/?#\s]+)(?P<path>[^?#\s]*)(?:\?(?P<query>[^#\s]*))?(?:#\S*)?$", re.I
)
_HARMLESS = re.compile(
    r"|true|false|yes|no|on|off|null|none|-?[0-9]{1,6}(?:\.[0-9]{1,6})?|v?[0-9]+(?:\.[0-9]+){1,3}"
    r"|[A-Za-z]{1,20}(?:[-_.:/ ][A-Za-z]{1,20}){0,3}"
    r"|application/[a-z+-]+(?:, ?text/event-stream)?|[a-z]{2}[-_][A-Z]{2}(?:\.UTF-8)?"
    r"|[a-z0-9-]+\.[a-z0-9.-]+\.[a-z]{2,}(?::[0-9]{1,5})?|localhost(?::[0-9]{1,5})?",
)
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w .@/+-]*|[A-Za-z]:\\[\w .\\+-]*|\.{1,2}")
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*(?::-(?P<default>[^}]*))?\}")
_SCHEME = re.compile(r"[A-Za-z]{0,12}[\s:;,=@/.-]*")
# An SQLite file, or a server without login and query.
_PLAIN_STORE = re.compile(
    r"sqlite(?:\+\w+)?:(?://)?[\w ./:~-]*|[a-z][a-z0-9+]*://[\w.-]+(?::\d+)?(?:/[\w.-]*)?", re.IGNORECASE
)
_OPAQUE = re.compile(r"[A-Za-z0-9+/_=.~:-]{16,}")
_SURE = 10  # a text with so many mixed letters and digits is not a word
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Tell whether a value with this name is a secret, whatever the value is."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return _SECRET_NAME.search(spaced) is not None


def holds_secret(name: str, text: str) -> bool:
    """Tell whether the value of a variable or header is a secret; unknown names count as secrets."""
    if not text.strip():
        return False
    if names_secret(name) and text.lower() not in ("true", "false", "0", "1"):
        return True
    if looks_secret(text):
        return True
    return not (_HARMLESS.fullmatch(text) or _PATH.fullmatch(text) or _ADDRESS.match(text))


def looks_secret(text: str) -> bool:
    """Tell whether a text looks like a secret: a known format, a login, or random letters."""
    if _KNOWN_FORM.search(text) or _LOGIN.match(text):
        return True
    address = _ADDRESS.match(text)
    if address is not None:
        query = address["query"] or ""
        return any(_is_random(part) for part in address["path"].split("/")) or any(
            names_secret(pair.partition("=")[0]) or _is_random(pair.partition("=")[2])
            for pair in query.split("&")
            if pair
        )
    if _PATH.fullmatch(text) or text.startswith("@"):
        return False
    return _is_random(text)


def hides_secret(name: str, text: str) -> bool:
    """Tell whether a text contains a plain-text secret, apart from any `${VARIABLE}` in it.

    `name` is the key of the text. A database address without a login is not a secret, whatever its key.
    """
    if not _REFERENCE.search(text):
        return looks_secret(text) or (names_secret(name) and bool(text) and not _PLAIN_STORE.fullmatch(text))
    # A default is in the file like any other text.
    shown = _REFERENCE.sub(lambda match: match["default"] or "", text)
    if any(looks_secret(part) for part in (match["default"] or "" for match in _REFERENCE.finditer(text))):
        return True
    login = re.match(r"[a-z][a-z0-9+.-]*://(?P<login>[^/?#\s]*)@", text, re.IGNORECASE)
    if login is not None:
        password = _REFERENCE.sub("", login["login"].partition(":")[2])
        shown = shown[: shown.index("://") + 3] + shown.rpartition("@")[2]
        return bool(password) or looks_secret(shown)
    if looks_secret(shown):
        return True
    # The scheme may precede the reference: `Bearer ${KEY}`.
    return names_secret(name) and not (_SCHEME.fullmatch(shown) or _PLAIN_STORE.fullmatch(shown) or "://" in shown)


def _is_random(text: str) -> bool:
    """Tell whether a text looks random: long, with letters and digits or upper and lower case mixed."""
    if not _OPAQUE.fullmatch(text):
        return False
    if _UUID.fullmatch(text):
        return True
    parts = re.split(r"[-_.:/=+~]", text)
    mixed = sum(map(len, filter(_is_mixed, parts)))
    cased = sum(map(len, filter(_is_cased, parts)))
    return (mixed >= _SURE and mixed * 2 >= len(text)) or cased * 2 >= len(text)


def _is_mixed(part: str) -> bool:
    return _switches(part, str.isdigit) > 1


def _is_cased(part: str) -> bool:
    """Tell whether upper and lower case are mixed more often than in joined words."""
    return len(part) >= 2 * _SURE and _switches(part, str.isupper) * 3 >= len(part)


def _switches(text: str, is_of_kind: Callable[[str], bool]) -> int:
    """Return how often the kind of character changes."""
    return sum(is_of_kind(char) != is_of_kind(next_char) for char, next_char in pairwise(text))


def without_secrets(text: str, conceal: Callable[[str, str], str], escape: Callable[[str], str], *, name: str) -> str:
    """Return a word of a command or an address with each secret in it replaced by `conceal(name, value)`.

    `name` is the name that belongs to the word, such as the option before it.
    """
    address = _ADDRESS.match(text)
    if address is not None and not _LOGIN.match(text):
        return _address(text, address, conceal, escape)
    key, separator, value = _assignment(text)
    if separator and value:
        if _ADDRESS.match(value):
            return escape(key + separator) + without_secrets(value, conceal, escape, name=key.strip("-"))
        if (names_secret(key) and value.lower() not in ("true", "false")) or looks_secret(value):
            scheme = re.match(r"(?:bearer|basic|token)\s+", value, re.IGNORECASE)
            lead = scheme[0] if scheme else ""
            return escape(key + separator + lead) + conceal(key.strip("-"), value[len(lead) :])
        return escape(text)
    if (name and names_secret(name) and not text.startswith("-")) or looks_secret(text):
        return conceal(name or "secret", text)
    return escape(text)


def _assignment(text: str) -> tuple[str, str, str]:
    """Return the parts of `--key=value`, `KEY=value` or `Header: value`."""
    match = re.fullmatch(r"(-{0,2}[A-Za-z][\w.-]*)(=|:\s?)(.*)", text, re.DOTALL)
    if match is None or match[3].startswith(("//", "\\")):
        return text, "", ""
    return match[1], match[2], match[3]


def _address(
    text: str, address: re.Match[str], conceal: Callable[[str, str], str], escape: Callable[[str], str]
) -> str:
    path = "/".join(
        conceal("address", part) if _is_random(part) or _KNOWN_FORM.fullmatch(part) else escape(part)
        for part in address["path"].split("/")
    )
    pairs: list[str] = []
    for pair in (address["query"] or "").split("&"):
        key, separator, value = pair.partition("=")
        is_secret = bool(value) and (names_secret(key) or looks_secret(value))
        pairs.append(escape(key + separator) + (conceal(key, value) if is_secret else escape(value)))
    query = f"?{'&'.join(pairs)}" if address["query"] else ""
    rest = text[address.end("query") if address["query"] is not None else address.end("path") :]
    return escape(address["base"]) + path + query + escape(rest)


def variable_for(name: str, *, label: str) -> str:
    """Return the name of a variable: the value itself if it is one, otherwise a name derived from it."""
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and "_" in name:
        return name
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", f"{label}_{name}")
    variable = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_")
    return variable if variable[:1].isalpha() else f"PEGBOARD_{variable}".rstrip("_")
