"""Hosts and ports: how they are read and written, in commands, settings, URIs, registrations, messages and channels.

Inside of the program a host is a name or an address without brackets, an IPv6 address in its short form (RFC 5952): sockets,
certificates and gRPC compare it as it stands. Beside a port an IPv6 address stands in brackets, ``[::1]:3181``. People may give
one with brackets or without.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_NAME = re.compile(r"[^\s/,:\[\]%@]{1,255}")
"""Of a host. gRPC would take other texts for other kinds of addresses, such as Unix sockets."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where something listens. ``str`` writes what ``parse`` reads."""

    host: str
    """As ``parse_host`` returns it."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """``host:port``, or ``[address]:port`` for IPv6. Raises ValueError, with a sentence that says what is wrong."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError(f"'{text}' has no port from 1 to 65535 at its end: write host:port, or [address]:port for IPv6")
        if ":" in host and not host.startswith("["):
            raise ValueError(f"'{text}' does not say where its address ends: write an IPv6 address in brackets, [address]:port")
        return cls(parse_host(host), int(port))


def why_not_bound(problem: OSError) -> str:
    """Why nothing can listen at an address, without the address, which the standard library repeats."""
    text = problem.strerror or str(problem)
    if text.startswith("error while attempting to bind"):  # asyncio's form
        return text.rpartition("): ")[2]
    return text.partition(" (while attempting to bind")[0]


def parse_host(text: str) -> str:
    """A host name or address, an IPv6 address with brackets or without. Raises ValueError, with a sentence."""
    is_bracketed = text.startswith("[") and text.endswith("]")
    inner = text[1:-1] if is_bracketed else text
    if is_bracketed or ":" in inner:
        if "%" in inner:
            raise ValueError(f"'{text}' has a zone, which only this machine knows: give an address that others reach as well")
        try:
            return ipaddress.IPv6Address(inner).compressed
        except ValueError:
            raise ValueError(f"'{text}' is not an IPv6 address, such as ::1 or [2001:db8::7], and no host name") from None
    if _NAME.fullmatch(inner) is None:
        raise ValueError(f"'{text}' is not a host name or an address, such as bookie1, 10.0.0.7 or ::1")
    return inner


def is_any_address(host: str) -> bool:
    """Whether it stands for all addresses of a machine: one may listen there, and connect to none."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
