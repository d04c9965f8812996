"""HostGuard: checks the Host and Origin of every request, so that web pages cannot reach the server via a browser."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pegboard.core.bounded_cache import BoundedCache
from pegboard.model.error import DefinitionError
from pegboard.model.record import CarriesCredentials

if TYPE_CHECKING:
    # Only for servers over HTTP; stdio does not load it.
    from starlette.types import Scope

HOSTS_REMEMBERED = 256  # admitted pairs of Host and Origin
HOST_NAME_CHARS = 253  # characters of a host name repeated in an error; DNS names are not longer

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_ORIGIN = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")

FORWARDED_HOST = "pegboard.forwarded_host"
"""The scope's key for the Host that a trusted proxy received."""

Headers = Sequence[tuple[bytes, bytes]]


class Refusal(CarriesCredentials, frozen=True, kw_only=True):
    """The reason for refusing a request: an HTTP status, one sentence, and headers that tell the client what to do."""

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_NO_HOST = Refusal(status=421, text="The request has no Host header, or more than one, or one that is not a name.")
OTHER_PAGE = Refusal(status=403, text="Pages of another address may not change anything here.")
_NO_ORIGIN = Refusal(status=403, text="The request has more than one Origin header, or one that is not an address.")


class HostGuard:
    """Admits requests whose Host is one of ours and whose Origin, if any, is too.

    `hosts` are names without port; any port is accepted, since the client reached us through it.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = frozenset(host.lower() for host in hosts)
        self._good = BoundedCache[tuple[bytes | None, bytes | None], None](max_entries=HOSTS_REMEMBERED)

    def refusal(self, headers: Headers) -> Refusal | None:
        """Return why these headers are refused; `None` to admit the request."""
        host = origin = None
        hosts = origins = 0
        for name, value in headers:
            if name == b"host":
                host, hosts = value, hosts + 1
            elif name == b"origin":
                origin, origins = value, origins + 1
        if hosts > 1 or origins > 1:
            return _NO_HOST if hosts > 1 else _NO_ORIGIN
        key = (host, origin)
        if key in self._good:
            return None
        if host is None or not self._is_ours(_HOST, host):
            return _unknown_host(host)
        if origin is not None and not self._is_ours(_ORIGIN, origin):
            return _unknown_origin(origin)
        self._good.remember(key, None)
        return None

    def _is_ours(self, form: re.Pattern[str], value: bytes) -> bool:
        name = _name(form, value)
        return name is not None and name in self.hosts


def is_of_another_page(scope: Scope) -> bool:
    """Tell whether a browser sends this for a page of another origin; another port of this host counts as one.

    Such a request carries the user's cookies, and without JSON it is sent without asking us first. On connections
    they trust, browsers say so themselves; otherwise they name the page's origin, which is compared with the address
    that the browser used: the one a trusted proxy forwards, or else Host.
    """
    headers = dict(scope["headers"])
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site not in (b"same-origin", b"none")
    if origin is None:
        return False
    scheme, _, address = origin.lower().partition(b"://")
    if scheme == b"http" and scope["scheme"] == "https":
        # Anybody on the network path can write pages of the plain HTTP address.
        return True
    own: bytes = scope.get(FORWARDED_HOST) or headers.get(b"host", b"")
    usual_port = b":443" if scheme == b"https" else b":80"
    return address.removesuffix(usual_port) != own.lower().removesuffix(usual_port)


def _name(form: re.Pattern[str], value: bytes) -> str | None:
    """Return the host in a header; `None` if it has another form."""
    match = form.fullmatch(value.decode("latin-1").strip(" \t"))
    return None if match is None else match[1].lower()


def _unknown_host(value: bytes | None) -> Refusal:
    name = None if value is None else _name(_HOST, value)
    if name is None or len(name) > HOST_NAME_CHARS:
        return _NO_HOST
    return Refusal(status=421, text=f"This server does not answer for the host {name!r}. If it should, {_allow(name)}")


def _unknown_origin(value: bytes) -> Refusal:
    name = _name(_ORIGIN, value)
    if name is None or len(name) > HOST_NAME_CHARS:
        return _NO_ORIGIN
    return Refusal(status=403, text=f"Pages of {name!r} may not use this server. If they should, {_allow(name)}")


def _allow(name: str) -> str:
    return f"start it with `--allow-host {name}`, or name it in `allowed_hosts=`."


def is_loopback(host: str) -> bool:
    """Tell whether an address to listen on can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def hosts_of(host: str, allowed: Sequence[str], *, is_open: bool) -> tuple[str, ...]:
    """Return the Host names to accept for an address to listen on; `is_open` is set if strangers may call.

    Raises:
        DefinitionError: anybody could call from another machine, or nobody could: a wildcard address without names.
    """
    if is_loopback(host):
        return (*LOOPBACK_HOSTS, *allowed)
    if not is_open:
        raise DefinitionError(
            f"Refused to listen on {host!r}: the config has no `identity:`, so other machines could call every tool "
            "without a credential. Add `identity:` with API keys or tokens, or listen on 127.0.0.1. To let everybody "
            "in, write `identity: {anonymous: {profile: NAME, on: anywhere}}`; in Python, pass "
            "allow_anonymous_from_anywhere=True."
        )
    if allowed:
        return tuple(allowed)
    if _is_wildcard(host) or host.startswith("unix:"):
        raise DefinitionError(
            f"To listen on {host!r}, name the hosts that clients use: --allow-host tools.example.com, "
            "or allowed_hosts=['tools.example.com'] in Python."
        )
    return (f"[{host.strip('[]')}]" if ":" in host else host,)


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False
