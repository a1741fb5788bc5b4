"""Opens the storage of a bookie: brings back what a former process logged after the mark, before anything is served.

Replay is the union of all journals and entry logs from the mark on. It does not use the add path: what was acked is taken as it
is, also entries of a fenced ledger, and fences come back beside them. Records come in any order, and their sequences decide: a
record with a lower sequence than a deletion of its ledger stays away, whichever of the two comes first. Copies by checkpoints
and compaction are not scanned: what the index does not know of them does not count.

*After a possible loss* (the caller knows of one, replay met damage, or the witness of logs and index is lost or says more than
there is) nobody knows any more what this bookie once had or
promised. Limbo begins anew, up to the highest ledger id that was issued. It is durable in the index before the logs are
touched, so that a crash at any moment leaves the damage or the limbo. If nobody knows that ledger id, the start is refused. A
process that was merely killed has lost nothing: replay restores it.

The torn ends of the logs are cut, sealed and synced, then a checkpoint moves the mark behind them.

Ref: docs/rules.md, storage rules 2, 7, 11, 12, 14 and 15; docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index.generation import IndexGeneration, problem_of_index
from bk_spark.bookie.index.ledger_index import LedgerIndex, OpenIndex, proven_summary
from bk_spark.bookie.index.rows import Limbo, row_of
from bk_spark.bookie.index.sqlite_index import index_exists, with_way_out
from bk_spark.bookie.logs.all_logs import LogsReplay, logs_exist
from bk_spark.bookie.logs.record import LedgerNote, RecordKind
from bk_spark.bookie.logs.replay import Damage, ReplayedRecord
from bk_spark.bookie.logs.witness import NOTHING, FoundWitness, find_witness, write_witness
from bk_spark.bookie.storage.checkpoint import Background
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.bookie.storage.write_cache import CachedLedger, CacheLayers, WriteCache
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError

MAX_NAMED_DAMAGES = 10
"""How many damages the log names. One failing disk may bring thousands."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How to open a storage."""

    open_index: OpenIndex
    durable_wait_s: float
    """How long a reader waits for a pending sync. 0 if no other thread could end that sync."""
    background: Background
    possible_loss: str
    """Why durable data may be lost; empty if nothing indicates that."""
    highest_issued: Callable[[], int] | None
    """The highest ledger id that may have been issued."""


def open_storage(
    directories: Directories, bookie_id: str, config: BookieConfig, disk: Disk, start: OpenOptions
) -> LedgerStorage:
    """The storage in directories that this process has locked. All that it holds is durable.

    Raises CorruptionError, FormatVersionError, StorageError, ConfigError (files of another bookie).
    """
    directories.make(disk)
    has_logs = logs_exist(directories, disk)
    witness = _found_witness(directories, disk, has_logs=has_logs)
    is_used = has_logs or witness.content.generation > 0
    index = start.open_index(directories.index, bookie_id, disk, logs_exist=is_used)
    try:
        replay = LogsReplay(directories, bookie_id, config, disk, index.mark, index.entry_logs(), witness.content)
        cache = _Replay(index).union(replay.records())
        _begin_limbo(index, start, _problems(witness, index), replay.damages)
        logs = replay.finish(is_limbo=index.limbo is not None)
        storage = LedgerStorage(index, logs, cache, config, start.durable_wait_s, start.background)
        storage.checkpoint(even_if_empty=True)
    except BaseException:
        index.close()
        raise
    return storage


def _found_witness(directories: Directories, disk: Disk, *, has_logs: bool) -> FoundWitness:
    """The witness. That of a new bookie is made now, before logs and index, so it must exist if one of these does."""
    has_past = has_logs or index_exists(directories.index, disk)
    found = find_witness(disk, directories.data_dir, has_past=has_past)
    if not has_past and not found.content.generation:
        write_witness(disk, directories.data_dir, NOTHING)
    return found


def _problems(witness: FoundWitness, index: LedgerIndex) -> list[str]:
    """What the witness says against itself and the index."""
    told = IndexGeneration(witness.content.incarnation, witness.content.generation)
    return [problem for problem in (witness.problem, problem_of_index(told, index.generation)) if problem]


def _begin_limbo(index: LedgerIndex, start: OpenOptions, told: Sequence[str], damages: Sequence[Damage]) -> None:
    """Enter limbo if something may be lost. ``told``: ``_problems``.

    Raises CorruptionError if nobody knows the highest ledger id.
    """
    loss = start.possible_loss or "; ".join([*told, *(str(one) for one in damages[:MAX_NAMED_DAMAGES])])
    if not loss:
        return
    if start.highest_issued is None:
        raise damages[0].error() if damages and not told else CorruptionError("the data directory", loss)
    # A metadata store that went back to an older copy has issued less than what is here.
    watermark = max(start.highest_issued(), index.highest_ledger_id())
    logger.warning("data may be lost (%s): ledgers up to %d are in limbo until they are repaired", loss, watermark)
    index.set_limbo(Limbo(watermark))


class _Replay:
    def __init__(self, index: LedgerIndex) -> None:
        self._index = index
        self._layers = CacheLayers(WriteCache())
        self._seen: set[int] = set()

    def union(self, records: Iterable[ReplayedRecord]) -> WriteCache:
        """Take every record once, in whatever log it is found first."""
        for found in records:
            if found.header.sequence in self._seen:
                continue
            self._seen.add(found.header.sequence)
            if found.batch is not None:
                self._take_batch(found, found.batch)
            if found.header.note is not None:
                self._take_note(found, found.header.note)
        return self._layers.active

    def _take_batch(self, found: ReplayedRecord, batch: EncodedBatch) -> None:
        ledger = self._ledger(found, batch.header.ledger_id)
        row = row_of(batch, found.header.sequence, found.location)
        self._layers.active.add(ledger, row, batch.header.last_add_confirmed)

    def _take_note(self, found: ReplayedRecord, note: LedgerNote) -> None:
        ledger, sequence = self._ledger(found, note.ledger_id), found.header.sequence
        match note.kind:
            case RecordKind.CONFIRMED:
                ledger.confirm(note.last_add_confirmed)
            case RecordKind.FENCE:
                ledger.fence(sequence)
            case RecordKind.DELETED:
                ledger.delete(sequence, note.deleted_ms)

    def _ledger(self, found: ReplayedRecord, ledger_id: int) -> CachedLedger:
        """The ledger of a record. Raises CorruptionError if the record has another master key than the ledger."""
        key = found.header.master_key_hash
        ledger = self._layers.active.ledger(ledger_id)
        if ledger is None:
            with with_way_out():
                summary = proven_summary(self._index, ledger_id)
            ledger = self._layers.begin(ledger_id, key, summary)
        if ledger.master_key_hash != key:
            where = f"file {found.file_id} at byte {found.header.place.offset}"
            raise CorruptionError(where, f"a record of ledger {ledger_id} with another master key than the ledger has")
        return ledger
