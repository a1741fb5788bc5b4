"""How a session shows who it is, the access control of the znodes it creates, and refusals.

An identity is one of

- ``scheme:credential``, such as ``digest:user:password``, which the session sends;
- ``sasl:user:password``, which it proves by SASL's DIGEST-MD5 without sending it (needs ``bk-spark[sasl]``);
- ``x509``: the certificate with which it speaks TLS.

New znodes get the access control of the root, so one place says who the cluster's members are. While there is no root, they
belong to the identity that makes them. To ZooKeeper a wrong digest credential is just another identity, so it is noticed only
at the first znode that belongs to somebody else.

kazoo's log of requests and answers would contain credentials, and ledgers' metadata with their passwords.

Ref: ZooKeeper Programmer's Guide, "ZooKeeper access control using ACLs".

The access control of the root names members alone. Znodes that others may read name them, too, with READ and nothing else. A
session that may not read the root, and may read the cluster's layout, is one of theirs: it changes nothing, and is told so
before ZooKeeper is asked. Ref: DESIGN.md, "Who may do what", "Direct readers".
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.security import ACL, CREATOR_ALL_ACL, Id, Permissions, make_digest_acl

from bk_spark.config import BY_CERTIFICATE, TLS_NAMES, ZOOKEEPER_AUTH_NAME, check_zookeeper_auth
from bk_spark.errors import ConfigError, MetadataAccessError, State
from bk_spark.metadata.store import Versioned, name_of, parent_of
from bk_spark.metadata.uri import speaks_tls
from bk_spark.metadata.znodes import Znodes
from bk_spark.tls.client_contexts import ClientContexts, subject_of
from bk_spark.tls.files import TlsFiles, TlsSource

REFUSED = (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.InvalidACLError)
"""Answers of a server that refuses this session. They say nothing about what is at the path."""

EVERYWHERE = "any path"
_CHANGES = Permissions.ALL & ~Permissions.READ

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionSecurity:
    """Who a session is, and whom it trusts."""

    auth: str = field(default="", repr=False)
    contexts: ClientContexts | None = None
    """None: the connection is in clear."""

    @classmethod
    def of(cls, uri: str, auth: str, tls: TlsFiles | None) -> SessionSecurity:
        """What a good URI and the settings say. Raises ConfigError where they do not fit together."""
        check_zookeeper_auth(auth)
        if not speaks_tls(uri):
            if auth == BY_CERTIFICATE:
                remedy = f"it shows a certificate over TLS alone: end the metadata URI {uri} with ?tls=true"
                raise ConfigError(ZOOKEEPER_AUTH_NAME, auth, remedy)
            return cls(auth)
        if tls is None or not tls.ca:
            remedy = f"the metadata URI {uri} asks for TLS: name a PEM file of the authorities of ZooKeeper's servers"
            raise ConfigError(TLS_NAMES["tls_ca"], None, remedy)
        if auth == BY_CERTIFICATE and not tls.certificate:
            raise ConfigError(TLS_NAMES["tls_certificate"], None, f"it is the identity that {ZOOKEEPER_AUTH_NAME} asks for")
        return cls(auth, ClientContexts(TlsSource(tls)))

    @property
    def own_acl(self) -> list[ACL] | None:
        """The access control that lets this identity do everything, and nobody else anything; None: everybody may."""
        if not self.auth:
            return None
        scheme, credential = self._parts
        shows_certificate = self.contexts is not None and self.contexts.files.certificate
        if scheme == "digest" and shows_certificate:
            return [make_digest_acl(*credential.split(":", 1), all=True)]
        if scheme == "sasl" and shows_certificate:
            return [ACL(Permissions.ALL, Id(scheme, credential.partition(":")[0]))]
        return list(CREATOR_ALL_ACL)  # all identities of the session, and so the certificate's beside another one

    def identity(self) -> str:
        """Who the session is, for people: without a secret."""
        scheme, credential = self._parts
        if scheme == BY_CERTIFICATE or not scheme:
            return f"x509:{subject_of(self.contexts.files)}" if self.contexts and self.contexts.files.certificate else "nobody"
        return f"{scheme}:{credential.partition(':')[0]}"

    def kazoo_options(self) -> dict[str, Any]:
        """Arguments of a kazoo client."""
        scheme, credential = self._parts
        options: dict[str, Any] = {"default_acl": self.own_acl}
        if scheme == "sasl":
            options["sasl_options"] = _sasl_options(credential)
        elif credential:
            options["auth_data"] = [(scheme, credential)]
        return options

    @property
    def _parts(self) -> tuple[str, str]:
        scheme, _, credential = self.auth.partition(":")
        return scheme, credential


OPEN = SessionSecurity()
"""In clear, and without an identity."""


def _sasl_options(credential: str) -> dict[str, str]:
    """Raises ConfigError where the library is missing."""
    if importlib.util.find_spec("puresasl") is None:
        raise ConfigError("pure-sasl", State("not installed"), "sasl:user:password needs it: pip install 'bk-spark[sasl]'")
    user, _, password = credential.partition(":")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


def access_refused(uri: str, path: str, *, has_auth: bool) -> MetadataAccessError:
    """The error of a session that was refused at ``path``."""
    given, why = (State("(not shown)"), "to this identity") if has_auth else (None, "without a credential")
    remedy = f"ZooKeeper refuses access to {path} of {uri} {why}: give that of a member of the cluster, such as a bookie"
    return MetadataAccessError(ZOOKEEPER_AUTH_NAME, given, remedy)


def is_hidden(acl: Sequence[ACL]) -> bool:
    """Whether ZooKeeper left out hashes, as it does for who may not change the access control: it is no good for a copy."""
    return any(entry.id.scheme == "digest" and entry.id.id.endswith(":x") for entry in acl)


def warn_of_open_root(uri: str, acl: Sequence[ACL]) -> None:
    """Log a warning if everybody may change the root in which an authenticated session works."""
    if any(entry.id.scheme == "world" and entry.perms & _CHANGES for entry in acl):
        logger.warning(
            "everybody may change the root of %s and what is made in it: 'bk-spark cluster protect' gives it to its members",
            uri,
        )


def hide_requests(record: logging.LogRecord) -> bool:
    """A filter of kazoo's logger: drops the requests and answers that it logs for debugging."""
    return record.levelno >= logging.INFO


def reading(acl: Sequence[ACL]) -> tuple[str, ...]:
    """The identities that may read and nothing else, as ``scheme:id``. Everybody is no identity."""
    return tuple(f"{one.id.scheme}:{one.id.id}" for one in acl if one.perms == Permissions.READ and one.id.scheme != "world")


def shared_with(members: Sequence[ACL], readers: Sequence[str]) -> list[ACL]:
    """The access control of what the members have, and the readers may read."""
    split = (one.partition(":") for one in readers)
    return [*members, *(ACL(Permissions.READ, Id(scheme, name)) for scheme, _, name in split)]


class DirectReader:
    """What refuses a session of such an identity, with the names of the logs that it has met."""

    def __init__(self, identity: str, znodes: Znodes) -> None:
        self._identity = identity
        self._znodes = znodes
        self._named: dict[str, bytes] = {}
        """The name of each log that the session found → the value of that name, which has the log's uid in it."""

    def saw(self, path: str, value: bytes) -> None:
        """Note what the session has read: names of logs are remembered."""
        if parent_of(path) == self._znodes.log_names:
            self._named[name_of(path)] = value

    def saw_many(self, paths: Sequence[str], found: Sequence[Versioned | None]) -> None:
        for path, one in zip(paths, found, strict=True):
            if one is not None:
                self.saw(path, one.value)

    def may_not_read(self, path: str) -> MetadataAccessError:
        if path == self._znodes.log_names:
            return self._refusal("list the logs: give the name of one")
        name, below = self._of_log(path)
        if name is not None and below in ("", "head"):
            remedy = f"a member of the cluster lets it, with 'bk-spark log readers {name} --add IDENTITY'"
            return self._refusal(f"read log '{name}': {remedy}")
        what = path if name is None else f"'{below}' of log '{name}'"
        return self._refusal(f"read {what}: members of the cluster may, and of a ledger's metadata the readers of its log")

    def may_not_change(self, *paths: str) -> MetadataAccessError:
        name, _ = self._of_log(paths[0]) if paths else (None, "")
        what = "the cluster" if name is None else f"log '{name}'"
        return self._refusal(f"change {what}: give the credential of a member of the cluster for that")

    def _of_log(self, path: str) -> tuple[str | None, str]:
        """The name of the log that a path is of, as far as the session knows, and where it is below the log's own path."""
        if parent_of(path) == self._znodes.log_names:
            return name_of(path), ""
        uid, _, below = path.removeprefix(self._znodes.log_data + "/").partition("/")
        known = next((name for name, value in self._named.items() if uid.encode() in value), None) if uid else None
        return known, below

    def _refusal(self, what: str) -> MetadataAccessError:
        given = State(f"that of {self._identity}, which reads single logs and is no member of the cluster")
        return MetadataAccessError(ZOOKEEPER_AUTH_NAME, given, f"it may not {what}")
