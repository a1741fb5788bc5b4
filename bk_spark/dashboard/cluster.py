"""One look at the cluster as the metadata store knows it: who is registered, who is missing, what lacks copies."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass

from bk_spark.client.auditor_election import current_auditor
from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.metadata_store import NoNodeError
from bk_spark.registration import RegisteredBookie, instance_id
from bk_spark.under_replication import Mark, UnderReplication

MAX_MARKS = 1000
"""Marks that are read and shown: of more, the page says that there are more. A lost bookie can leave a million."""

WRITABLE, READ_ONLY, LOST = "writable", "read-only", "lost"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one look found."""

    instance_id: str
    registered: tuple[RegisteredBookie, ...]
    lost: tuple[str, ...]
    """Bookies that a cookie or a mark names, and that are not registered."""
    marks: tuple[Mark, ...]
    """The first ones, ascending by ledger."""
    marked: int
    """How many there are in all."""
    locks: dict[int, str]
    """Ledger → who works on its copies now."""
    autorecovery_enabled: bool
    auditor: str | None
    """Who is elected; None for nobody."""

    def modes(self) -> dict[str, str]:
        """Bookie → how it is. One that only a ledger names is not here, and as lost as the others."""
        modes = {one.bookie_id: READ_ONLY if one.read_only else WRITABLE for one in self.registered}
        return {**dict.fromkeys(self.lost, LOST), **modes}


def look_at_cluster(client: BookKeeper) -> Cluster:
    """Raises MetadataUnavailableError."""
    store, znodes = client.metadata_store, client.znodes
    registered = tuple(client.list_bookies())
    under = UnderReplication(store, znodes)
    marks = tuple(itertools.islice(under.marks(), MAX_MARKS))
    named = {bookie_id for mark in marks for bookie_id in mark.missing}
    with contextlib.suppress(NoNodeError):  # no bookie was ever formatted
        named |= set(store.children(znodes.cookies))
    present = {one.bookie_id for one in registered}
    return Cluster(
        instance_id(store, znodes),
        registered,
        tuple(sorted(named - present)),
        marks,
        under.count() if len(marks) == MAX_MARKS else len(marks),
        under.locks(),
        under.is_enabled(),
        current_auditor(store, znodes),
    )
