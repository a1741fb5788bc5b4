"""A ledger whose rows lie in files, as readers of logs see it: in the place of the handle of a ledger on bookies."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bk_spark.entries.batch import READ_SCHEMA
from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.log.stored.tier_columns import CONFIRMED, ENTRY, LENGTH, PAYLOAD, PLACE
from bk_spark.log.stored.tier_places import TieredPlace
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.kept_footers import KEPT_FOOTERS
from bk_spark.log.tier.row_order import of_entries, order_of, parts_of
from bk_spark.rows.gathering import as_one

if TYPE_CHECKING:
    from bk_spark.files.file_store import FileStore
    from bk_spark.log.tier.file_rows import TierFile


class TieredHandle:
    """Reads one ledger. It opens files as it needs them, and closes them behind each read; threads may share it."""

    def __init__(self, log: str, place: TieredPlace, store: FileStore) -> None:
        self._log = log
        self.place = place
        self._store = store

    def __repr__(self) -> str:
        return f"<TieredHandle: ledger {self.ledger_id} of log '{self._log}'>"

    @property
    def ledger_id(self) -> int:
        return self.place.ledger.ledger_id

    @property
    def is_closed(self) -> bool:
        return True

    @property
    def last_add_confirmed(self) -> int:
        return self.place.ledger.listed.last_entry_id

    @property
    def length(self) -> int:
        """Payload bytes that it had on bookies."""
        return self.place.ledger.listed.length

    def rows(self, first: int, last: int, asked: AskedRows) -> Iterator[pa.RecordBatch]:
        """The rows that stand in entries ``first`` to ``last``, both inclusive, in their order.

        Raises CorruptionError where a file is gone or is none; StorageError where the store of files does not answer.
        """
        for found, what in self._found(first, last, list(asked.stored), asked):
            yield from asked.of_file(self.ledger_id, found, what)

    def rows_of_entries(self, first: int, last: int, asked: AskedRows) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """The same rows, in batches of whole entries, each with the first entry behind it; None: without rows to give."""
        begun: list[pa.RecordBatch] = []
        for found, what in self._found(first, last, list(asked.stored), asked):
            entries = found.column(ENTRY).to_numpy()
            whole = int(np.searchsorted(entries, entries[-1]))  # the last entry may go on in the next batch
            if whole:
                yield self._joined([*begun, found.slice(0, whole)], asked, what), int(entries[-1])
                begun = []
            begun.append(found.slice(whole))
        yield self._joined(begun, asked, repr(self)), last + 1

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Entries of a log of entries, as ``ReadHandle.read`` gives them."""
        names = {"entry_id": ENTRY, "last_add_confirmed": CONFIRMED, "length": LENGTH, "payload": PAYLOAD}
        for found, what in self._found(first, last, list(names.values()), None):
            if found.schema.get_field_index(CONFIRMED) < 0:
                remedy = "its rows lie in the log's tier, and what the entries were is gone: read rows, not entries"
                raise ConfigError(f"ledger {self.ledger_id} of log '{self._log}'", what, remedy)
            yield pa.RecordBatch.from_arrays([found.column(names[one.name]) for one in READ_SCHEMA], schema=READ_SCHEMA)

    def row_counts(self, first: int, last: int) -> Iterator[int]:
        """The number of rows in each of the entries, in order."""
        counts: Counter[int] = Counter()
        for found, _ in self._found(first, last, [], None):
            counts.update(found.column(ENTRY).to_pylist())
        return (counts[entry_id] for entry_id in range(first, last + 1))

    def length_up_to(self, entry_id: int) -> int:
        """About how many payload bytes the entries up to this one had, as if all were equally long."""
        return self.length * (entry_id + 1) // max(1, self.last_add_confirmed + 1)

    def _joined(self, found: list[pa.RecordBatch], asked: AskedRows, what: str) -> pa.RecordBatch | None:
        given = [rows for one in found for rows in asked.of_file(self.ledger_id, one, what)]
        return as_one(given) if given else None

    def _found(
        self, first: int, last: int, columns: list[str], asked: AskedRows | None
    ) -> Iterator[tuple[pa.RecordBatch, str]]:
        from bk_spark.log.tier.file_rows import TierFile  # and pyarrow.parquet, which others need not wait for

        wanted = [*dict.fromkeys([*columns, *PLACE])]
        files = [TierFile(self._store, one, KEPT_FOOTERS) for one in self.place.files]
        try:
            in_order = _in_order(files, self.ledger_id)
            for file in in_order or ():
                yield from self._streamed(file, first, last, wanted, asked)
            if files and in_order is None:
                yield from self._sorted(files, first, last, wanted)
            if not files and self.place.ledger.listed.rows:
                raise CorruptionError(f"the tier of log '{self._log}'", f"no file has the rows of ledger {self.ledger_id}")
        finally:
            for one in files:
                one.close()

    def _streamed(
        self, file: TierFile, first: int, last: int, wanted: list[str], asked: AskedRows | None
    ) -> Iterator[tuple[pa.RecordBatch, str]]:
        groups = file.groups_of(self.ledger_id, first, last)
        if asked is not None:
            groups = file.matching(groups, asked)
        for batch in self._of_groups(file, groups, wanted):
            own = of_entries(batch, self.ledger_id, first, last)
            if own.num_rows:
                yield own, file.what

    def _of_groups(self, file: TierFile, groups: list[int], wanted: list[str]) -> Iterator[pa.RecordBatch]:
        """All rows of row groups, or of those that it shares with others its own rows."""
        for is_shared, alike in itertools.groupby(groups, file.is_shared):
            if not is_shared:
                yield from file.batches(list(alike), wanted)
                continue
            for group in alike:
                yield from file.shared(group, self.ledger_id, wanted)

    def _sorted(self, files: list[TierFile], first: int, last: int, wanted: list[str]) -> Iterator[tuple[pa.RecordBatch, str]]:
        """Others wrote the files: their rows come in any order."""
        row_bytes = max(file.row_bytes(file.groups_of(self.ledger_id, first, last)) for file in files)
        asked = (min(last, self.last_add_confirmed) - first + 1) / max(1, self.last_add_confirmed + 1)
        for start, end in parts_of(first, last, int(self.place.ledger.listed.rows * asked * row_bytes)):
            yield from self._sorted_part(files, start, end, wanted)

    def _sorted_part(
        self, files: list[TierFile], first: int, last: int, wanted: list[str]
    ) -> Iterator[tuple[pa.RecordBatch, str]]:
        found = []
        for file in files:
            for batch in file.batches(file.groups_of(self.ledger_id, first, last), wanted):
                own = of_entries(batch, self.ledger_id, first, last)
                if own.num_rows:
                    found.append(pa.Table.from_batches([own]))
        if not found:
            return
        rows = pa.concat_tables(found, promote_options="permissive")
        places = order_of(rows)
        for batch in (rows if places is None else rows.take(pa.array(places))).to_batches():
            yield batch, files[0].what


def _in_order(files: list[TierFile], ledger_id: int) -> list[TierFile] | None:
    """The files of a ledger one after the other; None unless their rows are in the log's order then."""
    if not all(one.is_in_order for one in files):
        return None
    if len(files) < 2:
        return files
    spans = sorted(((one.entries_of(ledger_id), one) for one in files), key=lambda pair: pair[0] or (0, 0))
    known = [span for span, _ in spans if span is not None]
    is_apart = all(one[1] < other[0] for one, other in itertools.pairwise(known))
    return [one for _, one in spans] if len(known) == len(files) and is_apart else None
