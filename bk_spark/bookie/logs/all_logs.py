"""All logs of a bookie: journals and entry logs in their directories, one counter of sequences, one of ids for each kind.

``Logs`` is what the sync thread appends to and everybody reads from; ``Copies`` (entry_log.py) are for other threads.
``LogsReplay`` makes them at the start from what a former process left.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "LastLogMark", "Order of syncs", storage rules 2, 5 and 7, protocol
rule 38.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.logs.entry_log import Copies, WritableDirectories, forget_sealed, settle_copies, sync_writers
from bk_spark.bookie.logs.entry_log_files import EntryLogFiles
from bk_spark.bookie.logs.journal import Journals
from bk_spark.bookie.logs.log_file import FileKind, FilePosition, LogDirectory, LogFile, Predecessor
from bk_spark.bookie.logs.mark import EntryLogRow, LogMark, LogState
from bk_spark.bookie.logs.record import LedgerNote, RecordHeader
from bk_spark.bookie.logs.replay import Damage, LogReplay, ReplayedRecord
from bk_spark.bookie.logs.writer import EntryLocation, FileIds, RecordWriter, SequenceCounter, WriterSettings
from bk_spark.config import KIB, BookieConfig
from bk_spark.entries.batch import EncodedBatch

ALIGNED_FROM_BYTES = 256 * KIB
"""Bodies of this size start on a boundary. Padding, half of ALIGNMENT_BYTES on average, is then below a hundredth; adds of
100 kB would be written 2 % larger with it, and a scan finds its way behind damage without."""


class Logs:
    """Appends, syncs and marks are the sync thread's; any thread may read, scan and delete, and ask for ``copies``."""

    def __init__(
        self,
        journals: Journals,
        entry_logs: Sequence[LogDirectory],
        predecessors: Sequence[Predecessor],
        file_ids: FileIds,
        sequences: SequenceCounter,
        config: BookieConfig,
        leftover: Sequence[LogFile] = (),
    ) -> None:
        """``predecessors`` are the last direct entry logs, one for each directory. ``leftover`` were sealed at this start."""
        self.sequences = sequences
        self._journals = journals
        self._settings = WriterSettings(config.entry_log_file_bytes, max(config.direct_add_bytes, ALIGNED_FROM_BYTES))
        self._file_ids = file_ids
        self._directories = entry_logs
        self._disk: Disk = entry_logs[0].disk
        self._writable = WritableDirectories(len(entry_logs))
        pairs = zip(entry_logs, predecessors, strict=True)
        self._entry_logs = [RecordWriter(one, self._settings, file_ids, sequences, before) for one, before in pairs]
        self._writers = [*journals.writers, *self._entry_logs]
        self._files = EntryLogFiles(entry_logs)
        self._copies: dict[str, Copies] = {}
        self._leftover = {file.file_id: file for file in leftover}
        self._direct_add_bytes = config.direct_add_bytes

    # --- the sync thread

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation | None:
        """A large batch goes into an entry log, a small one into a journal (None). Durable after the next ``sync``."""
        ledger_id = batch.header.ledger_id
        if len(batch.body) >= self._direct_add_bytes:
            return self._entry_logs[self._writable.of_ledger(ledger_id)].append(batch, master_key_hash, sequence)
        self._journals.writer_of(ledger_id).append(batch, master_key_hash, sequence)
        return None

    def append_note(self, note: LedgerNote, master_key_hash: bytes, sequence: int) -> None:
        """Durable after the next ``sync``."""
        self._journals.writer_of(note.ledger_id).append_note(note, master_key_hash, sequence)

    def write(self) -> None:
        """Hand all that was appended to the operating system: from here on only the machine can lose it."""
        for writer in self._writers:
            writer.write()

    def sync(self) -> None:
        """Make all that was appended durable. Raises StorageError if it may not be, then and ever after."""
        sync_writers(self._writers, self._disk)

    def idle(self) -> None:
        """After a sync with nothing to do: note in every log once, durably, that its end is durable."""
        for writer in self._writers:
            writer.idle()

    def seal(self) -> None:
        """Sync and end all open files; the next append begins new ones."""
        for writer in self._writers:
            writer.seal()

    def close(self) -> None:
        """Let go of all files as they are on the disk. Nobody uses the logs or their copies any more."""
        for writer in self._writers:
            writer.close()
        for copies in self._copies.values():
            copies.close()
        self._files.close()

    @property
    def is_dirty(self) -> bool:
        """Something was appended that is not durable."""
        return any(writer.dirty_file is not None for writer in self._writers)

    @property
    def appended_bytes(self) -> int:
        """Bytes appended by this process, copies not included."""
        return sum(writer.appended_bytes for writer in self._writers)

    def mark(self) -> LogMark:
        """Behind everything appended so far. To be stored in the index together with the rows of all that lies before it."""
        return LogMark(
            self.sequences.next_sequence,
            self._journals.file_ids.next_id,
            self._file_ids.next_id,
            self._journals.positions(),
            tuple(writer.position for writer in self._entry_logs),
        )

    def files(self) -> tuple[LogFile, ...]:
        """The direct entry logs that are open, and those sealed that the index does not know as such.

        Taken together with ``mark``: what is then sealed in the index lies wholly below the mark in the index.
        """
        written = (file for writer in self._entry_logs for file in writer.files())
        return (*tuple(self._leftover.values()), *written)

    def set_writable(self, ordinals: Sequence[int]) -> None:
        """From now on only these directories take new entry log records, copies too; without any, it stays as it was."""
        self._writable.set(ordinals)

    # --- any thread

    def committed(self, files: Sequence[LogFile]) -> None:
        """The index has taken ``files``."""
        forget_sealed(self._entry_logs, files)
        for file in files:
            self._leftover.pop(file.file_id, None)

    def copies(self, purpose: str) -> Copies:
        """The writer of copies for one purpose, always the same one."""
        made = self._copies.get(purpose)
        if made is None:
            made = self._copies[purpose] = Copies(self._directories, self._settings, self._file_ids, self._writable)
        return made

    def read(self, location: EntryLocation) -> tuple[RecordHeader, EncodedBatch]:
        """The durable record at ``location``, its checksums verified. Never "not found".

        Raises CorruptionError, MissingLogError (look the row up again), StorageError.
        """
        return self._files.read(location)

    def read_header(self, location: EntryLocation) -> RecordHeader:
        """As ``read``, without the body."""
        return self._files.read_header(location)

    def scan(self, file_id: int, *, verify_bodies: bool = True) -> Iterator[tuple[EntryLocation, RecordHeader | Damage]]:
        """Every record of an entry log and every damaged stretch, in order: see ``EntryLogFiles.scan``."""
        return self._files.scan(file_id, verify_bodies=verify_bodies)

    def path_of(self, file_id: int) -> Path | None:
        """Of an entry log; None if its file is gone."""
        return self._files.path_of(file_id)

    def size_of(self, file_id: int) -> int:
        """Bytes of an entry log that are durable. Raises MissingLogError, StorageError."""
        return self._files.size_of(file_id)

    def delete(self, file_id: int) -> None:
        """Delete an entry log, durably. The index must have it as DEAD. Does nothing if it is gone."""
        self._files.delete(file_id)

    def delete_journals(self, mark: LogMark) -> None:
        """Delete the journals that end before ``mark``, which must be durable in the index."""
        self._journals.delete_before(mark)


class LogsReplay:
    """What a former process left: ``records`` to the end, then ``damages``, then ``finish``."""

    def __init__(
        self,
        directories: Directories,
        bookie_id: str,
        config: BookieConfig,
        disk: Disk,
        mark: LogMark,
        known: Sequence[EntryLogRow],
    ) -> None:
        """``mark`` and ``known`` are what the index says. The directories must be there, and locked by this process."""
        self._config = config
        self._mark = mark
        self._known = {row.file_id: row for row in known}
        self._sequences = SequenceCounter(mark.next_sequence)
        self._journals = _log_directories(directories.journals, FileKind.JOURNAL, bookie_id, disk)
        self._entry_logs = _log_directories(directories.entry_logs, FileKind.ENTRY_LOG, bookie_id, disk)
        self._entry_log_replays = [self._replay_of(one) for one in self._entry_logs]
        self._journal_replays = [self._replay_of(one) for one in self._journals]

    @property
    def sequences(self) -> SequenceCounter:
        """Above every sequence that was found."""
        return self._sequences

    @property
    def damages(self) -> list[Damage]:
        """What is not as it was; complete once ``records`` was read to its end. Empty after every mere crash."""
        return [damage for replay in (*self._entry_log_replays, *self._journal_replays) for damage in replay.damages]

    def records(self) -> Iterator[ReplayedRecord]:
        """All that says something of a ledger, from the mark on: of each entry log directory, then of each journal directory.

        In no order across directories; the same sequence may come twice. Raises FormatVersionError, StorageError, ConfigError
        (a file of another bookie).
        """
        for replay in (*self._entry_log_replays, *self._journal_replays):
            yield from replay.records()

    def finish(self, *, is_limbo: bool = False) -> Logs:
        """Cut, seal and sync what was left open. What ``damages`` imply must be durable in the index before.

        In limbo the index may be an older one: the copies that it does not know are kept.
        """
        journal_ids = FileIds(_next_id(self._journals, self._mark.next_journal_id, ()))
        file_ids = FileIds(_next_id(self._entry_logs, self._mark.next_entry_log_id, self._known))
        last_journals = [replay.finish() for replay in self._journal_replays]
        last_entry_logs = [replay.finish() for replay in self._entry_log_replays]
        keeps_all = is_limbo or (not self._known and self._mark == LogMark())
        settled = [file for one in self._entry_logs for file in settle_copies(one, self._known, keeps_all=keeps_all)]
        journals = Journals(self._journals, self._config.journal_file_bytes, journal_ids, self._sequences, last_journals)
        leftover = [*settled, *self._ended_now()]
        return Logs(journals, self._entry_logs, last_entry_logs, file_ids, self._sequences, self._config, leftover)

    def _replay_of(self, directory: LogDirectory) -> LogReplay:
        is_journal = directory.kind is FileKind.JOURNAL
        mark = (self._mark.journal if is_journal else self._mark.entry_log)(directory.ordinal)
        kept = is_journal or self._is_kept(mark)
        return LogReplay(directory, mark, self._sequences, mark_file_is_kept=kept)

    def _is_kept(self, mark: FilePosition) -> bool:
        row = self._known.get(mark.file_id)
        return row is not None and row.state is not LogState.DEAD

    def _ended_now(self) -> Iterator[LogFile]:
        """The direct entry logs that the index does not know as sealed yet."""
        for directory, replay in zip(self._entry_logs, self._entry_log_replays, strict=True):
            for file_id in replay.file_ids:
                row = self._known.get(file_id)
                if row is None or row.state is LogState.OPEN:
                    yield LogFile(file_id, directory.ordinal, directory.disk.size(directory.file_path(file_id)), True)


def _log_directories(paths: Sequence[Path], kind: FileKind, bookie_id: str, disk: Disk) -> list[LogDirectory]:
    return [LogDirectory(disk, path, kind, bookie_id, ordinal) for ordinal, path in enumerate(paths)]


def _next_id(directories: Sequence[LogDirectory], at_least: int, known: Iterable[int]) -> int:
    """Above every id that was ever given out and counted."""
    found = [file_id for directory in directories for file_id in directory.file_ids()]
    return max(at_least, 1 + max([0, *found, *known]))
