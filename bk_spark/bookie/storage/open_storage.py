"""Opens the storage of a bookie: brings back what a former process logged after the mark, before anything is served.

Replay is the union of all journals and entry logs from the mark on. It does not use the add path: what was acked is taken as it
is, also entries of a fenced ledger, and fences come back beside them. Records come in any order, and their sequences decide: a
record with a lower sequence than a deletion of its ledger stays away, whichever of the two comes first. Copies by checkpoints
and compaction are not scanned: what the index does not know of them does not count.

*After a possible loss* (the caller knows of one, replay met damage, or the witness of log files and index is lost or says more
than there is) nobody knows any more what this bookie once had or promised. Limbo begins anew, up to the highest ledger id that
was issued. It is durable in the index before the log files are touched, so that a crash at any moment leaves the damage or the
limbo. If nobody knows that ledger id, the start is refused. A process that was merely killed has lost nothing: replay restores
it.

The torn ends of the log files are cut, sealed and synced, then a checkpoint moves the mark behind them.

*On a full disk* none of that is possible, and reads do not need it. ``open_frozen`` replays into memory and writes nothing new.
Such a storage has failed from the start: it changes nothing, and denies nothing either.

Ref: docs/rules.md, storage rules 2, 7, 11, 12, 14, 15 and 18; docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index.generation import IndexGeneration, problem_of_index
from bk_spark.bookie.index.ledger_index import LedgerIndex, OpenIndex, proven_summary
from bk_spark.bookie.index.sqlite_index import index_exists, with_way_out
from bk_spark.bookie.index.values import Limbo, ProvenConfirmation, stored_batch
from bk_spark.bookie.log_files.all_log_files import LogFilesReplay, logs_exist
from bk_spark.bookie.log_files.record import LedgerNote, RecordKind
from bk_spark.bookie.log_files.replay import Damage, ReplayedRecord
from bk_spark.bookie.log_files.witness import NOTHING, FoundWitness, find_witness, write_witness
from bk_spark.bookie.progress import Progress
from bk_spark.bookie.storage.checkpoint import Background
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.bookie.storage.write_cache import CachedLedger, CacheLayers, WriteCache
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError, StorageError

MAX_NAMED_DAMAGES = 10
"""How many damages the program's log names. One failing disk may bring thousands."""

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
    progress: Progress = field(default_factory=Progress)


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
    start.progress.begin("opens its index")
    index = start.open_index(directories.index, bookie_id, disk, logs_exist=is_used)
    with ExitStack() as undo:
        undo.callback(index.close)
        replay = LogFilesReplay(directories, bookie_id, config, disk, index.mark, index.entry_logs(), witness.content)
        cache = _replayed(index, replay, start.progress)
        highest_here = max(index.highest_ledger_id(), cache.highest_ledger_id)
        limbo = _new_limbo(highest_here, start, _problems(witness, index), replay.damages)
        if limbo is not None:
            index.set_limbo(limbo)
        start.progress.begin("seals and syncs its logs")
        log_files = undo.enter_context(closing(replay.finish(is_limbo=index.limbo is not None)))
        storage = LedgerStorage(index, log_files, cache, config, start.durable_wait_s, start.background)
        start.progress.begin("writes what it replayed into its entry logs and index", cache.size_bytes)
        storage.checkpoint(even_if_empty=True, progress=start.progress)
        undo.pop_all()
    return storage


def _found_witness(directories: Directories, disk: Disk, *, has_logs: bool) -> FoundWitness:
    """The witness. That of a new bookie is made now, before log files and index, so it must exist if one of these does."""
    has_past = has_logs or index_exists(directories.index, disk)
    found = find_witness(disk, directories.data_dir, has_past=has_past)
    if not has_past and not found.content.generation:
        write_witness(disk, directories.data_dir, NOTHING)
    return found


def _problems(witness: FoundWitness, index: LedgerIndex) -> list[str]:
    """What the witness says against itself and the index."""
    told = IndexGeneration(witness.content.incarnation, witness.content.generation)
    return [problem for problem in (witness.problem, problem_of_index(told, index.generation)) if problem]


@dataclass(frozen=True, slots=True)
class FrozenStorage:
    storage: LedgerStorage
    limbo: Limbo | None
    """In memory: the index could not take a new one."""


def open_frozen(
    directories: Directories, bookie_id: str, config: BookieConfig, disk: Disk, start: OpenOptions, problem: StorageError
) -> FrozenStorage:
    """The storage for reads alone, after ``problem``, a lack of space. All that it shows is durable.

    What is missing or damaged stays so on the disk, and the next start meets it again. Raises as ``open_storage``.
    """
    start.progress.begin("opens its index to be read alone")
    has_logs = logs_exist(directories, disk)
    witness = find_witness(disk, directories.data_dir, has_past=has_logs or index_exists(directories.index, disk))
    is_used = has_logs or witness.content.generation > 0
    index = start.open_index(directories.index, bookie_id, disk, logs_exist=is_used, is_frozen=True)
    with ExitStack() as undo:
        undo.callback(index.close)
        replay = LogFilesReplay(directories, bookie_id, config, disk, index.mark, index.entry_logs(), witness.content)
        cache = _replayed(index, replay, start.progress)
        highest_here = max(index.highest_ledger_id(), cache.highest_ledger_id)
        limbo = _new_limbo(highest_here, start, _problems(witness, index), replay.damages) or index.limbo
        log_files = undo.enter_context(closing(replay.frozen()))
        storage = LedgerStorage(index, log_files, cache, config, start.durable_wait_s, start.background)
        storage.freeze(problem)
        undo.pop_all()
    return FrozenStorage(storage, limbo)


def _replayed(index: LedgerIndex, replay: LogFilesReplay, progress: Progress) -> WriteCache:
    progress.begin("replays its logs", replay.total_bytes())

    def records() -> Iterator[ReplayedRecord]:
        for record in replay.records():
            progress.advance(replay.scanned_bytes)
            yield record

    return _Replay(index).union(records())


def _new_limbo(highest_here: int, start: OpenOptions, told: Sequence[str], damages: Sequence[Damage]) -> Limbo | None:
    """The limbo to begin if something may be lost. ``highest_here``: the highest ledger id found. ``told``: ``_problems``.

    Raises CorruptionError if nobody knows the highest ledger id.
    """
    loss = start.possible_loss or "; ".join([*told, *(str(one) for one in damages[:MAX_NAMED_DAMAGES])])
    if not loss:
        return None
    if start.highest_issued is None:
        raise damages[0].error() if damages and not told else CorruptionError("the data directory", loss)
    # A metadata store that went back to an older copy has issued less than what is here.
    watermark = max(start.highest_issued(), highest_here)
    logger.warning("data may be lost (%s): ledgers up to %d are in limbo until they are repaired", loss, watermark)
    return Limbo(watermark)


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
        stored = stored_batch(batch, found.header.sequence, found.location)
        self._layers.active.add(ledger, stored, batch.header.last_add_confirmed)

    def _take_note(self, found: ReplayedRecord, note: LedgerNote) -> None:
        ledger, sequence = self._ledger(found, note.ledger_id), found.header.sequence
        match note.kind:
            case RecordKind.CONFIRMED:
                ledger.confirm(note.last_add_confirmed)
                if note.proof is not None:
                    ledger.prove(ProvenConfirmation(note.last_add_confirmed, note.proof))
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
