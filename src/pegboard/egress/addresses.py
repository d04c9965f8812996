"""Addresses: our own table of what counts as a public destination."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

AddressClass = Literal[
    "public", "loopback", "private", "unique-local", "shared (CGNAT)", "link-local", "metadata service",
    "unspecified", "multicast", "broadcast", "documentation", "benchmarking", "reserved", "site-local",
    "tunnelling", "IPv4-mapped", "scoped", "malformed",
]  # fmt: skip

# What `allow_private` opens. The rest opens only for an address that is itself named in `allow_hosts`.
LOCAL_CLASSES: frozenset[AddressClass] = frozenset({"loopback", "private", "unique-local", "shared (CGNAT)"})

# Cloud metadata services hand out credentials, some from addresses that look public (Azure) or merely private.
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

# First match wins: narrower before wider. Forms that carry an IPv4 address are denied whole, so the address inside
# needs no second judgement. Source: IANA special-purpose address registries, RFC 6890.
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
    """Return what kind of destination a literal address is; only `public` may be reached by default.

    Takes what a resolver returns (`203.0.113.9`, `fe80::1%eth0`). Anything unknown is not public.
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
