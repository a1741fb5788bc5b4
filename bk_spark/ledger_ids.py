"""Ledger ids: numbers that the metadata store hands out once each, rising.

The metadata store numbers the children of one path for good, in the order in which it commits their creation. Whoever
takes a number therefore knows that every id issued before is lower, whatever a lagging follower shows: a creation goes
through the leader.

Ref: Apache BookKeeper's ZkLedgerIdGenerator; docs/rules.md, storage rule 11.
"""

from __future__ import annotations

from contextlib import suppress

from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata_store import MetadataStore, NoNodeError
from bk_spark.znodes import Znodes, sequence_of


def new_ledger_id(store: MetadataStore, znodes: Znodes) -> int:
    """An id that no other ledger of this cluster got, above all that were issued before. Raises MetadataUnavailableError."""
    path = store.create_sequential(znodes.id_prefix, ephemeral=True)
    with suppress(NoNodeError, MetadataUnavailableError):  # it is ephemeral: at the latest it goes with this session
        store.delete(path)
    return sequence_of(path)


def highest_issued_id(store: MetadataStore, znodes: Znodes) -> int:
    """An id that no ledger issued so far is above. It costs one id, taken and never used. Raises MetadataUnavailableError."""
    return new_ledger_id(store, znodes)
