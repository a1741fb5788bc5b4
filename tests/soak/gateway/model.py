"""What was appended through the gateways, and what of it must be in the logs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

SCHEMA = pa.schema({"writer": pa.string(), "number": pa.int64(), "part": pa.int64()})

Name = tuple[str, int]
"""The writer of an append, and its number."""


def rows_of(name: Name, count: int) -> pa.Table:
    return pa.table({"writer": [name[0]] * count, "number": [name[1]] * count, "part": range(count)}, SCHEMA)


@dataclass(frozen=True)
class Begun:
    """One append, however often it was sent."""

    log: str
    rows: int
    version: int | None = None
    """In which it was acknowledged; None: it was not, and is there once or not at all."""


@dataclass
class Model:
    """Of all appends. From any thread."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    begun: dict[Name, Begun] = field(default_factory=dict)
    kept: set[Name] = field(default_factory=set)
    """Batches of the continuous writer that were acknowledged."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: Name, log: str, rows: int) -> None:
        with self._lock:
            self.begun[name] = Begun(log, rows)

    def acknowledge(self, name: Name, version: int, *, already: bool) -> None:
        with self._lock:
            before = self.begun[name]
            self.begun[name] = Begun(before.log, before.rows, version)
            self.counts["acknowledged"] += 1
            self.counts["of these by a repeat that was told 'already'"] += already
        if before.version not in (None, version):
            self.differs(f"append {name} was acknowledged in version {before.version}, and then in {version}")

    def count(self, what: str, by: int = 1) -> None:
        with self._lock:
            self.counts[what] += by

    def differs(self, what: str) -> None:
        with self._lock:
            self.differences.append(what)

    def logs(self) -> set[str]:
        return {one.log for one in self.begun.values()}

    def check(self, log: str, batches: Iterable[pa.RecordBatch], added: dict[int, int]) -> None:
        """All rows of a log, at the end. ``added``: how many rows each of its versions has brought."""
        found = parts(batches)
        for name, begun in self.begun.items():
            if begun.log != log:
                continue
            seen = found.pop(name, [])
            whole = seen == list(range(begun.rows))
            if begun.version is not None and not whole:
                self.differs(f"append {name} of {begun.rows} rows was acknowledged, and log {log} has {_shown(seen)}")
            elif seen and not whole:
                self.differs(f"append {name} of {begun.rows} rows was not acknowledged, and log {log} has {_shown(seen)}")
            elif begun.version is not None and added.get(begun.version) != begun.rows:
                self.differs(f"append {name} is not what version {begun.version} of log {log} has brought")
            self.counts["given up, and there"] += begun.version is None and bool(seen)
            self.counts["given up, and not there"] += begun.version is None and not seen
        for name in found:
            self.differs(f"log {log} has rows of {name}, which nobody has appended there")

    def check_continuous(self, log: str, batches: Iterable[pa.RecordBatch], rows: int) -> None:
        """All rows of the log whose writer never sent a batch twice."""
        found = parts(batches)
        for name in self.kept:
            if found.get(name) != list(range(rows)):
                self.differs(f"batch {name} was acknowledged, and log {log} has {_shown(found.get(name, []))} of its {rows}")
        for name, seen in found.items():
            if len(set(seen)) != len(seen):
                self.differs(f"log {log} has {_shown(seen)} of batch {name}")
        self.counts["batches acknowledged"] += len(self.kept)


def parts(batches: Iterable[pa.RecordBatch]) -> dict[Name, list[int]]:
    """The parts that there are of each append, in the log's order."""
    found: dict[Name, list[int]] = {}
    for writer, number, part in listed(batches):
        found.setdefault((writer, number), []).append(part)
    return found


def listed(batches: Iterable[pa.RecordBatch]) -> list[tuple[str, int, int]]:
    return [row for batch in batches for row in zip(*(one.to_pylist() for one in batch.columns), strict=True)]


def _shown(seen: list[int]) -> str:
    return f"{len(seen)} rows, {len(set(seen))} of them different"
