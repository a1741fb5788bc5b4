"""Who may read and write a cluster's znodes: the members, which the access control of its root names.

``protect`` gives the root and everything below to them. Sessions of members follow the root
(``ZooKeeperStore.follow_access``): what they make after that belongs to the same members. What they made in between is found by
another pass, so passes are repeated until one has nothing to change. Identities that read single logs directly keep that.

Ref: ZooKeeper Programmer's Guide, "ZooKeeper access control using ACLs".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from kazoo.security import ACL, Id, Permissions

from bk_spark.config import ZOOKEEPER_AUTH_NAME
from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.metadata.store import BadVersionError, NoNodeError
from bk_spark.metadata.zookeeper import ZooKeeperStore
from bk_spark.metadata.zookeeper_auth import reading, shared_with

MAX_MEMBERS = 100
"""Each znode holds the names of all of them."""

MAX_PASSES = 10
"""A session follows within milliseconds, so only one that was away makes a third pass useful."""

_MEMBER = re.compile(r"(?!(?:world|ip|auth):)[a-z0-9_-]+:[^\r\n]+")
_DIGEST = re.compile(r"digest:[^:\r\n]+:[A-Za-z0-9+/]{27}=")
_FORM = "write it as ZooKeeper does: x509:SUBJECT, sasl:USER, or digest:USER:HASH"


def members(store: ZooKeeperStore, root: str) -> list[str]:
    """The identities that may do something with the root, such as ``digest:logs:…``, and ``world:anyone`` for everybody."""
    found = store.acls([root])[0]
    return [] if found is None else list(dict.fromkeys(f"{entry.id.scheme}:{entry.id.id}" for entry in found))


def protect(store: ZooKeeperStore, root: str, others: Sequence[str]) -> int:
    """Give the root and everything below to the identity of this session, and to the members ``others``.

    Returns how many znodes had another access control. Raises ConfigError, MetadataAccessError, NoNodeError without a root, and
    MetadataConflictError if somebody else gives it to other members meanwhile.
    """
    if store.own_acl is None:
        raise ConfigError(ZOOKEEPER_AUTH_NAME, None, "whoever protects a cluster must be one of its members")
    wanted = [*store.own_acl, *map(_entry, _checked(others))]
    store.set_acls([root], wanted)
    found = store.get(root)
    with suppress(BadVersionError):  # somebody else has told them, after the access control was set
        store.set(root, found.value, found.version)  # tells the sessions that follow the root
    given = store.acls([root])[0] or []
    changed = 0
    for _ in range(MAX_PASSES):
        of_pass = _give_below(store, root, given)
        changed += of_pass
        if (store.acls([root])[0] or []) != given:
            raise MetadataConflictError(f"the access control of {root}", "run it again, as one of its members now")
        if not of_pass:
            return changed
    remedy = f"{MAX_PASSES} passes found znodes below it with another access control: end who makes them, and run it again"
    raise ConfigError("the root", root, remedy)


def check_identity(what: str, given: str) -> None:
    """Raises ConfigError unless ``given`` is an identity as ZooKeeper writes it, which one can hold."""
    if given.startswith("digest:"):
        if not _DIGEST.fullmatch(given):  # what stands there may be a password: it is not shown
            raise ConfigError(what, given.split(":")[0] + ":…", f"{_FORM}; HASH is a SHA-1 sum of USER:PASSWORD in base64")
    elif not _MEMBER.fullmatch(given):
        raise ConfigError(what, given, _FORM)


def _checked(others: Sequence[str]) -> Sequence[str]:
    if len(others) >= MAX_MEMBERS:
        raise ConfigError("members (--member)", len(others), f"there may be {MAX_MEMBERS} with this session's own")
    for other in others:
        check_identity("a member (--member)", other)
    return others


def _entry(member: str) -> ACL:
    scheme, _, name = member.partition(":")
    return ACL(Permissions.ALL, Id(scheme, name))


def _give_below(store: ZooKeeperStore, path: str, wanted: Sequence[ACL]) -> int:
    """Returns how many were changed. Paths that go away meanwhile are left out."""
    try:
        paths = [f"{path}/{name}" for name in store.children(path)]
    except NoNodeError:
        return 0
    changed = store.change_acls(paths, lambda acl: shared_with(wanted, reading(acl)))  # who reads directly keeps that
    return changed + sum(_give_below(store, one, wanted) for one in paths)
