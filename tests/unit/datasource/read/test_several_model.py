"""Random programs of a stream over several logs, beside a simple model: which entries were written, and which were read.

Logs come, grow and go, the query is killed and started again, batches are repeated, limits change. In memory, without Spark
and without bookies: what Spark calls is called here.

Ref: docs/rules.md, log rules 6 and 7.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bk_spark.datasource.options import parse_options
from bk_spark.datasource.read import followed_log, log_streams
from bk_spark.datasource.read.loaded_log import Stored
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.read.several_reader import SeveralReader
from bk_spark.datasource.spark_schema import ENTRIES
from bk_spark.log.stream.positions import Offset
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.unit.log.log_case import Scene

NAMES = ("a", "b", "c", "d")
Entry = tuple[int, int]
"""Ledger and entry."""


class Program:
    """One query and its logs. ``step`` does something at random."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.scene = Scene()
        self.start = self.random.choice(["earliest", "latest"])
        self.written: dict[str, list[Entry]] = defaultdict(list)
        self.expected_from: dict[str, int] = {}
        self.read: dict[str, list[Entry]] = defaultdict(list)
        self.live: set[str] = set()
        self.ends: list[Offset] = []
        """What Spark keeps in its checkpoint."""
        self.batches: list[dict[str, list[Entry]]] = []
        bookkeeper = SimpleNamespace(logs=self.scene.logs, existing_ledgers=self._describe)
        for module in (followed_log, log_streams):
            patch.setattr(module, "connect", lambda *_: bookkeeper)
        for name in NAMES[:2]:
            self.write(name)

    def _describe(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        stored = self.scene.store.get_many([self.scene.znodes.ledger(one) for one in ledger_ids])
        return [LedgerMetadata.decode(one, found.value) for one, found in zip(ledger_ids, stored, strict=True) if found]

    def step(self) -> None:
        self.random.choice([self.write, self.write, self.write, self.delete, self.create, self.run, self.run])()

    def write(self, name: str | None = None) -> None:
        name = name or self.random.choice(NAMES)
        ledger = self.scene.write(name, self.random.randint(1, 6))
        uid = self.scene.logs.names.uid(name)
        self.live.add(uid)
        self.written[uid] += [(ledger.ledger_id, entry) for entry in range(ledger.last_entry_id + 1)]

    def create(self) -> None:
        self.live.add(self.scene.logs.open(self.random.choice(NAMES), create=True))

    def delete(self) -> None:
        """Less often than the rest, and never the last one."""
        names = self.scene.logs.names.all()
        if len(names) > 1 and self.random.random() < 0.4:
            name = self.random.choice(names)
            self.live.remove(self.scene.logs.names.uid(name))
            self.scene.logs.deleter.delete(name)

    def run(self, *, to_the_end: bool = False) -> None:
        """The query from its start to its end, or until it is killed."""
        limit = {} if to_the_end else {"maxRowsPerTrigger": str(self.random.randint(1, 12))}
        options = {"metadata": "zk://a:1/b", "logsPattern": ".", "content": "entries", "failOnDataLoss": "false", **limit}
        reading = Reading(parse_options({**options, "startingOffsets": self.start}, {}), ENTRIES)
        reader = SeveralReader(reading, Stored("it", "it", "entries", None))
        if not self.batches:
            self.ends = [self.begin(reader)]  # the checkpoint has nothing yet
            self.write()
        reader.prepareForTriggerAvailableNow()
        if self.batches:
            self.repeat(reader)
        while self.batch(reader) and (to_the_end or self.random.random() < 0.7):
            if not to_the_end and self.random.random() < 0.3:
                self.write()

    def begin(self, reader: SeveralReader) -> Offset:
        start = reader.initialOffset()
        self.expected_from = {uid: len(self.written[uid]) if self.start == "latest" else 0 for uid in start["logs"]}
        return start

    def batch(self, reader: SeveralReader) -> bool:
        start = self.ends[-1]
        end = kept(reader.latestOffset(start, reader.getDefaultReadLimit()))
        if end == start:
            return False
        found = self.entries(reader, start, end)
        for uid, entries in found.items():
            self.read[uid] += entries
        self.ends.append(end)
        self.batches.append(found)
        return True

    def repeat(self, reader: SeveralReader) -> None:
        """The last batch again, as after a driver that was killed in it: the same entries, but for logs that are deleted."""
        if self.batches:
            start = reader.initialOffset() if len(self.batches) == 1 else self.ends[-2]
            found = self.entries(reader, start, self.ends[-1])
            assert found == {uid: entries for uid, entries in self.batches[-1].items() if uid in self.live}

    def entries(self, reader: SeveralReader, start: Offset, end: Offset) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for partition in reader.partitions(start, end):
            portion: Any = partition.value
            for one in portion.portion.stretches:
                found[portion.uid] += [(one.ledger_id, entry) for entry in range(one.first_entry_id, one.last_entry_id + 1)]
        return dict(found)

    def check(self) -> None:
        self.run(to_the_end=True)
        for uid, entries in self.written.items():
            expected = entries[self.expected_from.get(uid, 0) :]
            if uid in self.live:
                assert self.read[uid] == expected
            else:
                assert self.read[uid] == expected[: len(self.read[uid])]


def kept(offset: Offset) -> Offset:
    """As it comes back from Spark's checkpoint."""
    text = json.dumps(offset)
    assert text == json.dumps(offset, sort_keys=True)
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(12))
def test_each_entry_is_read_once_and_in_order_and_repeated_batches_are_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(seed, monkeypatch)
    for _ in range(25):
        program.step()
    program.check()
    assert program.batches
