"""URLs: one parser for URLs in requests and redirects."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from urllib.parse import quote, unquote

import httpx2

from pegboard.egress.failures import EgressError
from pegboard.model.error import DefinitionError

_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_AUTHORITY = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)([^/?#]*)")
_HOST = re.compile(r"[a-z0-9_.-]+|[0-9a-f:.]+")


def parse_url(text: str) -> httpx2.URL:
    """Parse an absolute http or https URL; the host is normalised.

    Full-width digits and percent escapes in the host are decoded as in browsers, so that the checked host is the one
    that would be used. A user name in the URL is refused: it can make one host look like another.

    Raises:
        EgressError: blocked_destination for another scheme, a user name or an invalid host name; invalid_arguments for
            a text that is not an absolute URL.
    """
    shown = text[:200]
    try:
        url = httpx2.URL(_plain_authority(text))
    except (httpx2.InvalidURL, ValueError):
        raise EgressError("invalid_arguments", f"{shown!r} is not a URL. Write 'https://host/path'.") from None
    if not url.scheme:
        raise EgressError("invalid_arguments", f"{shown!r} is not a full URL. Write 'https://host/path'.")
    if url.scheme not in ("http", "https"):
        text = f"The scheme {url.scheme!r} is refused: only http and https URLs are allowed."
        raise EgressError("blocked_destination", text)
    if url.userinfo:
        raise EgressError("blocked_destination", "A URL with a user name is refused. Send credentials in a header.")
    host = unquote(url.raw_host.decode("ascii")).lower()
    if not _HOST.fullmatch(host):
        raise EgressError("blocked_destination", f"{url.host!r} is refused: it is not a host name.")
    if url.port is not None and url.port not in range(1, 65536):
        raise EgressError("invalid_arguments", f"The port {url.port} is not between 1 and 65535.")
    return url if host == url.raw_host.decode("ascii") else url.copy_with(host=host)


def join_url(base: httpx2.URL, location: str) -> httpx2.URL:
    """Read the target of a redirect, absolute or relative to the URL that sent it.

    Raises:
        EgressError: as `parse_url`; protocol_error when the target cannot be read.
    """
    try:
        joined = base.join(_plain_authority(location))
    except (httpx2.InvalidURL, ValueError):
        text = f"The server redirects to {location[:200]!r}, which is not a URL."
        raise EgressError("protocol_error", text) from None
    return parse_url(str(joined))


def placeholders_of(template: str) -> tuple[str, ...]:
    """Return the names of the `{placeholders}` of a URL, in their order.

    Raises:
        DefinitionError: one is in the scheme or the host, which a caller must not choose.
    """
    return tuple(_PLACEHOLDER.findall(template[len(_head_of(template)) :]))


def expand_path(template: str, values: Mapping[str, str]) -> str:
    """Fill the `{placeholders}` of a URL; each value stays one segment, whatever characters it has.

    Raises:
        DefinitionError: a placeholder is in the scheme or the host, which a caller must not choose.
        EgressError: invalid_arguments for a value that is missing, empty, `.` or `..`.
    """
    return fill_path(template, {name: quote(value, safe="") for name, value in values.items()})


def fill_path(template: str, encoded: Mapping[str, str]) -> str:
    """Fill the `{placeholders}` of a URL with texts that are percent-encoded already.

    Raises:
        DefinitionError: as `expand_path`.
        EgressError: as `expand_path`.
    """
    head = _head_of(template)

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if not encoded.get(name):
            raise EgressError("invalid_arguments", f"{name!r} is a part of the URL and must not be empty.")
        return encoded[name]

    tail = _PLACEHOLDER.sub(fill, template[len(head) :])
    if any(segment in (".", "..") for segment in re.split("[?#]", tail)[0].split("/")):
        raise EgressError("invalid_arguments", f"A part of the URL path is '.' or '..' in {tail[:200]!r}. Change it.")
    return head + tail


def _head_of(template: str) -> str:
    head = _AUTHORITY.match(template)
    if head is None and not template.startswith("{"):
        raise DefinitionError(f"{template!r} is not an address; write the complete URL, https://host/path.")
    if head is None or "{" in head[0]:
        raise DefinitionError(f"The URL {template!r} must have its placeholders behind the host.")
    return head[0]


def _plain_authority(text: str) -> str:
    match = _AUTHORITY.match(text)
    if match is None or match[2].isascii():
        return text
    return match[1] + _compatible(match[2]) + text[match.end() :]


def _compatible(authority: str) -> str:
    plain = unicodedata.normalize("NFKC", authority)
    # "℀" becomes "a/c": normalisation must not add a path, a user name or a port to a host.
    if any(plain.count(mark) != authority.count(mark) for mark in "/?#@:\\%[]"):
        raise ValueError(authority)
    return plain.replace("\u3002", ".")
