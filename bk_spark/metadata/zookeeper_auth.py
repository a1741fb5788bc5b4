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
from bk_spark.metadata.uri import speaks_tls
from bk_spark.tls.client_contexts import ClientContexts
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
