"""A streaming read of one ledger, as entries: it goes as far as the ledger is confirmed, and idles once the ledger has ended.

The ledger is opened without recovery, so its writer is never disturbed. An offset is the next entry to read, so the entries of
a micro-batch follow from its offsets alone. It also keeps where the first batch began: see ``StreamOffset``.

Ref: docs/formats.md, "Offsets and cursors"; Spark's Python Data Source API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.datasource.ledgers.tail import FollowedLedger, LedgerTail
from bk_spark.datasource.option_values import EARLIEST, LATEST, ledger_offset
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.read.batch_limits import Limits, StoredSizes, admitted, default_limit
from bk_spark.datasource.read.micro_batch import FEW_ENTRIES
from bk_spark.datasource.read.partitions import plan
from bk_spark.datasource.read.read_task import Reading
from bk_spark.errors import ConfigError
from bk_spark.log.stored.values import Content
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.stream.positions import StreamPosition

Offset = dict[str, int]


class LedgerStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one ledger from Spark's driver; the tasks have copies, which only read."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._made: FollowedLedger | None = None
        self._tail: LedgerTail | None = None
        self._initial: int | None = None
        self._frozen: int | None = None
        self._newest: int | None = None

    @plain_errors()
    def initialOffset(self) -> Offset:
        """Where a query with an empty checkpoint starts: option ``startingOffsets``. Raises NoSuchLedgerError, ConfigError."""
        if self._initial is None:
            self._initial = self._first(self._reading.options.starting_offsets or LATEST)
        return self._offset(self._initial, self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._reading.options)

    @plain_errors()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch: ``start`` if nothing is new, never before it. Answered from memory while idle."""
        given, limits = self._given(start), Limits.of(limit, self._reading.options)
        self._newest = end = max(given["entry"], self._end())
        if end > given["entry"] and not limits.is_unlimited:
            end = self._admitted(given["entry"], end, limits)
        is_first = end == given["entry"] or given.get("start") == given["entry"]
        return self._offset(end, given.get("start") if is_first else None)

    def reportLatestOffset(self) -> Offset | None:
        return None if self._newest is None else self._offset(self._newest)

    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The portions of a micro-batch, the same for the same offsets, also after a restart. Raises NoSuchLedgerError."""
        began, ended = self._given(start), self._given(end)
        first = began["entry"] if began == ended else ended.get("start", began["entry"])
        if first > ended["entry"]:
            remedy = "go on with a new checkpoint, and an offset that you trust"
            raise ConfigError("the start of a batch", json.dumps(start), f"it lies behind its end, {json.dumps(end)}: {remedy}")
        if first == ended["entry"]:
            return []
        options = self._reading.options
        portions = plan([self._stretch(first, ended["entry"] - 1)], options.max_bytes_per_partition, options.min_partitions)
        return [InputPartition(portion) for portion in portions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The entries of one portion, in order, in exactly the declared schema."""
        with plain_errors():
            yield from self._reading.batches(partition.value or ())

    def commit(self, end: Offset) -> None:
        """Nothing is kept outside of the checkpoint."""

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: all that a quorum of bookies has confirmed now."""
        self._frozen = self._ledger.end()

    def stop(self) -> None:
        if self._tail is not None:
            self._tail.stop()

    @property
    def _ledger(self) -> FollowedLedger:
        """Made at the first use: the copies of the tasks have none."""
        if self._made is None:
            self._made = FollowedLedger.of(self._reading)
        return self._made

    def _end(self) -> int:
        if self._frozen is not None:
            return self._frozen
        if self._tail is None:
            self._tail = LedgerTail(self._ledger)
        return self._tail.end()

    def _first(self, starts: str) -> int:
        end = self._ledger.end()
        if starts in (EARLIEST, LATEST):
            return 0 if starts == EARLIEST else end
        entry = self._checked(json.loads(starts), "option 'startingOffsets'")["entry"]
        if entry > end:
            problem = f"ledger {self._ledger.ledger_id} is confirmed up to entry {end - 1}: give an entry up to {end}"
            raise ConfigError("option 'startingOffsets'", starts, problem)
        return entry

    def _admitted(self, first: int, end: int, limits: Limits) -> int:
        entries, ledger_id = end - first, self._ledger.ledger_id
        placed = PlacedStretch(0, 0, ledger_id, first, end - 1, entries, 0, None, Content.ENTRIES, None, is_whole=False)
        taken = admitted([placed], StreamPosition(0, 0, ledger_id, first), limits, StoredSizes(self._ledger.open_ledger))
        return taken.end.entry_id

    def _stretch(self, first: int, last: int) -> Stretch:
        sizes, nbytes = StoredSizes(self._ledger.open_ledger), 0
        if last - first >= FEW_ENTRIES:
            nbytes = sizes.length_up_to(self._ledger.ledger_id, last) - sizes.length_up_to(self._ledger.ledger_id, first - 1)
        return Stretch(self._ledger.ledger_id, first, last, nbytes)

    def _offset(self, entry: int, start: int | None = None) -> Offset:
        """With sorted keys, because Spark compares offsets as text."""
        return {"entry": entry, "ledger": self._ledger.ledger_id} | ({} if start is None else {"start": start})

    def _given(self, offset: object) -> Offset:
        return self._checked(offset, "the offset in the checkpoint")

    def _checked(self, offset: object, what: str) -> Offset:
        found = ledger_offset(what, json.dumps(offset))
        if found["ledger"] != self._ledger.ledger_id:
            problem = f"it is of another ledger than option 'ledger', {self._ledger.ledger_id}: start with a new checkpoint"
            raise ConfigError(what, json.dumps(offset), problem)
        return found
