"""Network addresses that tasks may call: public ones, and networks the operator allows."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from mainspring.domain.errors import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Addresses that the standard library considers global but tasks must not reach: a metadata service with a public
# address, translated and relayed IPv4, and former private space.
_REFUSED: tuple[tuple[Network, str], ...] = (
    (ip_network("168.63.129.16/32"), "a metadata service"),
    (ip_network("169.254.0.0/16"), "link-local, where metadata services are"),
    (ip_network("fd00:ec2::/32"), "a metadata service"),
    (ip_network("100.64.0.0/10"), "carrier-grade NAT"),
    (ip_network("192.0.0.0/24"), "reserved"),
    (ip_network("192.88.99.0/24"), "a relay"),
    (ip_network("64:ff9b:1::/48"), "translated"),
    (ip_network("fec0::/10"), "private"),
)
_NAT64 = ip_network("64:ff9b::/96")


def read_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse networks and addresses such as `10.0.0.0/8`, `127.0.0.1` or `::1`."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text.strip()))
        except ValueError as error:
            raise Invalid(f"{text!r} is not a network: {error}; write it like 10.0.0.0/8 or 127.0.0.1") from None
    return tuple(found)


def read_address(text: str) -> Address:
    """Parse a resolved address; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    address = ip_address(text.partition("%")[0])
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return inner or address


def site_of(host: str) -> str:
    """Return the address under which a client is counted: for IPv6 its /64 network, all of which is usually its own."""
    try:
        address = read_address(host)
    except ValueError:
        return host
    return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)


def refusal(address: Address, allowed: Sequence[Network] = ()) -> str | None:
    """Return why a task may not call an address, or None if it may."""
    if any(address in network for network in allowed):
        return None
    for network, why in _REFUSED:
        if address in network:
            return why
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address.is_private:
        return "private"
    if not address.is_global or address.is_reserved:
        return "reserved"
    inner = _carried(address)
    return None if inner is None else refusal(inner, allowed)


def _carried(address: Address) -> IPv4Address | None:
    """The IPv4 address behind a NAT64, 6to4 or Teredo address."""
    if not isinstance(address, IPv6Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or (address.teredo[1] if address.teredo else None)
