"""The lake of a duel: a table and its files, in memory, as each process reaches them.

T1  no row is twice in the table                       T3  a released ledger's rows are in files, whole
T2  at the end the table has the rows of the log       T4  no file of the log that somebody needs is deleted
T5  a tier that nobody disturbs comes to an end        T6  a vacuum leaves no file that nobody needs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from bk_spark.errors import CorruptionError, StorageError
from bk_spark.lake.ports import Rewrite, TableChange, TableFile, TableState, step_of
from bk_spark.log.stored.tier_mark import NO_STEP
from bk_spark.log.stored.tier_records import DataFile, LedgerContent, TierStep
from bk_spark.log.stored.values import CommittedLedger
from tests.simulation.logs.audit import require
from tests.simulation.logs.tree import Fate

if TYPE_CHECKING:
    from tests.simulation.logs.world import Machine

Row: TypeAlias = tuple[int, int, bytes]
"""Ledger, entry, payload."""

LOG = "duel"


class Lake:
    """What all processes of a duel share: the table's states, and the files that there are."""

    def __init__(self, uid: str) -> None:
        self.files: dict[str, list[Row]] = {}
        self.states = [TableState("table", uid, NO_STEP, None, ())]
        self._snapshots = 0
        self.may_be_set_back = False
        self._oldest = 0
        """The first state that a snapshot keeps."""
        self._tags: dict[tuple[int, int], TableState] = {}
        """By the log's version and the step's number."""

    @property
    def newest(self) -> TableState:
        return self.states[-1]

    @property
    def kept(self) -> list[TableState]:
        """What snapshots and tags keep."""
        return [*self._tags.values(), *self.states[self._oldest :]]

    def expire(self, oldest: int, version: int) -> None:
        """States below ``oldest``, and our tags of versions up to ``version``."""
        self._tags = {name: state for name, state in self._tags.items() if name[0] > version}
        self._oldest = max(self._oldest, oldest)

    def has_tags(self, version: int) -> bool:
        return any(number <= version for number, _ in self._tags)

    def has_old(self) -> bool:
        return self._oldest < len(self.states) - 1

    def paths(self) -> frozenset[str]:
        return frozenset(one.path for state in self.kept for one in state.files)

    @property
    def ever(self) -> frozenset[str]:
        """All files that the table ever had."""
        return frozenset(one.path for state in self.states for one in state.files)

    def rows(self) -> list[Row]:
        """Of the table, by ledger and entry; without those of files that are gone."""
        return sorted(row for one in self.newest.files for row in self.files.get(one.path, []))

    def check_files(self) -> None:
        gone = [one.path for one in self.newest.files if one.path not in self.files]
        require(not gone, "T4", f"the table names files that are gone: {gone[:3]}")

    def apply(self, base: TableState, change: TableChange) -> bool:
        """The catalog's compare-and-set."""
        if base.snapshot != self.newest.snapshot:
            return False
        stay = tuple(one for one in self.newest.files if one.path not in change.remove)
        added = tuple(TableFile(one.path, one.size, has_log_rows=True, has_other_rows=False) for one in change.add)
        if change.remove:
            self._tags[change.version, change.step.number] = base
        self.put(replace(self.newest, step=change.step, files=stay + added))
        return True

    def put(self, state: TableState) -> None:
        self._snapshots += 1
        self.restore(replace(state, snapshot=self._snapshots))

    def restore(self, state: TableState) -> None:
        """Also an old state, whose snapshot then is the newest again."""
        self.states.append(state)
        twice = [row for row, count in Counter(self.rows()).items() if count > 1]
        require(not twice, "T1", f"in the table more than once: {twice[:3]}")


@dataclass(frozen=True, slots=True)
class SimulatedTable:
    """One process's way to the catalog."""

    machine: Machine

    def look(self) -> TableState:
        self.machine.turn("looks at the table")
        self._check_reached()
        return self.machine.world.the_lake.newest

    def unfit(self, paths: Iterable[str]) -> list[str]:
        return []

    def commit(self, base: TableState, change: TableChange) -> None:
        self.machine.turn(f"commits {change.step} to the table")
        fate, lake = self.machine.fate("the catalog"), self.machine.world.the_lake
        if fate is Fate.ANSWERED and self.machine.befalls(self.machine.world.weather.late_commits, "late commits"):
            fate = Fate.DELAYED
        if fate is Fate.DELAYED:
            self.machine.world.later.append(lambda: lake.apply(base, change))
        elif fate is not Fate.REQUEST_LOST:
            landed = lake.apply(base, change)
            self.machine.world.marks["snapshots" if landed else "refused snapshots"] += 1
            if not landed:
                raise StorageError("committing to the table", "refused")
        if fate is not Fate.ANSWERED:
            raise StorageError("committing to the table", "no answer")

    def is_expired(self, before_ms: int, version: int) -> bool:
        self._check_reached()
        lake = self.machine.world.the_lake
        return lake.has_tags(version) or (lake.has_old() if before_ms else self.machine.world.choices.choose(4, "expired") == 3)

    def expire(self, before_ms: int, version: int) -> None:
        self.machine.turn("expires snapshots")
        self._check_reached()
        lake = self.machine.world.the_lake
        newest = len(lake.states) - 1
        lake.expire(newest if before_ms else self.machine.world.choices.choose(newest + 1, "oldest snapshot"), version)

    def paths(self) -> frozenset[str]:
        self.machine.turn("reads all snapshots")
        self._check_reached()
        return self.machine.world.the_lake.paths()

    def _check_reached(self) -> None:
        if self.machine.is_cut_off("the catalog"):
            raise StorageError("reading the table", "no answer")


@dataclass(frozen=True, slots=True)
class SimulatedFiles:
    """One process's way to the files."""

    machine: Machine

    @property
    def _all(self) -> dict[str, list[Row]]:
        return self.machine.world.the_lake.files

    def write(
        self, folder: str, step: TierStep, rewrites: Sequence[Rewrite]
    ) -> tuple[dict[int, LedgerContent], tuple[DataFile, ...]]:
        files: list[DataFile] = []
        content: dict[int, LedgerContent] = {}
        add = step.add
        while add:
            count = self.machine.world.choices.between(1, 3, "ledgers in a file")
            for _ in range(self.machine.world.choices.choose(30, "slow reading")):
                self.machine.turn("reads ledgers")
            rows = [row for one in add[:count] for row in self._ledger(one)]
            content |= {one.ledger_id: _content(one.ledger_id, rows) for one in add[:count]}
            files.append(self._file(folder, len(files), rows, [one.ledger_id for one in add[:count]]))
            add = add[count:]
        for one in rewrites:
            rows = [row for row in self._read(one.file.path) if row[0] in one.stay]
            files.append(self._file(folder, len(files), rows, one.stay))
            self.machine.world.marks["rewritten files"] += 1
        return content, tuple(files)

    def read_back(self, files: Iterable[DataFile]) -> dict[int, LedgerContent]:
        files = list(files)
        rows = [row for one in files for row in self._read(one.path) if row[0] in one.ledgers]
        return {ledger_id: _content(ledger_id, rows) for ledger_id in sorted({n for one in files for n in one.ledgers})}

    def missing(self, files: Iterable[DataFile]) -> list[str]:
        self.machine.turn("looks for files")
        return [one.path for one in files if one.path not in self._all]

    def folders(self, step: int) -> list[str]:
        self.machine.turn("lists folders")
        return sorted({path.rpartition("/")[0] for path in self._all if path.startswith(f"{step}-")})

    def delete_folder(self, folder: str) -> None:
        self.machine.turn(f"deletes {folder}")
        for path in [one for one in self._all if one.startswith(folder + "/")]:
            del self._all[path]

    def sweep(self, last: int, named: Container[str]) -> None:
        for path in sorted(self._all):
            number = step_of(path.partition("/")[0])
            if number is not None and number <= last and path not in named:
                self.machine.turn(f"deletes {path}")
                self._all.pop(path, None)
                self.machine.world.marks["swept files"] += 1

    def _ledger(self, ledger: CommittedLedger) -> list[Row]:
        payloads = self.machine.ledgers.open(ledger.ledger_id).payloads(0)
        return [(ledger.ledger_id, entry, payload) for entry, payload in enumerate(payloads)]

    def _file(self, folder: str, number: int, rows: list[Row], ledgers: Sequence[int]) -> DataFile:
        self.machine.turn(f"writes {folder}/{number}")
        is_cut = self.machine.befalls(self.machine.world.weather.cut_uploads, "cut uploads")
        self._all[f"{folder}/{number}"] = rows[:-1] if is_cut else rows
        return DataFile(f"{folder}/{number}", len(rows), tuple(ledgers))

    def _read(self, path: str) -> list[Row]:
        self.machine.turn(f"reads {path}")
        if path not in self._all:
            raise CorruptionError(f"file {path}", "it is gone")
        return self._all[path]


def _content(ledger_id: int, rows: Iterable[Row]) -> LedgerContent:
    own = [row for row in sorted(rows) if row[0] == ledger_id]
    return LedgerContent(len(own), sha256(repr(own).encode()).hexdigest()[:8])


def tiered_payloads(machine: Machine, ledger_id: int) -> list[bytes] | None:
    """All entries of a ledger, from the tier; None where no section has it.

    Raises StorageError where others deleted a file before a tierer knew.
    """
    place = machine.logs.reader.tier.find(LOG, machine.world.uid, {ledger_id}).get(ledger_id)
    if place is None:
        return None
    machine.turn(f"reads ledger {ledger_id} from the tier")
    if any(one.path not in machine.world.the_lake.files for one in place.files):
        raise StorageError(f"reading ledger {ledger_id}", "others deleted a file")
    rows = sorted(row for one in place.files for row in machine.world.the_lake.files[one.path] if row[0] == ledger_id)
    is_whole = _content(ledger_id, rows) == place.ledger.content
    require(is_whole, "T3", f"the rows of ledger {ledger_id} are not those of the tier")
    machine.world.marks["ledgers read from the tier"] += 1
    return [payload for _, _, payload in rows]
