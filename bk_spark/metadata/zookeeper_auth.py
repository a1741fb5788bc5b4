"""Who a session is to ZooKeeper, and what it may do: the credential, the access control of what it creates, refusals.

Every znode of an authenticated session is readable and writable by its identity alone. ZooKeeper gives a digest credential no
"wrong": it is another identity, which shows at the first znode that is not its own.

What kazoo would log of requests and answers holds credentials, and ledgers' metadata with their passwords.

Ref: ZooKeeper Programmer's Guide, "ZooKeeper access control using ACLs".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.security import ACL, CREATOR_ALL_ACL, Permissions

from bk_spark.config import ZOOKEEPER_AUTH_NAME
from bk_spark.errors import MetadataAccessError

REFUSED = (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.InvalidACLError)
"""Answers of a server that knows the path and refuses this session. They say nothing of what is there."""

_CHANGES = Permissions.ALL & ~Permissions.READ

logger = logging.getLogger(__name__)


def identity_options(auth: str) -> dict[str, Any]:
    """What a kazoo client is made with, for ``scheme:credential``; for an empty one, nothing."""
    if not auth:
        return {}
    scheme, _, credential = auth.partition(":")
    return {"auth_data": [(scheme, credential)], "default_acl": CREATOR_ALL_ACL}


def access_refused(uri: str, path: str, *, has_auth: bool) -> MetadataAccessError:
    """The error for the session that was refused at ``path``."""
    given, why = ("(not shown)", "to this identity") if has_auth else (None, "without a credential")
    remedy = f"ZooKeeper refuses access to {path} of {uri} {why}: give the credential that the cluster was initialised with"
    return MetadataAccessError(ZOOKEEPER_AUTH_NAME, given, remedy)


def warn_of_open_root(uri: str, acl: Sequence[ACL]) -> None:
    """Say so where everybody may change the root that an authenticated session works in."""
    if any(one.id.scheme == "world" and one.perms & _CHANGES for one in acl):
        logger.warning(
            "%s was initialised without a credential: everybody may change its root, and only who has one reads what it makes",
            uri,
        )


def hide_requests(record: logging.LogRecord) -> bool:
    """A filter of kazoo's logger: requests and answers, which it logs for debugging, are dropped."""
    return record.levelno >= logging.INFO
