"""``bk-spark inspect``: what a bookie's files hold, also while the bookie runs.

Changes nothing. Damage is printed like everything else. Each command gives records, a line each; ``what`` names their kind.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot_file import read_boot
from bk_spark.bookie.index.generation import read_generation
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE
from bk_spark.bookie.index.values import IndexState, LedgerSummary, StoredBatch
from bk_spark.bookie.inspection.index import IndexReading, IndexView, read_index
from bk_spark.bookie.inspection.logs import InspectedFile, inspect_files, inspect_records
from bk_spark.bookie.log_files.log_file import FileKind
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogMark
from bk_spark.bookie.log_files.record import RecordHeader, RecordKind
from bk_spark.bookie.log_files.scan import Gap, ScannedRecord
from bk_spark.commands.arguments import Commands, count, group_of, ledger_id
from bk_spark.commands.output import ProgressBar, Record, print_json, print_line
from bk_spark.commands.settings import add_settings, bookie_directories, data_dir_command
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError


def add(commands: Commands) -> None:
    group = group_of(commands, "inspect", "what the files of a bookie hold, also while it runs; changes nothing")
    text = "journal files: headers, damage, and what their records add up to"
    journal = data_dir_command(group, "journal", text, partial(_print, _journal))
    text = "entry log files: headers, damage, and what their records add up to"
    entry_log = data_dir_command(group, "entry-log", text, partial(_print, _entry_log))
    for parser in (journal, entry_log):
        parser.add_argument("--file", type=count, metavar="ID", help="only the file of this id")
        parser.add_argument("--records", action="store_true", help="also each record")
    entry_log.add_argument("--ledgers", action="store_true", help="also the live bytes of each ledger in each file")
    text = "the index: limbo, entry logs with live bytes, ledgers, and whether its tallies fit"
    index = data_dir_command(group, "index", text, partial(_print, _index))
    index.add_argument("--ledger", type=ledger_id, metavar="ID", help="only this ledger, with its rows")
    index.add_argument("--limit", type=count, default=100, metavar="N", help="at most N ledgers (default %(default)s)")
    index.add_argument("--verify", action="store_true", help="hold every row against the tallies")
    mark = data_dir_command(group, "mark", "boot numbers, generation, and the LastLogMark", partial(_print, _mark))
    for parser in (journal, entry_log, index, mark):
        add_settings(parser)


def _print(lines: Callable[[argparse.Namespace], Iterable[Record]], args: argparse.Namespace) -> None:
    for line in lines(args):
        if args.json:
            print_json(line)
        else:
            print_line("  ".join(str(value) if name == "what" else f"{name} {value}" for name, value in line.items()))


def _journal(args: argparse.Namespace) -> Iterator[Record]:
    yield from _log_lines(args, FileKind.JOURNAL, _directories(args).journals)


def _entry_log(args: argparse.Namespace) -> Iterator[Record]:
    directories = _directories(args)
    yield from _log_lines(args, FileKind.ENTRY_LOG, directories.entry_logs)
    if args.ledgers:
        reading = read_index(directories.index, REAL_DISK, IndexView.live_bytes)
        for (file_id, ledger_id), size in (reading.value or {}).items():
            if args.file in (None, file_id):
                yield {"what": "live", "file_id": file_id, "ledger": ledger_id, "bytes": size}
        yield from _notes(reading)


def _index(args: argparse.Namespace) -> Iterator[Record]:
    reading = read_index(_directories(args).index, REAL_DISK, lambda view: _index_lines(view, args))
    yield from reading.value or []
    yield from _notes(reading)


def _mark(args: argparse.Namespace) -> Iterator[Record]:
    directories = _directories(args)
    yield from map(_boot_line, directories.roots)
    yield _generation_line(directories.index)
    reading = read_index(directories.index, REAL_DISK, lambda view: [*_state_lines(view.state), *_mark_lines(view.state.mark)])
    yield from reading.value or []
    yield from _notes(reading)


def _index_lines(view: IndexView, args: argparse.Namespace) -> list[Record]:
    """The lines of one state of the index, up to the first damage in it."""
    lines = list(_state_lines(view.state))
    try:
        lines.append({"what": "ledgers", "highest_ledger_id": view.highest_ledger_id()})
        lines += [_entry_log_line(log) for log in view.entry_logs()]
        if args.ledger is None:
            lines += [_ledger_line(ledger) for ledger in view.ledgers(0, args.limit)]
        else:
            lines += _lines_of_ledger(view, args.ledger)
        with ProgressBar() as bar:
            view.verify(full=args.verify, progress=lambda rows: bar.count("rows of the index", rows))
        lines.append({"what": "tallies", "fit": True, "rows_read": "all" if args.verify else "none"})
    except CorruptionError as problem:
        lines.append({"what": "damage", "problem": str(problem)})
    return lines


def _lines_of_ledger(view: IndexView, ledger_id: int) -> list[Record]:
    found = [ledger for ledger in view.ledgers(ledger_id, 1) if ledger.ledger_id == ledger_id]
    if not found:
        return [{"what": "note", "ledger": ledger_id, "problem": "the index has no such ledger"}]
    return [_ledger_line(found[0]), *(_batch_line(stored) for stored in view.batches(ledger_id))]


def _notes(reading: IndexReading[Any]) -> Iterator[Record]:
    if reading.problem:
        yield {"what": "damage", "problem": reading.problem}
    if not reading.is_one_state:
        problem = "commits came while it was read, or one was cut short: what is shown is no single state of the index"
        yield {"what": "note", "problem": problem, "rollback_bytes": reading.rollback_bytes}


def _state_lines(state: IndexState) -> Iterator[Record]:
    yield {
        "what": "index",
        "bookie_id": state.bookie_id,
        "incarnation": state.incarnation.hex(),
        "generation": state.generation,
        "buckets_of_ledgers": state.buckets.size,
        "entry_logs": state.entry_logs.size,
    }
    limbo = state.limbo
    if limbo is not None:
        through = {"fence_watermark": limbo.fence_watermark, "settled_through": limbo.settled_through}
        yield {"what": "limbo", **through, "unsettled": sorted(limbo.unsettled)}


def _mark_lines(mark: LogMark) -> Iterator[Record]:
    ids = {"next_sequence": mark.next_sequence, "next_journal_id": mark.next_journal_id}
    yield {"what": "mark", **ids, "next_entry_log_id": mark.next_entry_log_id}
    for name, positions in (("journal", mark.journals), ("entry_log", mark.entry_logs)):
        for directory, position in enumerate(positions):
            yield {"what": f"mark of {name}", "directory": directory, "file_id": position.file_id, "offset": position.offset}


def _generation_line(directory: Path) -> Record:
    try:
        witness = read_generation(REAL_DISK, directory / GENERATION_FILE)
    except BookKeeperError as problem:
        return {"what": "generation file", "problem": str(problem)}
    if witness is None:
        return {"what": "generation file", "problem": "it is missing"}
    return {"what": "generation file", "incarnation": witness.incarnation.hex(), "generation": witness.generation}


def _boot_line(root: Path) -> Record:
    line: dict[str, object] = {"what": "boot", "directory": str(root)}
    try:
        boot = read_boot(REAL_DISK, root)
    except BookKeeperError as problem:
        return {**line, "problem": str(problem)}
    if boot is None:
        return {**line, "problem": "it has no boot file"}
    line |= {"confirmed": boot.confirmed.number, "pending": None if boot.pending is None else boot.pending.number}
    line |= {"phase": boot.phase.value, "skipped_journal": boot.skipped_journal}
    return {**line, "incarnation": boot.index.incarnation.hex(), "generation": boot.index.generation}


def _entry_log_line(log: KnownEntryLog) -> Record:
    line = {"what": "entry log", "file_id": log.file_id, "directory": log.directory, "state": log.state.name}
    return {**line, "bytes": log.total_bytes, "live_bytes": log.live_bytes}


def _ledger_line(ledger: LedgerSummary) -> Record:
    line = {"what": "ledger", "ledger": ledger.ledger_id, "rows": ledger.batch_count, "highest": ledger.highest_entry_id}
    line |= {"lac": ledger.last_add_confirmed, "fenced": ledger.is_fenced, "deleted": ledger.is_deleted}
    return {**line, "deleted_at": ledger.deleted_at, "deleted_ms": ledger.deleted_ms} if ledger.deleted_at else line


def _batch_line(stored: StoredBatch) -> Record:
    line: dict[str, object] = {
        "what": "row",
        "first": stored.first_entry_id,
        "last": stored.last_entry_id,
        "sequence": stored.sequence,
    }
    place = stored.location
    return {**line, "file_id": place.file_id, "offset": place.offset, "bytes": place.length} if place is not None else line


def _directories(args: argparse.Namespace) -> Directories:
    if not REAL_DISK.is_directory(Path(args.data_dir)):
        raise ConfigError("the data directory", args.data_dir, "there is no such directory")
    return bookie_directories(args)


def _log_lines(args: argparse.Namespace, kind: FileKind, directories: tuple[Path, ...]) -> Iterator[Record]:
    files = [file for file in inspect_files(directories, kind, REAL_DISK) if args.file in (None, _file_id(file))]
    with ProgressBar(beside_output=True) as bar:
        for done, file in enumerate(files):
            bar.show(f"reading {file.path.name}", done, len(files))
            yield from _file_lines(file, with_records=args.records)
    if not files:
        yield {"what": "note", "problem": f"there is no such file in {', '.join(map(str, directories))}"}


def _file_id(file: InspectedFile) -> int | None:
    return int(file.path.stem) if file.path.stem.isdecimal() else None


def _file_lines(file: InspectedFile, *, with_records: bool) -> Iterator[Record]:
    """The file's header, its damage and, if wanted, its records in their order in the file; then their totals."""
    yield _file_line(file)
    total = _Total()
    for item in inspect_records(file, REAL_DISK):
        total.add(item)
        if isinstance(item, Gap):
            what = "torn end" if item.looks_torn else "damage"
            yield {"what": what, "offset": item.start, "end": item.end, "problem": item.problem}
        elif with_records:
            yield _record_line(item.header)
    if file.header is not None:
        yield total.line()


def _file_line(file: InspectedFile) -> Record:
    line: dict[str, object] = {"what": "file", "path": str(file.path), "bytes": file.size_bytes}
    header = file.header
    if header is None:
        return {**line, "problem": file.problem}
    line |= {"kind": header.kind.name, "file_id": header.file_id, "bookie_id": header.bookie_id, "salt": f"{header.salt:016x}"}
    before = header.predecessor
    if before.file_id:
        line |= {"after_file": before.file_id, "after_bytes": before.sealed_bytes, "after_sequence": before.last_sequence}
    return line


def _record_line(header: RecordHeader) -> Record:
    line: dict[str, object] = {"what": header.kind.name, "offset": header.place.offset, "sequence": header.sequence}
    batch, note = header.batch, header.note
    if batch is not None:
        line |= {"ledger": batch.ledger_id, "first": batch.first_entry_id, "last": batch.last_entry_id, "entries": batch.count}
        line |= {"lac": batch.last_add_confirmed, "bytes": header.body_length}
    elif note is not None:
        line |= {"ledger": note.ledger_id}
        if note.kind is RecordKind.CONFIRMED:
            line |= {"lac": note.last_add_confirmed}
        if note.kind is RecordKind.DELETED:
            line |= {"deleted_ms": note.deleted_ms}
    return {**line, "synced_through": header.place.synced_through, "checksums": "right"}


class _Total:
    """Totals over the records of a file."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(RecordKind, 0)
        self._entries = 0
        self._ledgers: set[int] = set()
        self._damaged_bytes = 0
        self._sequences: list[int] = []
        """The lowest and the highest sequence number."""
        self._synced_through = 0
        self._last: RecordHeader | None = None

    def add(self, item: ScannedRecord | Gap) -> None:
        if isinstance(item, Gap):
            self._damaged_bytes += item.end - item.start
            return
        header = item.header
        self._counts[header.kind] += 1
        self._last = header
        self._synced_through = max(self._synced_through, header.place.synced_through)
        if header.sequence:  # the seal of copies has none
            self._sequences.append(header.sequence)
            self._sequences = [min(self._sequences), max(self._sequences)]
        if header.batch is not None:
            self._entries += header.batch.count
            self._ledgers.add(header.batch.ledger_id)

    def line(self) -> Record:
        counts = {kind.name.lower(): count for kind, count in self._counts.items() if count}
        return {
            "what": "total",
            **counts,
            "entries": self._entries,
            "ledgers": len(self._ledgers),
            "first_sequence": min(self._sequences, default=None),
            "last_sequence": max(self._sequences, default=None),
            "synced_through": self._synced_through,
            "sealed": self._last is not None and self._last.kind is RecordKind.SEAL,
            "damaged_bytes": self._damaged_bytes,
        }
