"""Kinds of addresses: public ones, and those of a machine, a private network or a cloud's metadata service.

An IPv6 address may contain an IPv4 one; then both are checked. docs/egress.md says why.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NOT_PUBLIC = [
    (ip_network(cidr), kind)
    for kind, cidrs in {
        "loopback": "127.0.0.0/8 ::1",
        "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7",
        "link-local": "169.254.0.0/16 fe80::/10",
        "site-local": "fec0::/10",
        "carrier-grade NAT": "100.64.0.0/10",
        "multicast": "224.0.0.0/4 ff00::/8",
        "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
        "benchmarking": "198.18.0.0/15 2001:2::/48",
        "6to4": "192.88.99.0/24 2002::/16",
        "Teredo": "2001::/32",
        # The last three are everything outside 2000::/3, the only global unicast range of IPv6.
        "reserved": "0.0.0.0/8 192.0.0.0/24 240.0.0.0/4 2001::/23 ::/3 4000::/2 8000::/1",
    }.items()
    for cidr in cidrs.split()
]

METADATA = [
    ip_network(cidr)
    for cidr in (
        "169.254.0.0/16",  # AWS, Google, Azure, OpenStack and most others use an address in this range
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's wire server; a public address
        "192.0.0.192",  # Oracle
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254",  # Google
        "fd00:42::42",  # Scaleway
        "fe80::a9fe:a9fe",  # OpenStack
    )
]

_NAT64 = ip_network("64:ff9b::/96")
TEREDO = ip_network("2001::/32")
_6TO4 = ip_network("2002::/16")
_IPV4_LAST = (_NAT64, ip_network("64:ff9b:1::/48"), ip_network("::ffff:0:0:0/96"))
"""Prefixes whose last 32 bits are an IPv4 address: NAT64, local NAT64, SIIT."""
ISATAP = (0x00005EFE, 0x02005EFE)
_32 = 0xFFFFFFFF


def parts_of(address: Address) -> list[Address]:
    """Return the address and every IPv4 address in it. A mapped address is dialled as IPv4, so only that counts."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    bits = int(address)
    found: list[Address] = [address]
    if address in _6TO4:
        found.append(IPv4Address(bits >> 80 & _32))
    if address in TEREDO:
        found += [IPv4Address(bits >> 64 & _32), IPv4Address(~bits & _32)]
    compatible = 1 < bits <= _32
    if compatible or bits >> 32 & _32 in ISATAP or any(address in network for network in _IPV4_LAST):
        found.append(IPv4Address(bits & _32))
    return found


def kind_of(address: Address) -> str:
    """Return the reason why an address is not public; empty if it is public."""
    if address in _NAT64:  # a network with only IPv6 reaches public IPv4 through it
        return ""
    return next((kind for network, kind in NOT_PUBLIC if address in network), "")


def own_addresses() -> list[Network]:
    """Return this machine's addresses: all of them on Linux (from /proc), elsewhere those that it would send from."""
    found: list[Network] = []
    for line in _lines("/proc/net/fib_trie"):
        match line.split():
            case ["|--", first]:
                leaf = first
            case [length, _, "LOCAL", *_]:
                found.append(ip_network(f"{leaf}{length}"))
    found += [IPv6Network(int(line.split()[0], 16)) for line in _lines("/proc/net/if_inet6")]
    for family, elsewhere in ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))  # sends nothing
                found.append(ip_network(probe.getsockname()[0].partition("%")[0]))
        except OSError:
            continue
    return found


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []


def is_loopback(host: str) -> bool:
    """Whether it is a name or address of this machine that other machines cannot reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
