"""How many entries of topics one micro-batch takes under ``maxRowsPerTrigger`` and ``maxBytesPerTrigger``.

Only its entries tell how many messages a topic has, so they are read for that, no further than the batch goes. Topics share the
limits as logs do (``shares.py``). A chunked message counts where its last chunk is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.datasource.read.batch_limits import Admitted, Limits
from bk_spark.datasource.read.shares import in_turn, share_out
from bk_spark.datasource.topics.reading import TopicsRead
from bk_spark.entries.batch import numbers
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import NoSuchEntryError, NoSuchLedgerError, UnreadableMessagesError
from bk_spark.pulsar.messages import decode_in_turns
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Position
from bk_spark.topic.entries import TopicEntries
from bk_spark.topic.gathering import gathered
from bk_spark.topic.ledgers import TopicLedgers
from bk_spark.topic.view import TopicView

Ints = npt.NDArray[np.int64]


class BatchLimits:
    """Cuts micro-batches. The driver of one stream uses it."""

    def __init__(self, read: TopicsRead) -> None:
        self._access = read.access
        self._ledgers = TopicLedgers(self._access)
        self._last_first: str | None = None

    def ends(self, begins: Mapping[str, Position], newest: Mapping[str, Position], limits: Limits) -> dict[str, Position]:
        """The end of the batch in each topic: as far from ``begins`` to ``newest`` as the limits allow for all together."""
        ends = dict(begins)
        order = in_turn([topic for topic, end in newest.items() if end > begins[topic]], self._last_first)
        names = [TopicName.parse(topic) for topic in order]
        views = dict(zip(order, self._ledgers.views(names), strict=True))

        def admit(topic: str, share: Limits, least: int) -> Admitted[Position]:
            found = self._admitted(views[topic], ends[topic], newest[topic], share, least)
            ends[topic] = found.end
            return found

        share_out(order, limits, admit)
        self._last_first = order[0] if order else self._last_first
        return ends

    def _admitted(self, view: TopicView, begin: Position, newest: Position, limits: Limits, least: int) -> Admitted[Position]:
        end, left = begin, limits
        for ledger_id, ids, sizes, rows in self._entries(view, begin, newest, by_rows=limits.max_rows is not None):
            fitting = _fitting(sizes, rows, left)
            if fitting < len(ids) and end == begin:
                fitting = max(fitting, least)
            left = left.without(int(rows[:fitting].sum()), int(sizes[:fitting].sum()))
            if fitting:
                end = Position(ledger_id, int(ids[fitting - 1]) + 1)
            if fitting < len(ids):
                return Admitted(end, left, is_cut=True, is_nothing=end == begin)
        return Admitted(max(end, newest), left, is_cut=False, is_nothing=False)

    def _entries(
        self, view: TopicView, begin: Position, newest: Position, *, by_rows: bool
    ) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        """Ledger id, and the id, bytes and messages of some entries. What is trimmed or unreadable is passed over: the batch
        says so."""
        entries = TopicEntries(self._access, TopicName.parse(view.topic))
        for ledger, stretch in view.stretches(begin, newest):
            if ledger.unreadable is not None:
                continue
            try:
                found = entries.read(stretch.ledger_id, stretch.first_entry_id, stretch.last_entry_id)
                for ids, payloads in gathered(found):
                    rows = _messages(ids, payloads) if by_rows else np.zeros(len(ids), np.int64)
                    yield stretch.ledger_id, ids, np.concatenate([payload_sizes(one) for one in payloads.chunks]), rows
            except (NoSuchLedgerError, NoSuchEntryError, UnreadableMessagesError):
                continue


def _fitting(sizes: Ints, rows: Ints, limits: Limits) -> int:
    """How many of the entries fit."""
    fitting = len(sizes)
    for limit, each in ((limits.max_bytes, sizes), (limits.max_rows, rows)):
        if limit is not None:
            fitting = min(fitting, int(np.searchsorted(np.cumsum(each), limit, side="right")))
    return fitting


def _messages(ids: Ints, payloads: pa.ChunkedArray) -> Ints:
    """How many messages end in each entry."""
    found = np.zeros(len(ids), np.int64)
    for decoded in decode_in_turns(ids, payloads):
        rows = decoded.rows
        last_chunk = pc.equal(rows.column("chunk_id"), pc.subtract(rows.column("chunks"), 1))
        counts = pc.and_(pc.is_null(rows.column("marker_type")), pc.fill_null(last_chunk, True))
        places = np.searchsorted(ids, numbers(rows.filter(counts).column("entry_id")))
        found += np.bincount(places, minlength=len(ids))
    return found
