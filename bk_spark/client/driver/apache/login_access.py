"""How a client makes its connections to Apache's bookies secure, and shows them who it is."""

from __future__ import annotations

from bk_spark.client.driver.apache.sasl import Credential
from bk_spark.host_port import HostPort
from bk_spark.tls.client_contexts import ClientContexts

REFUSED_S = 5.0
"""So long a bookie that refused the credential is not asked again: each request would authenticate anew, and be refused."""


class LoginAccess:
    """Of one client. Lives on the event loop."""

    def __init__(self, contexts: ClientContexts | None = None, credential: Credential | None = None) -> None:
        """Without ``contexts`` connections are in clear, without ``credential`` the client does not authenticate."""
        self.contexts = contexts
        self.credential = credential
        self._refused: dict[HostPort, tuple[float, str]] = {}
        """Until when, and why: of the bookies of a cluster, each at its last places."""

    def without_login(self) -> LoginAccess:
        """For bookies that do not ask."""
        return LoginAccess(self.contexts) if self.credential is not None else self

    def refused(self, place: HostPort, problem: str, now_s: float) -> None:
        """Note that the bookie there has refused the credential."""
        self._refused[place] = now_s + REFUSED_S, problem

    def check(self, place: HostPort, now_s: float) -> None:
        """Raises ConnectionError, with the reason, where the bookie has refused the credential just now."""
        until_s, problem = self._refused.get(place, (0.0, ""))
        if now_s < until_s:
            raise ConnectionError(problem)
        self._refused.pop(place, None)
