"""What `allow_private` and `allow_hosts` open and what they keep shut."""

import pytest

from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError
from pegboard.model.error import DefinitionError


def allows(rules: Destinations, host: str, *addresses: str, port: int = 443) -> bool:
    try:
        rules.check_name(host, port)
        rules.check_addresses(host, port, addresses)
    except EgressError as exc:
        if any(address in exc.error.message for address in addresses if address != host):
            raise
        return exc.error.kind != "blocked_destination"
    return True


def test_one_private_address_among_public_ones_refuses_the_host() -> None:
    assert allows(Destinations(), "a.test", "1.1.1.1", "8.8.8.8")
    assert not allows(Destinations(), "a.test", "1.1.1.1", "10.0.0.1")


def test_allow_private_opens_local_networks_but_not_metadata_or_link_local() -> None:
    rules = Destinations(allow_private=True)
    opened = {
        a: allows(rules, "a.test", a) for a in ("10.0.0.1", "127.0.0.1", "::1", "fd12::1", "100.64.0.1", "1.1.1.1")
    }
    assert all(opened.values())
    shut = (
        "169.254.169.254",
        "100.100.100.200",
        "fd00:ec2::254",
        "169.254.1.1",
        "::ffff:10.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
    )
    assert not any(allows(rules, "a.test", address) for address in shut)


def test_allow_hosts_restricts_to_the_listed_names_and_does_not_open_private_addresses() -> None:
    rules = Destinations(allow_hosts=("api.example.com", "*.cdn.example.com:8443", "EXAMPLE.org"))
    assert allows(rules, "api.example.com", "1.1.1.1")
    assert allows(rules, "API.example.com.", "1.1.1.1")
    assert allows(rules, "example.org", "1.1.1.1")
    assert allows(rules, "a.b.cdn.example.com", "1.1.1.1", port=8443)
    assert not allows(rules, "a.cdn.example.com", "1.1.1.1", port=443)
    assert not allows(rules, "cdn.example.com", "1.1.1.1", port=8443)
    assert not allows(rules, "api.example.com.evil.test", "1.1.1.1")
    assert not allows(rules, "xapi.example.com", "1.1.1.1")
    assert not allows(rules, "api.example.com", "10.0.0.1")


def test_allow_hosts_with_allow_private_opens_just_that_host_and_port() -> None:
    rules = Destinations(allow_private=True, allow_hosts=("localhost:3001",))
    assert allows(rules, "localhost", "::1", "127.0.0.1", port=3001)
    assert not allows(rules, "localhost", "127.0.0.1", port=3002)
    assert not allows(rules, "127.0.0.1", "127.0.0.1", port=3001)


@pytest.mark.parametrize("entry", ["10.1.0.0/16", "10.1.2.3", "10.1.2.3:443"])
def test_networks_and_addresses_are_matched_on_what_the_name_resolves_to(entry: str) -> None:
    rules = Destinations(allow_private=True, allow_hosts=(entry,))
    assert allows(rules, "inside.test", "10.1.2.3")
    assert not allows(rules, "inside.test", "10.1.2.3", "10.2.0.1")
    assert not allows(rules, "outside.test", "1.1.1.1")


def test_ipv6_entries_are_read_with_and_without_brackets() -> None:
    for entry in ("::1", "[::1]", "[::1]:8080"):
        assert allows(Destinations(allow_private=True, allow_hosts=(entry,)), "::1", "::1", port=8080)
    assert not allows(Destinations(allow_private=True, allow_hosts=("[::1]:8080",)), "::1", "::1", port=80)


def test_a_special_address_opens_only_when_it_is_named_itself() -> None:
    rules = Destinations(allow_private=True, allow_hosts=("169.254.169.254",))
    assert allows(rules, "169.254.169.254", "169.254.169.254", port=80)
    assert not allows(Destinations(allow_hosts=("169.254.169.254",)), "169.254.169.254", "169.254.169.254", port=80)
    assert not allows(Destinations(allow_private=True, allow_hosts=("meta.test",)), "meta.test", "169.254.169.254")


@pytest.mark.parametrize("entry", ["", "http://a.test", "a.test:0", "a.test:99999", "10.0.0.5/8", "user@a.test", "a b"])
def test_an_entry_that_cannot_be_read_is_refused_with_its_text(entry: str) -> None:
    with pytest.raises(DefinitionError, match="allow_hosts has"):
        Destinations(allow_hosts=(entry,))


def test_an_address_that_names_an_interface_is_refused_whatever_is_opened() -> None:
    opened = Destinations(allow_private=True, allow_hosts=("fe80::/10",))
    opened.check_addresses("here", 80, ["fe80::1"])
    with pytest.raises(EgressError, match="scoped"):
        opened.check_addresses("here", 80, ["fe80::1%1"])
