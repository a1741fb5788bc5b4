"""``Access`` by tokens, certificates and grants.

A call that shows a token is that token's, whatever certificate it shows besides: a token that does not hold never falls back to
another identity. Refusals are the same whether or not there is such a log, and come before anybody looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bk_spark.errors import AccessRefusedError, MetadataUnavailableError, UnauthenticatedError
from bk_spark.gateway.access_records import AccessChange
from bk_spark.gateway.gateway_audit import GatewayAudit
from bk_spark.gateway.guesses import MANY
from bk_spark.gateway.held_access import Held, HeldAccess
from bk_spark.gateway.rights import CERTIFICATE, CallerIdentity, Right, is_identity_name
from bk_spark.gateway.stored_access import StoredAccess
from bk_spark.gateway.tokens import StoredToken, parse_token
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes
from bk_spark.telemetry.audit_lines import Who

NO_CREDENTIAL = "it shows neither a token nor a certificate: send the header 'authorization: Bearer bks_…', or use TLS with one"
BAD_CERTIFICATE = "its certificate's name has characters that cannot be printed, or too many: no grant can name it"
UNKNOWN_TOKEN = "its token is not known here: it was revoked, or is not copied as it was printed"
ENDED_TOKEN = "its token has ended: an operator makes another one with 'bk-spark token create NAME --ends-in-days 90'"
GONE_TOKEN = "its token was revoked, or has ended, since the call began"
GUESSING = f"its address has sent more than {MANY} wrong tokens within a minute, and so has this call"


class GrantedAccess:
    """As ``Access``, by the tokens and grants in the metadata store. Made by ``granted_access``."""

    def __init__(self, held: HeldAccess, audit: GatewayAudit, wall_clock: Callable[[], float] = time.time) -> None:
        self._held = held
        self._audit = audit
        self._wall_clock = wall_clock

    def identify(self, token: str | None, certificate: str | None, peer: str) -> CallerIdentity:
        held = self._held.now()
        who = Who.of_peer(peer, certificate or "")
        if token is not None:
            stored = self._stored_token(held, token, who)
            self._audit.used(stored, who)
            return stored.identity
        if not certificate:
            raise self._unknown(NO_CREDENTIAL, who)
        if not is_identity_name(certificate):
            raise self._unknown(BAD_CERTIFICATE, who)
        return CallerIdentity(CERTIFICATE, certificate)

    def check(self, identity: CallerIdentity, right: Right, log: str, peer: str = "") -> None:
        held = self._held.now()
        if not self._lives(held, identity):
            raise UnauthenticatedError(GONE_TOKEN)
        if not held.rights.allows(identity, right, log):
            certificate = identity.name if identity.kind == CERTIFICATE else ""
            self._audit.refused(identity, right, log, Who.of_peer(peer, certificate))
            raise AccessRefusedError(str(identity), right.value, log)

    def may_see(self, identity: CallerIdentity, log: str) -> bool:
        held = self._held.now()
        return self._lives(held, identity) and held.rights.may_see(identity, log)

    def why_not_ready(self) -> str:
        """Why all calls are refused as unavailable now; empty if they are not."""
        try:
            self._held.now()
        except MetadataUnavailableError as problem:
            return str(problem)
        return ""

    def close(self) -> None:
        """End its thread, and tell what the audit log has counted. Answers then hold for as long as those of a store that went
        away."""
        self._held.close()
        self._audit.close()

    def _stored_token(self, held: Held, text: str, who: Who) -> StoredToken:
        shown = parse_token(text)
        stored = None if shown is None else held.content.tokens.get(shown.token_id)
        if shown is None or stored is None or not stored.is_of(shown):
            wrong = self._audit.wrong_token(UNKNOWN_TOKEN, who)
            raise UnauthenticatedError(UNKNOWN_TOKEN if wrong <= MANY else GUESSING)
        if stored.has_ended(self._now_ms()):
            raise self._unknown(ENDED_TOKEN, who)
        return stored

    def _lives(self, held: Held, identity: CallerIdentity) -> bool:
        """Whether what proved it still holds: of a token, that it is there and has not ended."""
        if not identity.token_id:
            return True
        stored = held.content.tokens.get(identity.token_id)
        return stored is not None and not stored.has_ended(self._now_ms())

    def _unknown(self, reason: str, who: Who) -> UnauthenticatedError:
        self._audit.unknown_caller(reason, who)
        return UnauthenticatedError(reason)

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)


def granted_access(store: MetadataStore, znodes: Znodes) -> GrantedAccess:
    """Read all tokens and grants, and hold them until ``close``. The store stays the caller's.

    Raises MetadataUnavailableError, CorruptionError, FormatVersionError.
    """
    audit = GatewayAudit(time.monotonic)

    def on_look(changes: Sequence[AccessChange]) -> None:
        for change in changes:
            audit.changed(change)
        audit.tick()

    return GrantedAccess(HeldAccess(StoredAccess(store, znodes), on_look), audit)
