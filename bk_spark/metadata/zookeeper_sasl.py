"""SASL of a session with ZooKeeper: kazoo's, where an end of the connection is no refusal.

Ref: RFC 2831; ZooKeeper's "Client-Server mutual authentication".
"""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler


def use_sasl(client: KazooClient) -> None:
    """Let a client that was not started yet try again where its connection ended in SASL. Others stay as they are."""
    former = client._connection
    if former.sasl_options is not None:
        client._connection = _SaslConnection(client, former.retry_sleeper, client.logger, former.sasl_options)


class _SaslConnection(ConnectionHandler):  # type: ignore[misc]
    """Servers tell a client that they refuse it. kazoo also gives up for good when a server ends, or is lost, in between."""

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, timeout)
        except AuthFailedError as refused:
            if isinstance(refused.__cause__, ConnectionDropped):
                raise refused.__cause__ from None
            raise
