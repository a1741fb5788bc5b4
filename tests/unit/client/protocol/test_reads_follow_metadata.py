"""A read goes on while ensembles change and ledgers are re-replicated. Ref: protocol rule 57; situation 51."""

from __future__ import annotations

import dataclasses

import pytest

from bk_spark.client.protocol.read_entries import MAX_METADATA_READS
from bk_spark.client.protocol.state_machine import Event, MetadataGone, MetadataRead, MetadataUnknown, ReadMetadata, SendRead
from bk_spark.errors import (
    BookieUnavailableError,
    DigestMismatchError,
    MetadataUnavailableError,
    NoSuchEntryError,
    NoSuchLedgerError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.reader_model import (
    LIMITS,
    SILENT,
    Late,
    Reader,
    Replica,
    damaged_from,
    ending_before,
    failing,
    healthy,
    ledger,
    small_answers,
)

OLD = ("b0", "b1", "b2")
NEW = ("b3", "b4", "b5")
STORE_DOWN = MetadataUnknown(MetadataUnavailableError("zk://somewhere", "no answer"))


def _with(*fragments: tuple[int, tuple[str, ...]], closed_at: int | None = None) -> LedgerMetadata:
    metadata = dataclasses.replace(ledger(), fragments=tuple(Fragment(first, ensemble) for first, ensemble in fragments))
    return metadata if closed_at is None else metadata.closed_at(closed_at, 0)


def _reader(old: Replica | Late, new: Replica | Late, *store: Event, closed_at: int | None = None) -> Reader:
    """One that knows the old ensemble alone."""
    replicas = {**dict.fromkeys(OLD, old), **dict.fromkeys(NEW, new)}
    return Reader(_with((0, OLD), closed_at=closed_at), replicas, list(store))


def _read(metadata: LedgerMetadata) -> MetadataRead:
    return MetadataRead(metadata, 2)


GONE_BOOKIES = [
    failing(Status.UNKNOWN),
    failing(Status.NO_SUCH_LEDGER),
    ending_before(12, Status.IO_ERROR),
    ending_before(12, Status.NO_SUCH_ENTRY),
    damaged_from(12),
    SILENT,
]


@pytest.mark.parametrize("old", GONE_BOOKIES)
def test_a_reader_of_a_closed_ledger_goes_on_when_all_its_bookies_were_replaced(old: Replica | Late) -> None:
    """A decommissioned or emptied bookie is silent, or says no: the ledger was re-replicated. Ref: protocol rule 57."""
    reader = _reader(old, healthy, _read(_with((0, NEW), closed_at=40)), closed_at=40)
    assert reader.read(0, 40) == list(range(41))
    assert reader.looks == 1
    assert reader.machine.metadata.fragments == (Fragment(0, NEW),)


def test_no_entry_is_said_to_be_missing_on_the_word_of_a_metadata_server_that_lags() -> None:
    """Storage rule 8: the bookies that such a server names may have dropped the entry rightly."""
    reader = _reader(ending_before(12, Status.NO_SUCH_ENTRY), healthy, _read(_with((0, NEW), closed_at=40)), closed_at=40)
    assert reader.read(0, 40) == list(range(41))
    assert [c for c in reader.log if isinstance(c, ReadMetadata)] == [ReadMetadata(is_synced=True)]


def test_a_reader_that_is_open_during_an_ensemble_change_goes_on_in_the_new_fragment() -> None:
    """Situation 51: what follows entry 12 lies with bookies that the reader had not heard of."""
    reader = _reader(ending_before(12, Status.NO_SUCH_ENTRY), healthy, _read(_with((0, OLD), (12, NEW))))
    assert reader.read(0, 40) == list(range(41))
    assert {c.bookie_id for c in reader.log if isinstance(c, SendRead) and c.first >= 13} <= set(NEW)


def test_several_ensemble_changes_are_taken_in_with_one_look() -> None:
    third = ("b0", "b3", "b6")
    changed = _with((0, OLD), (12, NEW), (20, third))
    reader = _reader(ending_before(12, Status.NO_SUCH_ENTRY), ending_before(20, Status.NO_SUCH_ENTRY), _read(changed))
    reader.replicas |= {"b0": failing(Status.UNKNOWN), "b6": healthy}
    assert reader.read(0, 40) == list(range(41))
    assert reader.looks == 1


def test_each_ensemble_change_that_comes_while_it_reads_is_taken_in() -> None:
    """More of them than looks without progress: every entry that comes sets the count back."""
    ensembles = [(f"b{3 * i}", f"b{3 * i + 1}", f"b{3 * i + 2}") for i in range(2 * MAX_METADATA_READS)]
    fragments = [(10 * i, ensemble) for i, ensemble in enumerate(ensembles)]
    replicas: dict[str, Replica | Late] = {
        bookie: ending_before(10 * i + 10, Status.NO_SUCH_ENTRY) for i, ensemble in enumerate(ensembles) for bookie in ensemble
    }
    store: list[Event] = [_read(_with(*fragments[: i + 2])) for i in range(len(fragments) - 1)]
    reader = Reader(_with(fragments[0]), replicas, store)
    last = 10 * len(fragments) - 1
    assert reader.read(0, last) == list(range(last + 1))


@pytest.mark.parametrize(("e", "w"), [(3, 2), (4, 2), (5, 3)])
def test_with_striping_too_a_read_goes_on_from_the_position_that_it_reached(e: int, w: int) -> None:
    old, new = tuple(f"b{s}" for s in range(e)), tuple(f"n{s}" for s in range(e))
    for broken in range(e):
        metadata = ledger(e, w, 1)
        replicas: dict[str, Replica | Late] = dict.fromkeys((*old, *new), small_answers)
        replicas |= {old[(broken + k) % e]: ending_before(20, Status.UNKNOWN) for k in range(w)}
        changed = dataclasses.replace(metadata, fragments=(Fragment(0, new),))
        assert Reader(metadata, replicas, [_read(changed)]).read(0, 60) == list(range(61))


def test_a_read_whose_ensemble_did_not_change_fails_as_it_would_have() -> None:
    for old, error in (
        (ending_before(12, Status.UNKNOWN), BookieUnavailableError),
        (ending_before(12, Status.NO_SUCH_ENTRY), NoSuchEntryError),
        (damaged_from(12), DigestMismatchError),
    ):
        reader = _reader(old, healthy)
        with pytest.raises(error, match="entry 12"):
            reader.read(0, 40)
        assert reader.looks == 1
        assert reader.delivered == list(range(12))


def test_other_entries_that_moved_do_not_help_the_one_that_is_missing() -> None:
    reader = _reader(ending_before(12, Status.UNKNOWN), healthy, _read(_with((0, OLD), (30, NEW))))
    with pytest.raises(BookieUnavailableError, match="entry 12"):
        reader.read(0, 40)


def test_metadata_that_keeps_changing_without_an_entry_ends_the_read() -> None:
    down = failing(Status.UNKNOWN)
    flapping: list[Event] = [_read(_with((0, NEW))), _read(_with((0, OLD)))] * 10
    reader = _reader(down, down, *flapping)
    with pytest.raises(BookieUnavailableError, match="entry 0"):
        reader.read(0, 40)
    assert reader.looks == MAX_METADATA_READS


def test_a_ledger_that_was_deleted_meanwhile_is_called_so() -> None:
    with pytest.raises(NoSuchLedgerError):
        _reader(failing(Status.NO_SUCH_LEDGER), healthy, MetadataGone()).read(0, 40)


def test_without_an_answer_of_the_store_the_read_fails_with_what_the_bookies_said() -> None:
    with pytest.raises(BookieUnavailableError, match="entry 0"):
        _reader(failing(Status.UNKNOWN), healthy, STORE_DOWN).read(0, 40)


def test_without_an_answer_of_the_store_no_entry_is_called_missing() -> None:
    """The bookies that said no may be those of a former ensemble: unknown is never treated as no."""
    with pytest.raises(MetadataUnavailableError):
        _reader(failing(Status.NO_SUCH_ENTRY), healthy, STORE_DOWN).read(0, 40)


def test_an_unconfirmed_entry_that_nobody_has_is_missing_and_what_came_before_stays_delivered() -> None:
    """A read beyond the last add confirmed."""
    reader = _reader(ending_before(12, Status.NO_SUCH_ENTRY), healthy)
    with pytest.raises(NoSuchEntryError, match="no entry 12"):
        reader.read(0, 40)
    assert reader.delivered == list(range(12))


def test_a_ledger_that_was_closed_before_the_missing_entry_has_no_such_entry() -> None:
    """Whatever lies behind the end, on whichever bookie, is not of the ledger."""
    for fragments in ([(0, OLD)], [(0, OLD), (5, NEW)]):
        reader = _reader(ending_before(12, Status.UNKNOWN), healthy, _read(_with(*fragments, closed_at=11)))
        with pytest.raises(NoSuchEntryError, match="no entry 12"):
            reader.read(0, 40)
        assert reader.delivered == list(range(12))


def test_a_read_that_goes_on_in_a_closed_ledger_ends_at_its_end() -> None:
    reader = _reader(ending_before(12, Status.UNKNOWN), healthy, _read(_with((0, NEW), closed_at=20)))
    with pytest.raises(NoSuchEntryError, match="no entry 21"):
        reader.read(0, 40)
    assert reader.delivered == list(range(21))


def test_a_read_beyond_what_is_confirmed_tells_nothing_of_the_last_add_confirmed() -> None:
    """No command of a read moves it, whatever the entries carry. Ref: protocol rule 14."""
    reader = _reader(healthy, healthy)
    assert reader.read(0, 40) == list(range(41))
    assert {type(c).__name__ for c in reader.log} == {"SendRead", "CancelRead", "Deliver", "Finish"}
    assert reader.machine.metadata == reader.metadata
    assert not hasattr(reader.machine, "last_add_confirmed")


def test_a_stripe_of_which_one_entry_is_nowhere_reads_nothing_more_until_the_metadata_is_known() -> None:
    """Slot 1 reads entries 0 and 1, and slot 0 was asked for entry 0 beside it. What both lack is on other bookies by now."""
    before, gone = ledger(e=3, w=2), failing(Status.NO_SUCH_ENTRY)
    replicas = {**dict.fromkeys(("b2", *NEW), healthy), "b0": gone, "b1": Late(LIMITS.speculative_ms + 100, gone)}
    reader = Reader(before, replicas, [_read(dataclasses.replace(before, fragments=(Fragment(0, NEW),)))])
    assert reader.read(0, 8) == list(range(9))
    assert reader.asked.count("b1") == 1
