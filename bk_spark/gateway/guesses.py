"""Counts calls with wrong tokens by where they come from. Pure: the time is an argument.

A secret has 256 bits, so no speed of guessing finds one; the counts are there so that it is seen, and so that it fills neither
logs nor memory. An address is not shut out for its guesses: behind a balancer, or a gateway of a network, one address is many
clients, and whoever guesses there would take the others' access away. To look a wrong token up costs microseconds.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

WINDOW_S = 60.0
MANY = 20
"""Wrong tokens of one address within WINDOW_S that are no forgotten renewal: such a client tries every few seconds."""
MOST_ADDRESSES = 10_000
"""Addresses that are counted at once, some 3 MB. The one that failed longest ago is forgotten first."""


@dataclass(slots=True)
class _Count:
    began_s: float
    wrong: int = 0


class Guesses:
    """Wrong tokens of each address in its current window."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def wrong(self, host: str, now_s: float) -> int:
        """Count one more; gives back how many they are since the window of this address began."""
        key = network_of(host)
        count = self._counts.get(key)
        if count is None or now_s - count.began_s >= WINDOW_S:
            count = self._counts[key] = _Count(now_s)
        count.wrong += 1
        self._counts.move_to_end(key)
        if len(self._counts) > MOST_ADDRESSES:
            self._counts.popitem(last=False)
        return count.wrong


def network_of(host: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, for each host has all of it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))
