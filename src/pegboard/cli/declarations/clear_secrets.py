"""Clear secrets: find the values that must not stand in a file; when in doubt it is one."""

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
# A file of SQLite, or a server without login and query.
_PLAIN_STORE = re.compile(
    r"sqlite(?:\+\w+)?:(?://)?[\w ./:~-]*|[a-z][a-z0-9+]*://[\w.-]+(?::\d+)?(?:/[\w.-]*)?", re.IGNORECASE
)
_OPAQUE = re.compile(r"[A-Za-z0-9+/_=.~:-]{16,}")
_SURE = 10  # as many letters and digits among each other are no word
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Tell whether what has this name is a secret, whatever it is."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return _SECRET_NAME.search(spaced) is not None


def holds_secret(name: str, text: str) -> bool:
    """Tell whether the value of a variable or header is one; of what is unknown it is taken for granted."""
    if not text.strip():
        return False
    if names_secret(name) and text.lower() not in ("true", "false", "0", "1"):
        return True
    if looks_secret(text):
        return True
    return not (_HARMLESS.fullmatch(text) or _PATH.fullmatch(text) or _ADDRESS.match(text))


def looks_secret(text: str) -> bool:
    """Tell whether a text is a secret by its look: of a known form, with a login, or random letters."""
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
    """Tell whether a text has a secret in clear, next to any `${VARIABLE}` in it.

    `name` is the key of the text. The address of a database that has no login is not a secret, whatever its key.
    """
    if not _REFERENCE.search(text):
        return looks_secret(text) or (names_secret(name) and bool(text) and not _PLAIN_STORE.fullmatch(text))
    # A default stands in the file as any other text does.
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
    # Beside the reference of a secret stand the words of its scheme: `Bearer ${KEY}`.
    return names_secret(name) and not (_SCHEME.fullmatch(shown) or _PLAIN_STORE.fullmatch(shown) or "://" in shown)


def _is_random(text: str) -> bool:
    """Tell whether nobody would have chosen a text: long, of letters and digits among each other, or of any case."""
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
    """Tell whether capitals stand among small letters, more often than where words are joined."""
    return len(part) >= 2 * _SURE and _switches(part, str.isupper) * 3 >= len(part)


def _switches(text: str, is_of_kind: Callable[[str], bool]) -> int:
    """Return how often the kind of the characters changes."""
    return sum(is_of_kind(one) != is_of_kind(next_one) for one, next_one in pairwise(text))


def without_secrets(text: str, conceal: Callable[[str, str], str], escape: Callable[[str], str], *, name: str) -> str:
    """Return a word of a command or an address with each secret in it replaced by what `conceal(name, value)` gives.

    `name` is what the word belongs to, such as the option before it.
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
    """Return the name of a variable: that of the value where it is one, else made of it."""
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and "_" in name:
        return name
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", f"{label}_{name}")
    variable = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_")
    return variable if variable[:1].isalpha() else f"PEGBOARD_{variable}".rstrip("_")
