"""Notices that the metadata store went back to an older copy, and gives ledger ids out again that this bookie holds.

A store issues an id before anything is stored under it (server/new_ledgers.py), so its next id is above all that a bookie
holds. If it is not, the store forgot ledgers that exist here. Their metadata is missing, although nobody deleted them. Until an
operator has raised the store's counter (``bk-spark cluster raise-ledger-ids``), the bookie

- deletes no ledger: that a ledger has no metadata, or metadata that names other bookies, proves nothing now,
- takes no normal add to a ledger of which it has nothing, and registers as read-only.

Apache's clients may choose the id of a ledger themselves. Such ids are left out: the bookie keeps a mark with those ledgers.

Ids that clients are given meanwhile move the counter on, past what is held here. So the finding is kept in the store, under
the name of the bookie, and only the command removes it.

Ref: docs/rules.md, protocol rule 64; docs/deployment/backup.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from bk_spark.bookie.background_task import BackgroundTask, TaskStatus
from bk_spark.bookie.space.garbage_collection import ClusterMember
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.store import NodeExistsError, find

LOOK_S = 10.0
"""Between two looks, which cost three reads of the store. A session ends before its store can go back, which takes as long."""

MOST_CHOSEN = 1_000
"""So many ledgers are looked up at most. With more, the store counts as one that went back, until they are known."""

logger = logging.getLogger(__name__)


def ids_given_out_again(storage: StoredLedgers, cluster: ClusterMember) -> str:
    """Why the store may give out ids again that are held here; "" if it does not. Keeps the finding in the store.

    Raises MetadataUnavailableError, MetadataConflictError.
    """
    held = storage.highest_issued_id()  # first: what is issued and stored later is no finding
    return _finding(held, cluster.next_ledger_id(), storage, cluster)


def _finding(held: int, next_id: int, storage: StoredLedgers, cluster: ClusterMember) -> str:
    path = cluster.znodes.ids_above_of(cluster.bookie_id)
    if find(cluster.store, path) is None:
        held = _not_chosen(held, next_id, storage, cluster)
        if held < next_id:
            return ""
        with suppress(NodeExistsError):
            cluster.store.create(path, b"%d" % held, make_parents=True)
    return (
        f"the metadata store went back to an older copy: it was about to give out ledger ids again, up to {held}, that this "
        "bookie holds; see docs/deployment/backup.md, then run 'bk-spark cluster raise-ledger-ids'"
    )


def _not_chosen(held: int, next_id: int, storage: StoredLedgers, cluster: ClusterMember) -> int:
    """The highest id from ``held`` down that is below ``next_id``, or of which no ledger exists.

    If a ledger exists above the counter, its creator chose the id.
    Most chosen ids are known as such. Those of ledgers that came just before a crash are not.
    """
    chosen: set[int] = set()
    while held >= next_id and len(chosen) < MOST_CHOSEN and cluster.has_ledger(held):
        chosen.add(held)
        held = storage.highest_issued_id(chosen)
    return held


class IssuedIds(BackgroundTask[TaskStatus]):
    """Looks every LOOK_S seconds."""

    def __init__(
        self, storage: StoredLedgers, cluster: ClusterMember, tell: Callable[[str], None], note: Callable[[int], None]
    ) -> None:
        """``tell`` is told each finding, "" if there is none; ``note`` the id that the store issues next."""
        super().__init__("issued ids", TaskStatus())
        self._storage = storage
        self._cluster = cluster
        self._tell = tell
        self._note_next_id = note
        self._known = ""

    def look(self) -> None:
        """Raises MetadataUnavailableError, MetadataConflictError; then what was known stays."""
        held, next_id = self._storage.highest_issued_id(), self._cluster.next_ledger_id()  # in this order
        self._note_next_id(next_id)
        found = _finding(held, next_id, self._storage, self._cluster)
        known, self._known = self._known, found
        self._tell(found)
        if found and not known:
            logger.error("bookie %s takes no new ledgers and deletes none: %s", self._cluster.bookie_id, found)
        elif known and not found:
            logger.warning("bookie %s takes new ledgers again: the ledger ids were raised", self._cluster.bookie_id)

    def _serve(self) -> None:
        while not self._pause(LOOK_S):
            try:
                self.look()
                self._note(last_error="")
            except BookKeeperError as problem:
                self._note(last_error=str(problem))
                logger.info("whether ledger ids are given out again is not known, it is asked again: %s", problem)
            except Exception as problem:
                self._note(last_error=f"{type(problem).__name__}: {problem}")
                logger.exception("the look whether ledger ids are given out again failed")
