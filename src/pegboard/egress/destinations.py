"""Destinations: decides where a connection may go, by host name and by every address of the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.egress import failures
else:
    failures = LazyModule("pegboard.egress.failures")

_RULE = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s/@\[\]]+?))(?::(?P<port>\d{1,5}))?")


class HostRule(Struct, frozen=True, kw_only=True):
    """One entry of `allow_hosts`: a name pattern or a network, optionally with a port."""

    name: re.Pattern[str] | None = None
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> HostRule:
        """Read `host`, `host:port`, `*.example.com`, `10.0.0.0/8`, `::1` or `[::1]:8080`."""
        try:
            return cls(network=ip_network(text.strip()))
        except ValueError:
            pass
        match = _RULE.fullmatch(text.strip().lower())
        if match is None or int(match["port"] or 1) not in range(1, 65536):
            raise DefinitionError(
                f"allow_hosts has {text!r}; write 'host', 'host:port', '*.example.com', '10.0.0.0/8' or '[::1]:8080'."
            )
        port = int(match["port"]) if match["port"] else None
        host = match["v6"] or match["host"]
        try:
            return cls(network=ip_network(host), port=port)
        except ValueError:
            pattern = ".*".join(re.escape(part) for part in host.rstrip(".").split("*"))
            return cls(name=re.compile(pattern), port=port)

    def matches_name(self, host: str, port: int) -> bool:
        """Whether this rule allows the host by its name."""
        return self.name is not None and self.port in (None, port) and self.name.fullmatch(host) is not None

    def matches_address(self, address: str, port: int) -> bool:
        """Whether this rule allows the resolved address."""
        return self.network is not None and self.port in (None, port) and ip_address(address) in self.network


@dataclass(frozen=True, kw_only=True, slots=True)
class Destinations:
    """The destinations that a client may connect to. The default: any host all of whose addresses are public.

    Args:
        allow_private: allows loopback, private, unique-local and CGNAT addresses too. Metadata services,
            link-local, tunnelling and other special addresses also need an entry of `allow_hosts` with the
            address itself or its network.
        allow_hosts: if not empty, *only* these may be reached: host names (`api.example.com`, `*.example.com`,
            `localhost:3001`), addresses or networks (`10.1.0.0/16`), with or without a port. An entry does
            not allow a private address by itself: that needs `allow_private` as well.

    One refused address among those of a name refuses the host, because we cannot choose the address that answers.
    (A DNS64 network adds NAT64 addresses to each name, so hosts there are refused.)

    Raises:
        DefinitionError: an entry of `allow_hosts` cannot be read.
    """

    allow_private: bool = False
    allow_hosts: tuple[str, ...] = ()
    rules: tuple[HostRule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(HostRule.parse(text) for text in self.allow_hosts))

    def check_name(self, host: str, port: int) -> None:
        """Refuse, before any lookup, a host that no rule could allow.

        Raises:
            EgressError: blocked_destination.
        """
        if not self.rules or any(rule.network is not None for rule in self.rules):
            return
        if not self._is_named(host, port):
            raise _not_listed(host, port)

    def check_addresses(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Refuse the host if any of its addresses is not allowed. The message names the class, never the address.

        Raises:
            EgressError: blocked_destination.
        """
        is_named = self._is_named(host, port)
        for address in addresses:
            kind = classify(address)
            if kind in ("malformed", "scoped"):
                raise _blocked(host, kind)
            is_listed = any(rule.matches_address(address, port) for rule in self.rules)
            if self.rules and not is_named and not is_listed:
                raise _not_listed(host, port)
            is_opened = self.allow_private and (kind in LOCAL_CLASSES or is_listed)
            if kind != "public" and not is_opened:
                raise _blocked(host, kind)

    def _is_named(self, host: str, port: int) -> bool:
        plain = host.lower().rstrip(".")
        return any(rule.matches_name(plain, port) for rule in self.rules)


def _blocked(host: str, kind: str) -> failures.EgressError:
    return failures.EgressError(
        "blocked_destination",
        f"{host!r} is refused: its address is not public ({kind}). Use a public host.",
    )


def _not_listed(host: str, port: int) -> failures.EgressError:
    return failures.EgressError(
        "blocked_destination",
        f"'{host}:{port}' is refused: it is not among the hosts that this tool may reach.",
    )


def only_host_of(url: str) -> Destinations:
    """Return the host of an operator's own URL, which may be private, as the only destination.

    Raises:
        DefinitionError: it is not an http or https URL.
    """
    no_url = DefinitionError(f"{Secret(url)!r} is not an http or https URL; write 'https://host/path'.")
    try:
        split = urlsplit(re.sub(r"\{\w+\}", "*", url))
        port = split.port or {"http": 80, "https": 443}.get(split.scheme)
    except ValueError:
        raise no_url from None
    if split.scheme not in ("http", "https") or port is None or not split.hostname or split.username is not None:
        raise no_url
    return only(split.hostname, port)


def only(host: str, port: int) -> Destinations:
    """Return a host that the operator has named, which may be private, as the only destination."""
    name = f"[{host}]" if ":" in host else host
    return Destinations(allow_hosts=(f"{name}:{port}",) if host else (), allow_private=True)


_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


def encrypted_host_of(url: str, *, content: str) -> Destinations:
    """Return the only destination of a service that we send messages to; `content` names their content, for the error.

    Raises:
        DefinitionError: the URL is neither https nor on this machine.
    """
    destinations, parts = only_host_of(url), urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _THIS_MACHINE:
        text = f"{content} would be sent unencrypted; write an https URL. http is for services on this machine only"
        raise DefinitionError(text)
    return destinations


# ---- addresses: our table of public and special addresses

AddressClass = Literal[
    "public", "loopback", "private", "unique-local", "shared (CGNAT)", "link-local", "metadata service",
    "unspecified", "multicast", "broadcast", "documentation", "benchmarking", "reserved", "site-local",
    "tunnelling", "IPv4-mapped", "scoped", "malformed",
]  # fmt: skip

# The classes that `allow_private` opens. Others open only for addresses named in `allow_hosts`.
LOCAL_CLASSES: frozenset[AddressClass] = frozenset({"loopback", "private", "unique-local", "shared (CGNAT)"})

# Cloud metadata services return credentials; some have addresses that look public (Azure) or private.
_METADATA: frozenset[IPv4Address | IPv6Address] = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
    )
)

# The first match wins, so narrow networks come first. Forms that contain an IPv4 address are denied as a whole, so the
# address inside is not checked again. Source: IANA special-purpose address registries, RFC 6890.
_SPECIAL: tuple[tuple[str, AddressClass], ...] = (
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared (CGNAT)"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "tunnelling"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "IPv4-mapped"),
    ("::ffff:0:0:0/96", "tunnelling"),
    ("::/96", "IPv4-mapped"),
    ("64:ff9b::/96", "tunnelling"),
    ("64:ff9b:1::/48", "tunnelling"),
    ("2001::/32", "tunnelling"),
    ("2001:2::/48", "benchmarking"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "tunnelling"),
    ("3fff::/20", "documentation"),
    ("fc00::/7", "unique-local"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_NETWORKS: tuple[tuple[IPv4Network | IPv6Network, AddressClass], ...] = tuple(
    (ip_network(net), name) for net, name in _SPECIAL
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_ISATAP_INTERFACE_IDS = frozenset({0x0000_5EFE, 0x0200_5EFE})


def classify(address: str) -> AddressClass:
    """Return the class of a literal address; only `public` is allowed by default.

    Accepts results of a resolver (`203.0.113.9`, `fe80::1%eth0`). Unknown addresses are not public.
    """
    if "%" in address:
        return "scoped"
    try:
        parsed = ip_address(address)
    except ValueError:
        return "malformed"
    if parsed in _METADATA:
        return "metadata service"
    for network, name in _NETWORKS:
        if parsed in network:
            return name
    if isinstance(parsed, IPv4Address):
        return "public"
    if (int(parsed) >> 32) & 0xFFFF_FFFF in _ISATAP_INTERFACE_IDS:
        return "tunnelling"
    return "public" if parsed in _GLOBAL_UNICAST else "reserved"
