"""Ledgers whose entry ids the application chooses. Ref: protocol rule 29."""

from __future__ import annotations

from bk_spark.client.operation import CloseRequested
from bk_spark.errors import DuplicateEntryError, LedgerClosedError
from tests.client.writer_model import Writer


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
