"""Which addresses count as public."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.egress.destinations import classify

DENIED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "100.64.0.1": "shared (CGNAT)",
    "100.127.255.255": "shared (CGNAT)",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.0.1": "link-local",
    "169.254.169.254": "metadata service",
    "100.100.100.200": "metadata service",
    "168.63.129.16": "metadata service",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.1": "reserved",
    "192.0.0.192": "metadata service",
    "192.0.2.1": "documentation",
    "192.88.99.1": "tunnelling",
    "192.168.0.1": "private",
    "198.18.0.1": "benchmarking",
    "198.19.255.255": "benchmarking",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "IPv4-mapped",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:8.8.8.8": "IPv4-mapped",
    "::ffff:0:8.8.8.8": "tunnelling",
    "64:ff9b::7f00:1": "tunnelling",
    "64:ff9b:1::7f00:1": "tunnelling",
    "100::1": "reserved",
    "2001::1": "tunnelling",
    "2001:2::1": "benchmarking",
    "2001:10::1": "reserved",
    "2001:db8::1": "documentation",
    "2002:7f00:1::": "tunnelling",
    "2600::5efe:7f00:1": "tunnelling",
    "2600::200:5efe:a00:1": "tunnelling",
    "3fff::1": "documentation",
    "5f00::1": "reserved",
    "fc00::1": "unique-local",
    "fd00:ec2::254": "metadata service",
    "fe80::1": "link-local",
    "fe80::1%eth0": "scoped",
    "2600::1%1": "scoped",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "127.1": "malformed",
    "localhost": "malformed",
    "": "malformed",
}


@pytest.mark.parametrize(("address", "kind"), DENIED.items())
def test_special_addresses_are_not_public(address: str, kind: str) -> None:
    assert classify(address) == kind != "public"


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111"]
)
def test_ordinary_addresses_are_public(address: str) -> None:
    assert classify(address) == "public"


@given(st.ip_addresses(v=4))
def test_what_python_calls_not_global_is_never_public(address: IPv4Address) -> None:
    assert address.is_global or classify(str(address)) != "public"


@given(st.ip_addresses(v=6))
def test_what_python_calls_not_global_is_never_public_in_ipv6(address: IPv6Address) -> None:
    assert (address.is_global and not address.is_multicast) or classify(str(address)) != "public"


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "::{}", "64:ff9b::{}", "2600::5efe:{}", "::ffff:0:{}"]))
def test_no_address_is_public_because_it_wears_an_ipv6_form(address: IPv4Address, form: str) -> None:
    assert classify(form.format(address)) != "public"


@given(st.ip_addresses(v=4))
def test_6to4_and_teredo_are_never_public(address: IPv4Address) -> None:
    packed = address.packed
    assert classify(str(IPv6Address(b"\x20\x02" + packed + bytes(10)))) != "public"
    assert classify(str(IPv6Address(b"\x20\x01\x00\x00" + bytes(8) + bytes(b ^ 0xFF for b in packed)))) != "public"


@given(st.text(max_size=40))
def test_any_text_gets_an_answer_and_no_error(text: str) -> None:
    classify(text)
