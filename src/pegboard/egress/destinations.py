"""Destinations: the judgement on where a connection may go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from pegboard.egress.addresses import LOCAL_CLASSES, classify
from pegboard.egress.failures import EgressError
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

_RULE = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s/@\[\]]+?))(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRule:
    """One entry of `allow_hosts`: a name pattern or a network, and perhaps one port."""

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

    def names(self, host: str, port: int) -> bool:
        """Whether this rule lets the host in by its name."""
        return self.name is not None and self.port in (None, port) and self.name.fullmatch(host) is not None

    def holds(self, address: str, port: int) -> bool:
        """Whether this rule lets the resolved address in."""
        return self.network is not None and self.port in (None, port) and ip_address(address) in self.network


@dataclass(frozen=True, kw_only=True, slots=True)
class Destinations:
    """Where a client may connect. The default: any host all of whose addresses are public.

    Args:
        allow_private: opens loopback, private, unique-local and CGNAT addresses too. Metadata services,
            link-local, tunnelling and the other special forms stay shut unless `allow_hosts` names their
            very address or network beside this.
        allow_hosts: if not empty, *only* these may be reached: host names (`api.example.com`, `*.example.com`,
            `localhost:3001`), addresses or networks (`10.1.0.0/16`), each perhaps with a port. An entry does
            not open a private address by itself: that takes `allow_private` as well.

    A host is judged by every address its name resolves to: one refused address refuses the host, because which of
    them answers is not ours to choose. (So a DNS64 network, which adds NAT64 addresses to each name, is refused.)

    Raises:
        DefinitionError: an entry of `allow_hosts` cannot be read.
    """

    allow_private: bool = False
    allow_hosts: tuple[str, ...] = ()
    rules: tuple[HostRule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(HostRule.parse(text) for text in self.allow_hosts))

    def check_name(self, host: str, port: int) -> None:
        """Refuse, before anything is looked up, a host that no rule could let in.

        Raises:
            EgressError: blocked_destination.
        """
        if not self.rules or any(rule.network is not None for rule in self.rules):
            return
        if not self._named(host, port):
            raise _not_listed(host, port)

    def check_addresses(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Refuse the host if any of its addresses is not allowed. The message names the class, never the address.

        Raises:
            EgressError: blocked_destination.
        """
        named = self._named(host, port)
        for address in addresses:
            kind = classify(address)
            if kind in ("malformed", "scoped"):
                raise _blocked(host, kind)
            listed = any(rule.holds(address, port) for rule in self.rules)
            if self.rules and not named and not listed:
                raise _not_listed(host, port)
            opened = self.allow_private and (kind in LOCAL_CLASSES or listed)
            if kind != "public" and not opened:
                raise _blocked(host, kind)

    def _named(self, host: str, port: int) -> bool:
        plain = host.lower().rstrip(".")
        return any(rule.names(plain, port) for rule in self.rules)


def _blocked(host: str, kind: str) -> EgressError:
    return EgressError(
        "blocked_destination",
        f"{host!r} is refused: its address is not public ({kind}). Use a public host.",
    )


def _not_listed(host: str, port: int) -> EgressError:
    return EgressError(
        "blocked_destination",
        f"'{host}:{port}' is refused: it is not among the hosts that this tool may reach.",
    )


def only_there(url: str) -> Destinations:
    """Return the host of an operator's own URL, which may be a private one, as the only destination.

    Raises:
        DefinitionError: it is no http or https URL.
    """
    split = urlsplit(re.sub(r"\{\w+\}", "*", url))
    port = {"http": 80, "https": 443}.get(split.scheme)
    try:
        port = split.port or port
    except ValueError:
        port = None
    if port is None or not split.hostname or split.username is not None:
        raise DefinitionError(f"{Secret(url)!r} is no http or https URL; write 'https://host/path'.")
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    return Destinations(allow_hosts=(f"{host}:{port}",), allow_private=True)
