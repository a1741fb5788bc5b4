"""The keys of those who write to keyed ledgers that others made: who recovers or copies one reads the secret of its log.

Whoever only reads a keyed ledger does not need it.
"""

from __future__ import annotations

from dataclasses import replace

from bk_spark.entries.digest import write_proof
from bk_spark.entries.log_secret import SECRET_NAME, decode_secret, lost_secret
from bk_spark.metadata.ledger_metadata import LOG_TAG, LedgerMetadata
from bk_spark.metadata.store import MetadataStore, find
from bk_spark.metadata.znodes import Znodes

MAX_KNOWN = 1_000
"""Secrets that a process remembers: a worker that copies ledgers meets few logs at a time. One more forgets all others."""


class LogSecrets:
    """Of one cluster. Threads may share it."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._known: dict[str, bytes] = {}

    def writable(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """The same metadata, with what proves to bookies that its owner may write. Of a ledger without keys as it is.

        Raises CorruptionError where the secret is gone or is not the ledger's; MetadataAccessError where this client may not
        read it; MetadataUnavailableError.
        """
        if not metadata.is_keyed or metadata.write_proof:
            return metadata
        uid = (metadata.custom(LOG_TAG) or b"").decode(errors="replace")
        proof = write_proof(self._secret(uid, metadata.ledger_id), metadata.ledger_id, metadata.creator_token)
        return replace(metadata, write_proof=proof)

    def _secret(self, uid: str, ledger_id: int) -> bytes:
        known = self._known.get(uid)
        if known is not None:
            return known
        found = find(self._store, f"{self._znodes.log(uid)}/{SECRET_NAME}") if _is_uid(uid) else None
        if found is None:
            raise lost_secret(uid, f"to ledger {ledger_id}")
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[uid] = secret = decode_secret(uid, found.value).secret
        return secret


def _is_uid(text: str) -> bool:
    """Nothing else may become a part of a path."""
    return bool(text) and all(one.isalnum() or one in "-_" for one in text) and text.isascii()
