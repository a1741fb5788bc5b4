"""Who asks a gateway, and may he: the shape that the server calls."""

from __future__ import annotations

from typing import Protocol

from bk_spark.gateway.rights import CallerIdentity, Right


class Access(Protocol):
    """Decides from memory, in microseconds, and never waits. From any thread.

    Every method raises MetadataUnavailableError while it cannot know what holds now: that is neither a yes nor a no.
    """

    def identify(self, token: str | None, certificate: str | None, peer: str) -> CallerIdentity:
        """Whom a call comes from: of its token where it shows one, and of its certificate's name only without.

        ``token`` is what follows ``Bearer``, ``peer`` is gRPC's name of the other end, such as ``ipv4:10.0.0.9:41234``.
        Raises UnauthenticatedError.
        """

    def check(self, identity: CallerIdentity, right: Right, log: str, peer: str = "") -> None:
        """Whether the identity may do this now. Raises AccessRefusedError; UnauthenticatedError once its token was revoked or
        has ended.

        Call it before anything of the log is looked at, and again before each batch of a stream. While a stream or a tail waits
        for rows, or for a client's batches, call it at least once a second: revocations end it so.
        """

    def may_see(self, identity: CallerIdentity, log: str) -> bool:
        """Whether it has any right for the log. Listings leave out all others."""
