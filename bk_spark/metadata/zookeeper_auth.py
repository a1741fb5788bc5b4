"""A session's identity for ZooKeeper: its credential, the access control of the znodes it creates, and refusals.

Only its own identity can read and write the znodes of an authenticated session. To ZooKeeper a wrong digest credential is just
another identity, so it is noticed only at the first znode that belongs to somebody else.

kazoo's log of requests and answers would contain credentials, and ledgers' metadata with their passwords.

Ref: ZooKeeper Programmer's Guide, "ZooKeeper access control using ACLs".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.security import ACL, CREATOR_ALL_ACL, Permissions

from bk_spark.config import ZOOKEEPER_AUTH_NAME
from bk_spark.errors import MetadataAccessError, State

REFUSED = (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.InvalidACLError)
"""Answers of a server that refuses this session. They say nothing about what is at the path."""

EVERYWHERE = "any path"
_CHANGES = Permissions.ALL & ~Permissions.READ

logger = logging.getLogger(__name__)


def identity_options(auth: str) -> dict[str, Any]:
    """The arguments of a kazoo client with the identity ``scheme:credential``; none if ``auth`` is empty."""
    if not auth:
        return {}
    scheme, _, credential = auth.partition(":")
    return {"auth_data": [(scheme, credential)], "default_acl": CREATOR_ALL_ACL}


def access_refused(uri: str, path: str, *, has_auth: bool) -> MetadataAccessError:
    """The error of a session that was refused at ``path``."""
    given, why = (State("(not shown)"), "to this identity") if has_auth else (None, "without a credential")
    remedy = f"ZooKeeper refuses access to {path} of {uri} {why}: give the credential that the cluster was initialised with"
    return MetadataAccessError(ZOOKEEPER_AUTH_NAME, given, remedy)


def warn_of_open_root(uri: str, acl: Sequence[ACL]) -> None:
    """Log a warning if everybody may change the root in which an authenticated session works."""
    if any(entry.id.scheme == "world" and entry.perms & _CHANGES for entry in acl):
        logger.warning(
            "%s was initialised without a credential: everybody may change its root, and only who has one reads what it makes",
            uri,
        )


def hide_requests(record: logging.LogRecord) -> bool:
    """A filter of kazoo's logger: drops the requests and answers that it logs for debugging."""
    return record.levelno >= logging.INFO
