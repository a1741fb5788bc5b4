"""Checks whether a stopped bookie could start, and what its start would find. Changes nothing.

Directories, cookies and boot files are compared with each other and, if the caller asked the metadata store, with that. In the
index every stored batch is verified. The log files are read as a start reads them: every file that the index knows must exist
with the size that the index knows, and everything from the mark on is read. What the witness tells of must be there. The scrub
checks what lies before the mark.

Ref: docs/rules.md, storage rules 2, 3, 7, 9 and 15, protocol rule 48; situation 69.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.identity.identity import Identity
from bk_spark.bookie.index.generation import IndexGeneration, problem_of_index, read_generation
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE, INDEX_FILE, check_state, index_exists
from bk_spark.bookie.index.values import IndexState
from bk_spark.bookie.inspection.index import IndexView, read_index
from bk_spark.bookie.log_files.all_log_files import LogFilesReplay, logs_exist
from bk_spark.bookie.log_files.log_file import FileKind
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.log_files.witness import WITNESS_FILE, FoundWitness, find_witness
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    place: str
    problem: str = ""
    """Empty if all is well."""
    note: str = ""
    """Something to know that is no problem."""


class _Spectator(Disk):
    """A disk that deletes nothing: a replay, even if only read, would delete the unfinished files of a crash."""

    def unlink(self, path: Path) -> None:
        pass


def check_directories(identity: Identity) -> Iterator[Finding]:
    """The results of examining cookies and boot files."""
    places = [str(root.path) for root in identity.roots]
    for place in dict.fromkeys([*places, *(one.place for one in identity.mismatches)]):
        problems = [str(one.error) for one in identity.mismatches if one.place == place]
        yield Finding("cookie and boot file" if place in places else "cookie", place, "; ".join(problems))


Progress = Callable[[str, int], None]
"""What is being read, and how much of it so far."""


def check_storage(
    directories: Directories, bookie_id: str, config: BookieConfig, progress: Progress = lambda what, done: None
) -> Iterator[Finding]:
    """Check the index, then the log files, if the index says which exist. The caller holds the locks of all roots."""
    disk = _Spectator()
    has_past = index_exists(directories.index, disk) or logs_exist(directories, disk)
    witness, path = find_witness(disk, directories.data_dir, has_past=has_past), str(directories.data_dir / WITNESS_FILE)
    if not has_past and not witness.content.generation and not witness.problem:  # it was only formatted
        yield Finding("index", str(directories.index))
        return
    found: list[tuple[IndexState, list[KnownEntryLog]]] = []
    yield Finding("index", str(directories.index), _problem_of_index(directories, bookie_id, found, progress))
    for state, known in found:
        yield _check_witness(witness, state, path)
        if state.limbo is not None:
            watermark = state.limbo.fence_watermark
            note = f"an earlier loss is not repaired yet, up to ledger {watermark}: the bookie goes on with it"
            yield Finding("limbo", str(directories.index), note=note)
        yield from _check_files(directories, known, disk)
        begin = partial(LogFilesReplay, directories, bookie_id, config, disk, state.mark, known, witness.content)
        yield from _check_ends(begin, directories, progress)


def _check_witness(witness: FoundWitness, state: IndexState, path: str) -> Finding:
    """An index that was rebuilt is no fault. That the next start is in limbo is said elsewhere."""
    told = IndexGeneration(witness.content.incarnation, witness.content.generation)
    found = problem_of_index(told, IndexGeneration(state.incarnation, state.generation))
    if told.incarnation != state.incarnation:
        return Finding("witness", path, witness.problem, note=found)
    return Finding("witness", path, witness.problem or found)


def _problem_of_index(
    directories: Directories, bookie_id: str, found: list[tuple[IndexState, list[KnownEntryLog]]], progress: Progress
) -> str:
    """Empty if the index is good. What it says of the log files goes to ``found``, even if its stored batches are damaged."""
    disk = _Spectator()

    def read(view: IndexView) -> None:
        check_state(path, view.state, bookie_id, read_generation(disk, directories.index / GENERATION_FILE))
        found[:] = [(view.state, view.entry_logs())]
        view.verify(full=True, progress=lambda rows: progress("rows of the index", rows))

    path = directories.index / INDEX_FILE
    reading = read_index(directories.index, disk, read)
    if reading.rollback_bytes:
        found.clear()
        return f"a commit was cut short ({reading.rollback_bytes} bytes to be undone): the next start does it, check again then"
    return reading.problem


def _check_files(directories: Directories, known: Sequence[KnownEntryLog], disk: Disk) -> Iterator[Finding]:
    """Files that stored batches refer to must exist, in full."""
    for log in known:
        if log.state is LogState.DEAD or log.directory >= len(directories.entry_logs):
            continue
        path = directories.entry_logs[log.directory] / f"{log.file_id:010d}{FileKind.ENTRY_LOG.suffix}"
        size = disk.size(path) if disk.exists(path) else None
        if size is None:
            yield Finding("entry log", str(path), "it is missing")
        elif size < log.total_bytes:
            yield Finding("entry log", str(path), f"it has {size} bytes, and the index knows of {log.total_bytes}")


def _check_ends(begin: Callable[[], LogFilesReplay], directories: Directories, progress: Progress) -> Iterator[Finding]:
    """Read what a start would replay."""
    count = 0
    try:
        replay = begin()
        for _ in replay.records():
            count += 1
            progress("records of the log files", count)
    except BookKeeperError as problem:
        yield Finding("logs", str(directories.data_dir), str(problem))
        return
    for damage in replay.damages:
        yield Finding("logs", str(damage.path), str(damage))
    if not replay.damages:
        yield Finding(f"logs, {count} records from the mark on", str(directories.data_dir))
