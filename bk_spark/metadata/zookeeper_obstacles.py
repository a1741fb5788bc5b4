"""Why no ZooKeeper server can be connected to: names without an address, and TLS on one side alone or with a bad certificate.

kazoo tries again and again, and says nothing. This is found out beside its attempts.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from bk_spark.host_port import HostPort
from bk_spark.metadata.zookeeper_auth import SessionSecurity
from bk_spark.tls.diagnosis import ZOOKEEPER, diagnose

_DIAGNOSE_AFTER_S = 0.5
"""A first connection that takes so long may meet an obstacle. It is normally made within tens of milliseconds. A server that
starts, or gets new files, may seem to be one. So it is looked again after the same time, and two looks must say the same."""

_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""How a name server says that there is none. The second is no constant of every system."""


class Obstacles:
    """What is known of them. ``spawn`` runs a function on a thread of its own."""

    def __init__(self, hosts: Sequence[str], security: SessionSecurity, spawn: Callable[[Callable[[], None]], object]) -> None:
        self._hosts = hosts
        self._security = security
        self._spawn = spawn
        self._diagnosed: list[str] = []
        self._diagnosed_twice = False
        self._next_s: float | None = _DIAGNOSE_AFTER_S
        self.unknown = ""
        """Why no host has an address, once name servers say so of each of them; else empty."""
        spawn(self._look_names_up)

    @property
    def tls_problem(self) -> str:
        """What is wrong with TLS at one of the servers; empty if nothing is known."""
        return next(filter(None, self._diagnosed), "")

    @property
    def text(self) -> str:
        """What is known, in a few words; empty if nothing is."""
        return self.unknown or ("TLS does not work" if self.tls_problem else "")

    def are_certain(self, waited_s: float) -> bool:
        """Whether no attempt can succeed. To be asked again and again while the first connection is made."""
        if self._next_s is not None and waited_s >= self._next_s:
            self._next_s = None
            self._spawn(lambda: self._diagnose(waited_s))
        return bool(self.unknown) or self._diagnosed_twice

    def _look_names_up(self) -> None:
        self.unknown = unknown_hosts(self._hosts)  # nothing ends a look-up before its own time

    def _diagnose(self, waited_s: float) -> None:
        former, self._diagnosed = self._diagnosed, tls_problems(self._hosts, self._security)
        self._diagnosed_twice = self._diagnosed == former and all(former)
        self._next_s = waited_s + _DIAGNOSE_AFTER_S


def tls_problems(hosts: Sequence[str], security: SessionSecurity) -> list[str]:
    """Of each server what is wrong with TLS, or an empty string. Connects to each of them, which takes seconds at worst."""
    files = security.contexts.files if security.contexts else None
    return [diagnose(place.host, place.port, files, ZOOKEEPER) or "" for place in map(HostPort.parse, hosts)]


def first_tls_problem(hosts: Sequence[str], security: SessionSecurity) -> str:
    """As ``tls_problems``, of the first server that has one; empty if none has."""
    return next(filter(None, tls_problems(hosts, security)), "")


def unknown_hosts(hosts: Sequence[str]) -> str:
    """Why none of them has an address; empty if one may have. A look-up that fails for another reason is no "no"."""
    unknown = []
    for place in map(HostPort.parse, hosts):
        try:
            socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except socket.gaierror as problem:
            if problem.errno not in _NO_ADDRESS:
                return ""
            unknown.append(f"the host name {place.host} has no address: {problem.strerror}")
        except UnicodeError as problem:
            unknown.append(f"the host name {place.host} has no address: {problem}")
        except OSError:
            return ""
        else:
            return ""
    return "; ".join(unknown)
