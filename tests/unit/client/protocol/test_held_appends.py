"""Ledgers whose entry ids the application chooses. Ref: protocol rule 29."""

from __future__ import annotations

import pyarrow as pa

from bk_spark.client.protocol.state_machine import Append, CloseRequested, Confirm, SendAdd
from bk_spark.client.protocol.writer.append_batches import RUN_BYTES
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.errors import DuplicateEntryError, LedgerClosedError
from tests.unit.client.protocol.writer_model import NOISE, Writer, calls


def test_an_append_beyond_a_gap_waits_until_the_gap_is_filled() -> None:
    writer = Writer()
    assert writer.append(b"c", token="c", at=2) == {}
    assert writer.append(b"b", token="b", at=1) == {}
    writer.append(b"a", token="a", at=0)
    assert writer.machine.last_add_pushed == 2
    writer.ack(*[c for c in writer.log if hasattr(c, "batch")])
    assert writer.confirmed() == ["a", "b", "c"]


def test_batches_fill_gaps_as_well() -> None:
    writer = Writer()
    writer.append(b"2", b"3", token="later", at=2)
    writer.append(b"0", b"1", token="first", at=0)
    assert writer.machine.last_add_pushed == 3


def test_what_a_filled_gap_sets_free_goes_out_in_few_batches() -> None:
    """One request for each entry of a whole window would keep healthy bookies busy beyond the add timeout."""
    writer = Writer()
    ids = [n for n in range(2000, 0, -1) if n != 1500]
    for entry_id in ids:
        writer.append(b"x", token=entry_id, at=entry_id)
    writer.append(b"0", token=0, at=0)
    sent = [c for c in writer.log if isinstance(c, SendAdd)]
    assert len(sent) == 3 * 2
    assert writer.machine.last_add_pushed == 1499
    writer.ack(*sent)
    assert writer.confirmed() == writer.released() == list(range(1500))
    confirms = [c for c in writer.log if isinstance(c, Confirm)]
    assert all(c.token == c.first_entry_id for c in confirms)
    writer.append(b"x", at=1500)
    writer.do(CloseRequested())
    assert writer.rejected().keys() >= set(range(1501, 2001))
    assert sorted(writer.released()[1501:]) == list(range(1501, 2001))


def test_a_batch_of_what_was_held_has_its_bounds() -> None:
    writer = Writer()
    for n in range(1, 6):
        writer.append(b"x" * (RUN_BYTES // 2 - 100), at=n)
    writer.append(*[b""] * MAX_BATCH_ENTRIES, at=6)
    writer.append(b"", at=6 + MAX_BATCH_ENTRIES)
    writer.append(b"0", at=0)
    sizes = [c.batch.header.count for c in writer.log if isinstance(c, SendAdd) and c.bookie_id == "b0"]
    assert sizes == [1, 2, 2, 1, MAX_BATCH_ENTRIES, 1]


def test_an_entry_id_that_was_sent_is_a_duplicate() -> None:
    writer = Writer()
    writer.append(b"a", b"b", at=0)
    writer.append(b"again", token="again", at=1)
    error = writer.rejected()["again"]
    assert isinstance(error, DuplicateEntryError)
    assert error.entry_id == 1
    assert writer.released() == ["again"]


def test_an_entry_id_that_is_held_is_a_duplicate() -> None:
    writer = Writer()
    writer.append(b"5", b"6", token="held", at=5)
    writer.append(b"6", token="same", at=6)
    writer.append(b"4", b"5", token="overlapping", at=4)
    assert {token: error.entry_id for token, error in writer.rejected().items()} == {"same": 6, "overlapping": 5}
    writer.append(b"7", token="beside", at=7)
    assert "beside" not in writer.rejected()


def test_an_append_that_would_run_into_a_held_one_is_a_duplicate_also_where_it_is_next() -> None:
    writer = Writer()
    writer.append(b"1", token="held", at=1)
    writer.append(b"0", b"1", token="long", at=0)
    assert isinstance(writer.rejected()["long"], DuplicateEntryError)
    writer.append(b"0", token="short", at=0)
    assert writer.machine.last_add_pushed == 1


def test_what_is_held_when_the_writer_ends_is_rejected_and_released() -> None:
    writer = Writer()
    writer.append(b"5", token="held", at=5)
    writer.do(CloseRequested())
    assert isinstance(writer.rejected()["held"], LedgerClosedError)
    assert writer.released() == ["held"]


def test_an_append_beyond_a_gap_costs_the_same_however_many_are_held() -> None:
    few, many = Writer(), Writer()
    for writer, count in ((few, 10), (many, 1000)):
        for entry_id in range(count, 0, -1):
            writer.append(b"x", at=entry_id)
    append = Append(pa.array([b"x"], pa.binary()), "next", 2000)
    assert calls(lambda: many.machine.handle(append, 0)) < calls(lambda: few.machine.handle(append, 0)) + NOISE
