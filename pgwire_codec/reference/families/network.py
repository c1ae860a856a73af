"""inet, cidr, macaddr and macaddr8."""

from __future__ import annotations

from functools import partial
from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import ValueReader, bad_value, check_size

_BYTES: Final = {2: 4, 3: 16}  # PGSQL_AF_INET, PGSQL_AF_INET6


def _render_inet(raw: bytes) -> bytes:
    """Return ``127.0.0.1``, ``10.0.0.0/8`` or ``2001:db8::/32``; a cidr always has its bits."""
    reader = ValueReader(raw)
    family = reader.number("B", "address family")
    bits = reader.number("B", "netmask bits")
    is_cidr = reader.number("B", "cidr flag")
    size = reader.number("B", "address length")
    if family not in _BYTES:
        raise bad_value(0, "an address family: 2 for IPv4, 3 for IPv6")
    if size != _BYTES[family]:
        raise bad_value(3, f"an address of {_BYTES[family]} bytes")
    if bits > size * 8:
        raise bad_value(1, f"a netmask of at most {size * 8} bits")
    if is_cidr > 1:
        raise bad_value(2, "a cidr flag: 0 or 1")
    address = reader.take(size, "address")
    reader.finish()
    text = _ipv4(address) if size == 4 else _ipv6(address)
    return (text if bits == size * 8 and not is_cidr else f"{text}/{bits}").encode()


def _render_mac(size: int, raw: bytes) -> bytes:
    """Return ``08:00:2b:01:02:03``, of which a macaddr8 has eight bytes."""
    return check_size(raw, size, "address").hex(":").encode()


def _ipv4(address: bytes) -> str:
    return ".".join(map(str, address))


def _ipv6(address: bytes) -> str:
    """Write an address as src/port/inet_net_ntop.c does."""
    words = [int.from_bytes(address[i : i + 2], "big") for i in range(0, 16, 2)]
    start, length = _longest_zeros(words)
    # The last four bytes are shown as IPv4 if the rest marks them as such: ::1.2.3.4,
    # ::ffff:1.2.3.4.
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return ("::" if length != 5 else "::ffff:") + _ipv4(address[12:])
    shown = [f"{word:x}" for word in words]
    if not length:
        return ":".join(shown)
    return ":".join(shown[:start]) + "::" + ":".join(shown[start + length :])


def _longest_zeros(words: list[int]) -> tuple[int, int]:
    """Return start and length of the first longest run of two zero words or more."""
    best = (0, 0)
    start = 0
    for index, word in enumerate([*words, 1]):
        if word:
            if index - start > max(best[1], 1):
                best = (start, index - start)
            start = index + 1
    return best


FAMILIES: Final = {
    "inet": Family(render=_render_inet),
    "cidr": Family(render=_render_inet),
    "macaddr": Family(render=partial(_render_mac, 6)),
    "macaddr8": Family(render=partial(_render_mac, 8)),
}
