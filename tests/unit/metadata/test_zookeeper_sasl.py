"""What ends a session for good in SASL, and which access control is no good for a copy."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler
from kazoo.security import make_digest_acl

from bk_spark.metadata.zookeeper_auth import is_hidden
from bk_spark.metadata.zookeeper_sasl import use_sasl

SASL = {"mechanism": "DIGEST-MD5", "username": "ann", "password": "s3cret"}


@pytest.mark.parametrize(
    ("cause", "seen"), [(ConnectionDropped("the server is gone"), ConnectionDropped), (None, AuthFailedError)]
)
def test_a_connection_that_ends_in_sasl_is_no_refusal_and_a_refusal_is_one(
    monkeypatch: pytest.MonkeyPatch, cause: Exception | None, seen: type[Exception]
) -> None:
    def authenticate(*_: object) -> None:
        raise AuthFailedError("in SASL") from cause

    monkeypatch.setattr(ConnectionHandler, "_authenticate_with_sasl", authenticate)
    client = KazooClient(sasl_options=SASL)
    use_sasl(client)
    with pytest.raises(seen):
        client._connection._authenticate_with_sasl("host", 1.0)


def test_a_hash_that_was_left_out_is_seen() -> None:
    whole = make_digest_acl("ann", "s3cret", all=True)
    hidden = whole._replace(id=whole.id._replace(id="ann:x"))
    assert (is_hidden([whole]), is_hidden([whole, hidden])) == (False, True)
