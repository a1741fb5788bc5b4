"""Lets go of data that is stored under another key than the ledger's: the metadata's password says which one is right.

Whoever adds to a ledger first, or fences it, sets its key on a bookie, for a bookie need not know the metadata. So somebody
who adds under an id before the ledger's own writer does gives it a *foreign key*. Clients of the real ledger are then answered
UNAUTHORIZED, and go on with the other replicas. This bookie notes which ledgers it refused, and reads their metadata. If it has
another password, either what is here or the password is wrong. (Somebody may have changed the metadata, and then all bookies
would let go of what was confirmed.) So the other bookies are asked first:

1. ask every ensemble: at least so many must answer with the metadata's key, or have nothing, that those which do not could not
   have confirmed an entry (the coverage of protocol rule 3). Then nothing that is here under the foreign key was confirmed,
2. delete what is stored, unless the key is the right one by then; a tombstone with the foreign key is left,
3. wait for a checkpoint, so that no start finds the deleted data again,
4. forget the tombstone, too: its fence and its key were promised to nobody.

Metadata that is missing or unreadable decides nothing: garbage collection deletes what belongs to no ledger (rule 44). Data
with another creator's token stays as well: it may be another ledger's, whose id was given out again. While ids of this bookie
are above the store's counter nothing is let go at all.

Ref: docs/rules.md, protocol rules 24 and 44, storage rules 8, 10 and 14.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bk_spark.bookie.background_task import BackgroundTask, TaskStatus
from bk_spark.bookie.space.garbage_collection import ClusterMember
from bk_spark.bookie.space.issued_ids import ids_given_out_again
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.entries.digest import is_foreign, master_key_hash
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import Versioned

LOOK_S = 5.0
"""Between two looks at what was refused. Clients get along without this bookie meanwhile."""

PAGE_LEDGERS = 100
"""Ledgers whose metadata is read at once: each may have 512 KiB."""

CHECKPOINT_LOOKS = 100
CHECKPOINT_LOOK_S = 0.1
"""A checkpoint takes a second or two. If it takes longer than ten, the next round goes on."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForeignLedgersStatus(TaskStatus):
    """Counts are since this start of the bookie."""

    ledgers_let_go: int = 0


class ForeignLedgers(BackgroundTask[ForeignLedgersStatus]):
    """Handles the ledgers that ``take_refused`` gives."""

    def __init__(
        self,
        storage: LedgerStorage,
        cluster: ClusterMember,
        take_refused: Callable[[], Iterable[int]],
        delete: Callable[[int, int, bytes], object],
        check_key: Callable[[LedgerMetadata], None],
        clock_ms: Callable[[], int],
    ) -> None:
        """``check_key`` raises BookKeeperError if an ack quorum may hold the ledger under another key.

        ``delete`` stages a DeleteLedgerRequest with an id, a time and the ledger's own key, through the sync thread.
        """
        super().__init__("foreign ledgers", ForeignLedgersStatus())
        self._storage = storage
        self._cluster = cluster
        self._take_refused = take_refused
        self._delete = delete
        self._check_key = check_key
        self._clock_ms = clock_ms
        self._suspects: set[int] = set()

    def round(self) -> None:
        """Let go of the ledgers with foreign keys among those that were refused. Raises what the store or a deletion raises."""
        self._suspects.update(self._take_refused())
        if not self._suspects or ids_given_out_again(self._storage, self._cluster):
            return
        self._note(last_error="")
        own_keys = self._foreign(sorted(self._suspects))
        if not own_keys:
            self._suspects.clear()
            return
        for ledger_id, own_key in own_keys.items():
            if self._is_stopped:
                return
            self._delete(ledger_id, self._clock_ms(), own_key)
        forgotten = self._forget(own_keys)
        self._suspects = own_keys.keys() - forgotten
        self._note(ledgers_let_go=self.status().ledgers_let_go + len(forgotten))
        for ledger_id in sorted(forgotten):
            logger.warning("ledger %d was stored here under a key that is not its own: it is gone from this bookie", ledger_id)

    def _foreign(self, ledger_ids: list[int]) -> dict[int, bytes]:
        """Those that are stored here under another key than their metadata's, with the hash of their own one."""
        found: dict[int, bytes] = {}
        for start in range(0, len(ledger_ids), PAGE_LEDGERS):
            page = ledger_ids[start : start + PAGE_LEDGERS]
            self._cluster.sync()
            values = self._cluster.store.get_many([self._cluster.znodes.ledger(ledger_id) for ledger_id in page])
            for ledger_id, value in zip(page, values, strict=True):
                if self._is_stopped:
                    return {}
                metadata, facts = _metadata(ledger_id, value), self._storage.facts(ledger_id)
                if metadata is not None and facts is not None:
                    own_key = master_key_hash(metadata.master_key)
                    if is_foreign(facts.master_key_hash, own_key) and self._is_alone(metadata):
                        found[ledger_id] = own_key
        return found

    def _is_alone(self, metadata: LedgerMetadata) -> bool:
        """Whether no entry can have been confirmed under the foreign key. If not, the next refusal has it asked again."""
        try:
            self._check_key(metadata)
        except BookKeeperError as problem:
            what = f"ledger {metadata.ledger_id} stays, though it is stored under another key than its metadata's: {problem}"
            self._note(last_error=what)
            logger.warning(what)
            return False
        return True

    def _forget(self, own_keys: dict[int, bytes]) -> set[int]:
        sequence = self._storage.log_files.sequences.next_sequence
        for _ in range(CHECKPOINT_LOOKS):
            if self._storage.is_indexed(sequence):
                break
            self._storage.request_checkpoint()
            if self._pause(CHECKPOINT_LOOK_S):
                break
        return self._storage.forget_foreign(own_keys)

    def _serve(self) -> None:
        while not self._pause(LOOK_S):
            try:
                self.round()
            except BookKeeperError as problem:
                self._note(last_error=str(problem))
                logger.warning("ledgers under foreign keys stay until the next try in %g s: %s", LOOK_S, problem)
            except Exception as problem:
                self._note(last_error=f"{type(problem).__name__}: {problem}")
                logger.exception("letting go of ledgers under foreign keys failed")


def _metadata(ledger_id: int, value: Versioned | None) -> LedgerMetadata | None:
    """None if it is missing or unreadable."""
    try:
        return None if value is None else LedgerMetadata.decode(ledger_id, value.value)
    except (CorruptionError, FormatVersionError):
        return None
