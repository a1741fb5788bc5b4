"""A gateway without identities: whoever reaches it may do everything."""

from __future__ import annotations

from bk_spark.gateway.rights import ANONYMOUS, CallerIdentity, Right


class OpenAccess:
    """As ``Access``. Callers are told apart by their certificates alone, for limits and for the log."""

    def identify(self, token: str | None, certificate: str | None, peer: str) -> CallerIdentity:
        return CallerIdentity("certificate", certificate) if certificate else ANONYMOUS

    def check(self, identity: CallerIdentity, right: Right, log: str, peer: str = "") -> None:
        """Everything is allowed."""

    def may_see(self, identity: CallerIdentity, log: str) -> bool:
        return True
