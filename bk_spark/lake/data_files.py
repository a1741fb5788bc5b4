"""The files of a tier: what is written and read together, one after the other or side by side."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from bk_spark.files.file_store import FileStore
from bk_spark.lake import file_tasks
from bk_spark.lake.file_tasks import FileTasks, WriteTask, Written
from bk_spark.lake.plan import merged
from bk_spark.lake.ports import Rewrite, step_of
from bk_spark.lake.row_source import RowSource
from bk_spark.lake.step_progress import Copying, ReadingBack
from bk_spark.log.stored.tier_records import DataFile, LedgerContent, TierStep
from bk_spark.log.stored.tier_settings import PartitionField
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.progress import Progress, no_progress


class TaskRunner(Protocol):
    """Runs tasks of ``FileTasks``, and gives their results in the order of the tasks."""

    def write(self, tasks: Sequence[WriteTask]) -> Sequence[Written]: ...

    def read(self, tasks: Sequence[Sequence[DataFile]]) -> Sequence[dict[int, LedgerContent]]: ...


class InTurn:
    """Here, one after the other."""

    def __init__(self, tasks: FileTasks, progress: Progress = no_progress) -> None:
        self._tasks = tasks
        self._progress = progress

    def write(self, tasks: Sequence[WriteTask]) -> Sequence[Written]:
        copying = Copying([ledger for one in tasks for ledger in one.ledgers], self._progress)
        return [self._tasks.write(one, copying.told) for one in tasks]

    def read(self, tasks: Sequence[Sequence[DataFile]]) -> Sequence[dict[int, LedgerContent]]:
        reading = ReadingBack([file for one in tasks for file in one], self._progress)
        return [self._tasks.read(one, reading.told) for one in tasks]


class DataFiles:
    """The files of one log's tier, below ``folder``, which no other log has.

    ``identified`` gives columns the ids that they have in the table.
    """

    def __init__(
        self,
        store: FileStore,
        folder: str,
        source: RowSource,
        identified: Callable[[pa.Schema], pa.Schema],
        runner: TaskRunner,
        partition: tuple[PartitionField, ...] = (),
    ) -> None:
        self._store = store
        self._folder = folder
        self._source = source
        self._identified = identified
        self._runner = runner
        self._partition = partition

    def write(
        self, folder: str, step: TierStep, rewrites: Sequence[Rewrite]
    ) -> tuple[dict[int, LedgerContent], tuple[DataFile, ...]]:
        """See ``TierFiles``."""
        columns = self._identified(self._source.columns(step.schema_id)) if step.add else None
        work = [*((tuple(group), None) for group in groups(step.add)), *(((), rewrite) for rewrite in rewrites)]
        tasks = [
            WriteTask(f"{self._folder}/{folder}/{number:05}", columns, step.schema_id, ledgers, rewrite, self._partition)
            for number, (ledgers, rewrite) in enumerate(work)
        ]
        written = self._runner.write(tasks)
        content = {ledger: found for one in written for ledger, found in one.content.items()}
        return content, tuple(file for one in written for file in one.files)

    def read_back(self, files: Iterable[DataFile]) -> dict[int, LedgerContent]:
        """See ``TierFiles``."""
        found: dict[int, LedgerContent] = {}
        for one in self._runner.read(apart(merged(files))):
            found |= one
        return found

    def missing(self, files: Iterable[DataFile]) -> list[str]:
        """See ``TierFiles``."""
        return [one.path for one in files if self._store.size(one.path) != one.size]

    def folders(self, step: int) -> list[str]:
        """See ``TierFiles``."""
        return sorted(name for name in self._store.folders(self._folder) if step_of(name) == step)

    def delete_folder(self, folder: str) -> None:
        """See ``TierFiles``."""
        self._store.delete_folder(f"{self._folder}/{folder}")

    def sweep(self, last: int, named: Container[str]) -> None:
        """See ``TierFiles``."""
        by_folder: dict[str, list[str]] = {}
        for path in self._store.files(self._folder):
            folder = path[len(self._folder) + 1 :].partition("/")[0]
            number = step_of(folder)
            if number is not None and number <= last:
                by_folder.setdefault(folder, []).append(path)
        for folder, paths in by_folder.items():
            unnamed = [one for one in paths if one not in named]
            if len(unnamed) == len(paths):
                self.delete_folder(folder)
                continue
            for path in unnamed:
                self._store.delete(path)


def groups(ledgers: Sequence[CommittedLedger]) -> list[list[CommittedLedger]]:
    """The ledgers of each file, in order. One of more than a file's bytes is alone, in one or several."""
    found: list[list[CommittedLedger]] = []
    nbytes = 0
    for one in ledgers:
        if not found or nbytes + one.length > file_tasks.FILE_BYTES:
            found.append([])
            nbytes = 0
        found[-1].append(one)
        nbytes += one.length
    return found


def apart(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """The files in parts, such that no ledger is in two parts. All stay in their order."""
    parts: dict[int, list[int]] = {}
    """Each ledger's part: places of files."""
    for place, file in enumerate(files):
        met = {id(part): part for part in (parts.get(one, []) for one in file.ledgers)}
        part = sorted({place, *(one for part in met.values() for one in part)})
        joined = {ledger for one in part for ledger in files[one].ledgers}
        parts |= dict.fromkeys(joined, part)
    found = {id(part): part for part in parts.values()}
    return [[files[place] for place in part] for part in sorted(found.values())]
