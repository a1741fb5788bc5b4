"""All journals and entry logs of a bookie: one sequence counter for both, one file id counter for each kind.

The *journals* take small adds, fences, deletions and explicit LACs, in order of arrival. Their content is also in the write
cache until a checkpoint has put it into an entry log, so a journal is read only after a crash. Each journal directory has its
own journal, and a ledger always uses the same one. Files before the mark are deleted. See entry_log.py for *entry logs*.

The sync thread appends to ``LogFiles``, any thread reads from it. Other threads write ``Copies`` (entry_log.py). At the start
``LogFilesReplay`` reads what a former process left, and makes the ``LogFiles``.

The *witness* (witness.py) tells a start what it has to find.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "LastLogMark", "Order of syncs", storage rules 2, 5, 7 and 15,
protocol rules 37, 38 and 40.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.log_files.entry_log import Copies, WritableDirectories, forget_sealed, settle_copies, sync_writers
from bk_spark.bookie.log_files.entry_log_files import EntryLogFiles
from bk_spark.bookie.log_files.log_file import NO_PREDECESSOR, FileKind, FilePosition, LogDirectory, LogFile, Predecessor
from bk_spark.bookie.log_files.mark import NO_MARK, KnownEntryLog, LogMark, LogState
from bk_spark.bookie.log_files.record import LedgerNote
from bk_spark.bookie.log_files.replay import Damage, LogReplay, ReplayedRecord
from bk_spark.bookie.log_files.witness import NoWitness, Witness, Witnessed
from bk_spark.bookie.log_files.writer import EntryLocation, FileIds, RecordWriter, SequenceCounter, WriterSettings
from bk_spark.config import KIB, MAX_BATCH_BYTES, BookieConfig
from bk_spark.entries.batch import EncodedBatch

ALIGNED_FROM_BYTES = 256 * KIB
"""Bodies of this size start on a boundary. Padding, half of ALIGNMENT_BYTES on average, is then below a hundredth. With it
adds of 100 kB would be 2 % larger on disk, and a scan finds its way behind damage without it."""


class LogFiles(EntryLogFiles):
    """The sync thread appends, syncs and takes marks. Any thread may read, scan and delete, and ask for ``copies``."""

    def __init__(
        self,
        journals: Sequence[RecordWriter],
        entry_logs: Sequence[RecordWriter],
        sequences: SequenceCounter,
        direct_add_bytes: int,
        leftover: Sequence[LogFile],
        witness: Witness,
    ) -> None:
        """One writer for each directory. ``leftover``: the entry logs that this start sealed.

        ``witness`` says what is durable of all writers.
        """
        super().__init__([writer.directory for writer in entry_logs])
        self.sequences = sequences
        self._journals = journals
        self._entry_logs = entry_logs
        self._writers = [*journals, *entry_logs]
        self._writable = WritableDirectories(len(entry_logs))
        self._copies: dict[str, Copies] = {}
        self._leftover = {file.file_id: file for file in leftover}
        self._direct_add_bytes = direct_add_bytes
        self._witness = witness

    # For the sync thread

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation | None:
        """Append a large batch to an entry log, a small one to a journal (None). Durable after the next ``sync``."""
        ledger_id = batch.header.ledger_id
        if len(batch.body) >= self._direct_add_bytes:
            return self._entry_logs[self._writable.of_ledger(ledger_id)].append(batch, master_key_hash, sequence)
        self._journal_of(ledger_id).append(batch, master_key_hash, sequence)
        return None

    def append_note(self, note: LedgerNote, master_key_hash: bytes, sequence: int) -> None:
        """Durable after the next ``sync``."""
        self._journal_of(note.ledger_id).append_note(note, master_key_hash, sequence)

    def write(self) -> None:
        """Hand all that was appended to the operating system. After that only a crash of the machine can lose it."""
        for writer in self._writers:
            writer.write()

    def sync(self) -> None:
        """Make all that was appended durable. If that fails, this and every later call raise StorageError."""
        sync_writers(self._writers)
        self._note_durable()

    def idle(self) -> None:
        """Append an IDLE record, durably, to every file that got something since its last one. Everything must be synced."""
        for writer in self._writers:
            writer.idle()
        self._note_durable()
        self._witness.sync()

    def seal(self) -> None:
        """Sync and seal all open files. The next append begins new ones."""
        for writer in self._writers:
            writer.seal()
        self._note_durable()
        self._witness.sync()

    def close(self) -> None:
        """Close all files as they are on the disk. Nobody may use the log files or their copies any more."""
        for writer in self._writers:
            writer.close()
        for copies in self._copies.values():
            copies.close()
        self._witness.close()
        super().close()

    @property
    def appended_bytes(self) -> int:
        """Bytes appended by this process, copies not included."""
        return sum(writer.appended_bytes for writer in self._writers)

    def mark(self) -> LogMark:
        """The end of all that was appended. The index must store it in one transaction with the stored batches of all before
        it."""
        assert all(writer.dirty_file is None for writer in self._writers), "all before the mark is durable"
        return LogMark(
            self.sequences.next_sequence,
            self._journals[0].settings.file_ids.next_id,
            self._entry_logs[0].settings.file_ids.next_id,
            tuple(writer.position for writer in self._journals),
            tuple(writer.position for writer in self._entry_logs),
        )

    def files(self) -> tuple[LogFile, ...]:
        """The open direct entry logs, and the sealed ones that the index does not know as sealed.

        Take it together with ``mark``: what the index then knows as sealed lies wholly below the index's mark.
        """
        written = (file for writer in self._entry_logs for file in writer.files())
        return (*tuple(self._leftover.values()), *written)

    def set_writable(self, ordinals: Sequence[int]) -> None:
        """From now on new entry log records, copies too, go only to these directories. An empty list changes nothing."""
        self._writable.set(ordinals)

    # For any thread

    def committed(self, files: Sequence[LogFile]) -> None:
        """The index has stored ``files``."""
        forget_sealed(self._entry_logs, files)
        for file in files:
            self._leftover.pop(file.file_id, None)

    def copies(self, purpose: str) -> Copies:
        """The writer of copies for ``purpose``, made by the first call."""
        made = self._copies.get(purpose)
        if made is None:
            made = self._copies[purpose] = Copies(self._directories, self._entry_logs[0].settings, self._writable)
        return made

    def witness_index(self, incarnation: bytes, generation: int) -> None:
        """The index has this generation, durably. Call it before anything is deleted that only that generation has."""
        self._witness.note_index(incarnation, generation)

    def delete_journals(self, mark: LogMark) -> None:
        """Delete the journal files that end before ``mark``, which must be durable in the index."""
        for directory in (writer.directory for writer in self._journals):
            for file_id in directory.file_ids():
                if file_id < mark.journal(directory.ordinal).file_id:
                    assert file_id not in directory.written
                    directory.delete(file_id)

    def _note_durable(self) -> None:
        self._witness.note([writer.durable for writer in self._writers])

    def _journal_of(self, ledger_id: int) -> RecordWriter:
        return self._journals[ledger_id % len(self._journals)]


class LogFilesReplay:
    """What a former process left. Read ``records`` to the end, then ``damages``, then call ``finish``."""

    def __init__(
        self,
        directories: Directories,
        bookie_id: str,
        config: BookieConfig,
        disk: Disk,
        mark: LogMark,
        known: Sequence[KnownEntryLog],
        witnessed: Witnessed,
    ) -> None:
        """``mark`` and ``known`` come from the index, ``witnessed`` from the witness.

        The directories must exist, and this process must hold their locks.
        """
        self._config = config
        self._disk = disk
        self._mark = mark
        self._witnessed = witnessed
        self._data_dir = directories.data_dir
        self._known = {one.file_id: one for one in known}
        self.sequences = SequenceCounter(mark.next_sequence)
        """Above every sequence found so far."""
        entry_logs = _log_directories(directories.entry_logs, FileKind.ENTRY_LOG, bookie_id, disk)
        journals = _log_directories(directories.journals, FileKind.JOURNAL, bookie_id, disk)
        self._entry_logs = [self._entry_log_replay(one) for one in entry_logs]
        self._journals = [
            LogReplay(one, mark.journal(one.ordinal), witnessed.journal(one.ordinal), self.sequences) for one in journals
        ]

    @property
    def damages(self) -> list[Damage]:
        """All damage, complete once ``records`` was read to its end. A mere crash leaves none."""
        return [damage for replay in (*self._entry_logs, *self._journals) for damage in replay.damages]

    def records(self) -> Iterator[ReplayedRecord]:
        """All records about ledgers from the mark on: those of each entry log directory, then of each journal directory.

        They have no order across directories, and the same sequence may come twice. Raises FormatVersionError, StorageError,
        ConfigError (a file of another bookie).
        """
        for replay in (*self._entry_logs, *self._journals):
            yield from replay.records()

    def total_bytes(self) -> int:
        """What ``records`` is to read, about."""
        return sum(replay.total_bytes() for replay in (*self._entry_logs, *self._journals))

    @property
    def scanned_bytes(self) -> int:
        """What ``records`` has read so far, about."""
        return sum(replay.scanned_bytes for replay in (*self._entry_logs, *self._journals))

    def finish(self, *, is_limbo: bool = False) -> LogFiles:
        """Cut, seal and sync the files that were left open, and begin the witness anew.

        What follows from ``damages`` must be durable in the index before.

        In limbo the index may be an older one. Copies that it does not know are then kept.
        """
        mark, known, witnessed = self._mark, self._known, self._witnessed
        journal_ids, entry_log_ids = self._next_ids()
        journal_ends = [replay.finish() for replay in self._journals]
        entry_log_ends = [replay.finish() for replay in self._entry_logs]
        keeps_all = is_limbo or (not known and mark == NO_MARK)
        settled = [file for one in self._entry_logs for file in settle_copies(one.directory, known, keeps_all=keeps_all)]
        journals = self._journal_writers(journal_ids, journal_ends)
        leftover = [*settled, *self._ended_now()]
        entry_logs = self._entry_log_writers(entry_log_ids, entry_log_ends)
        ends = [tuple(FilePosition(*writer.durable) for writer in writers) for writers in (journals, entry_logs)]
        witness = Witness(self._disk, self._data_dir, replace(witnessed, journals=ends[0], entry_logs=ends[1]))
        return self._logs(journals, entry_logs, leftover, witness)

    def frozen(self) -> LogFiles:
        """Files to read alone, in place of ``finish``: takes no space on the disk. Nobody may append to them."""
        for replay in (*self._entry_logs, *self._journals):
            replay.sync_only()
        journal_ids, entry_log_ids = self._next_ids()
        journals = self._journal_writers(journal_ids, [NO_PREDECESSOR] * len(self._journals))
        entry_logs = self._entry_log_writers(entry_log_ids, [NO_PREDECESSOR] * len(self._entry_logs))
        return self._logs(journals, entry_logs, (), NoWitness())

    def _next_ids(self) -> tuple[FileIds, FileIds]:
        """Above all ids of journals and of entry logs that are here, in the index or in the witness."""
        mark, witnessed = self._mark, self._witnessed
        logs = (*self._known, *_file_ids(witnessed.entry_logs))
        journal_id = _next_id(self._journals, mark.next_journal_id, _file_ids(witnessed.journals))
        return FileIds(journal_id), FileIds(_next_id(self._entry_logs, mark.next_entry_log_id, logs))

    def _journal_writers(self, file_ids: FileIds, ends: Sequence[Predecessor]) -> list[RecordWriter]:
        settings = WriterSettings(self._config.journal_file_bytes, MAX_BATCH_BYTES + 1, file_ids)  # journals align nothing
        return self._writers(self._journals, settings, ends)

    def _entry_log_writers(self, file_ids: FileIds, ends: Sequence[Predecessor]) -> list[RecordWriter]:
        aligned_from_bytes = max(self._config.direct_add_bytes, ALIGNED_FROM_BYTES)
        settings = WriterSettings(self._config.entry_log_file_bytes, aligned_from_bytes, file_ids)
        return self._writers(self._entry_logs, settings, ends)

    def _writers(
        self, replays: Sequence[LogReplay], settings: WriterSettings, ends: Sequence[Predecessor]
    ) -> list[RecordWriter]:
        pairs = zip(replays, ends, strict=True)
        return [RecordWriter(replay.directory, settings, self.sequences, end) for replay, end in pairs]

    def _logs(
        self,
        journals: Sequence[RecordWriter],
        entry_logs: Sequence[RecordWriter],
        leftover: Sequence[LogFile],
        witness: Witness,
    ) -> LogFiles:
        return LogFiles(journals, entry_logs, self.sequences, self._config.direct_add_bytes, leftover, witness)

    def _entry_log_replay(self, directory: LogDirectory) -> LogReplay:
        mark = self._mark.entry_log(directory.ordinal)
        known_log = self._known.get(mark.file_id)
        is_kept = known_log is not None and known_log.state is not LogState.DEAD
        witnessed = self._witnessed.entry_log(directory.ordinal)
        return LogReplay(directory, mark, witnessed, self.sequences, mark_file_is_kept=is_kept)

    def _ended_now(self) -> Iterator[LogFile]:
        """The direct entry logs that the index does not know as sealed yet."""
        for replay in self._entry_logs:
            directory = replay.directory
            for file_id in replay.file_ids:
                known_log = self._known.get(file_id)
                if known_log is None or known_log.state is LogState.OPEN:
                    yield LogFile(file_id, directory.ordinal, directory.disk.size(directory.file_path(file_id)), True)


def logs_exist(directories: Directories, disk: Disk) -> bool:
    """Whether a journal or entry log file exists."""
    suffixes = tuple({kind.suffix for kind in FileKind})
    paths = [path for path in (*directories.journals, *directories.entry_logs) if disk.exists(path)]
    return any(name.endswith(suffixes) for path in paths for name in disk.list(path))


def _log_directories(paths: Sequence[Path], kind: FileKind, bookie_id: str, disk: Disk) -> list[LogDirectory]:
    return [LogDirectory(disk, path, kind, bookie_id, ordinal) for ordinal, path in enumerate(paths)]


def _file_ids(positions: Sequence[FilePosition]) -> list[int]:
    return [position.file_id for position in positions]


def _next_id(replays: Sequence[LogReplay], at_least: int, known: Iterable[int]) -> int:
    """Above every id that was ever used and is recorded anywhere."""
    found = [file_id for replay in replays for file_id in replay.directory.file_ids()]
    return max(at_least, 1 + max([0, *found, *known]))
