"""Under which names an HTTP server may be asked, so that a page of another site cannot read what it serves.

A page that a browser loaded from ``evil.example`` may ask ``evil.example`` again, after that name was made to resolve to an
address of this server (DNS rebinding). The browser takes the answer for one of the page's own site, and lets the page read it.
But it sends the name in the Host header, which the page cannot change. An address in that header is safe: it cannot be made to
mean another server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class ServedHosts:
    """The host names and addresses of a server."""

    names: frozenset[str]
    """In lower case; addresses of IPv6 without brackets."""
    with_addresses: bool = False
    """Whether every address is one of its own: it listens at all of its machine's, and a router may give it more."""

    @classmethod
    def of(cls, host: str, further: Collection[str] = ()) -> ServedHosts:
        """Those of a server that listens at ``host``. The names of loopback count for it and for all addresses at once."""
        is_everywhere, address = host in ANY_ADDRESS, _address(host)
        is_local = is_everywhere or host.lower() == "localhost" or (address is not None and address.is_loopback)
        names = {host, *further, *(LOOPBACK if is_local else ())} - ANY_ADDRESS
        return cls(frozenset(name.lower().strip("[]") for name in names), is_everywhere)

    def has(self, name: str | None) -> bool:
        """Whether the host of a request, without its port, is one of these; None if the request names none."""
        return name is not None and (name in self.names or (self.with_addresses and _address(name) is not None))

    def __str__(self) -> str:
        return ", ".join([*sorted(self.names), *(["its addresses"] if self.with_addresses else [])])


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
