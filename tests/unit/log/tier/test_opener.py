"""A read goes on in the files where its ledger leaves the bookies in the middle of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.errors import CorruptionError, NoSuchLedgerError
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.metadata.store import ANY_VERSION
from tests.unit.log.tier.tier_scene import TierScene

ASKED = AskedRows(pa.schema([("n", pa.int64())]))


class Leaving:
    """A ledger on bookies, of which three entries are read before it is gone."""

    ledger_id = 7

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        for entry_id in range(first, 3):
            yield pa.record_batch([pa.array([entry_id]), pa.array([b"x"])], names=["entry_id", "payload"])
        raise NoSuchLedgerError(7)


class InFiles:
    def rows(self, first: int, last: int, asked: AskedRows) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(range(first, last + 1))], schema=ASKED.schema)


def convert(ledger_id: int, entries: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([entries.column("entry_id")], schema=ASKED.schema)


def test_each_row_is_given_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogLedgerOpener, "tiered", lambda self, ledger_id: InFiles())
    nothing: Any = None
    opener, leaving = LogLedgerOpener(nothing, "orders", "u", nothing), Leaving()
    found = opener.rows(leaving, 1, 5, ASKED, convert)  # type: ignore[arg-type]
    assert [value for batch in found for value in batch["n"].to_pylist()] == [1, 2, 3, 4, 5]


def test_a_section_that_a_vacuum_gives_up_after_the_head_was_read_has_nothing_to_find(scene: TierScene) -> None:
    """A reader's head is older than the vacuum."""
    ledgers = [scene.write("orders") for _ in range(2)]
    uid = scene.begin("orders")
    scene.tiered("orders", ledgers[:1], ledgers[1:])
    scene.cleared("orders", 2)
    before = scene.head("orders").tier
    scene.given_up("orders", 1)
    places = scene.logs.reader.tier
    assert set(places.released("orders", uid, before, {one.ledger_id for one in ledgers})) == {ledgers[1].ledger_id}
    scene.store.delete(scene.paths(uid).tier_section(1), ANY_VERSION)
    with pytest.raises(CorruptionError, match="section 1 of the tier of log 'orders' is damaged: it is missing"):
        places.released("orders", uid, before, {ledgers[1].ledger_id})
