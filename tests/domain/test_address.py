"""Which addresses tasks may call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.address import read_address, read_networks, refusal
from mainspring.domain.errors import Invalid


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.8.9.10",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "172.16.5.5",
        "192.168.1.1",
        "fd00::1",
        "fe80::1",
        "fe80::1%eth0",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "168.63.129.16",
        "100.64.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.2.1",
        "2001:db8::1",
        "fec0::1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "64:ff9b:1::1",
        "::127.0.0.1",
    ],
)
def test_refused(text: str) -> None:
    assert refusal(read_address(text))


@pytest.mark.parametrize("text", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "172.32.0.1"])
def test_public(text: str) -> None:
    assert refusal(read_address(text)) is None


def test_what_an_operator_allows() -> None:
    allowed = read_networks(["10.1.0.0/16", "127.0.0.1", "::1"])
    for text in ("10.1.2.3", "127.0.0.1", "::1", "::ffff:10.1.2.3"):
        assert refusal(read_address(text), allowed) is None
    for text in ("10.2.0.1", "127.0.0.2", "169.254.169.254"):
        assert refusal(read_address(text), allowed)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "example.org", "10.0.0.0/33", ""])
def test_a_network_that_is_none(text: str) -> None:
    with pytest.raises(Invalid, match="is not a network"):
        read_networks([text])


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_in_all_its_clothes(address: object) -> None:
    plain = refusal(read_address(str(address)))
    assert refusal(read_address(f"::ffff:{address}")) == plain
    if plain:
        number = int.from_bytes(bytes(int(part) for part in str(address).split(".")))
        assert refusal(read_address(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"))
