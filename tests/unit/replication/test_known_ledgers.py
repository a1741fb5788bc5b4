"""What is remembered of the last audit."""

from __future__ import annotations

from bk_spark.config import LedgerOptions
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.replication.known_ledgers import KnownLedgers


def ledger(ledger_id: int, *ensemble: str) -> LedgerMetadata:
    options = LedgerOptions(ensemble_size=len(ensemble), write_quorum=len(ensemble), ack_quorum=1)
    return new_ledger(ledger_id, options, ensemble, created_ms=0, creator_token=0)


def test_ledgers_are_found_by_each_bookie_that_they_name_once_and_in_their_order() -> None:
    known = KnownLedgers()
    known.note([ledger(1, "b1", "b2"), ledger(5, "b2", "b3")])
    known.note([ledger(2**40, "b1", "b3")])
    assert known.naming({"b1"}) == [1, 2**40]
    assert known.naming({"b1", "b2"}) == [1, 5, 2**40]
    assert known.naming({"b4"}) == []
    assert known.naming(()) == []


def test_no_more_names_are_remembered_than_allowed() -> None:
    known = KnownLedgers(max_names=5)
    known.note([ledger(1, "b1", "b2"), ledger(2, "b1", "b2"), ledger(3, "b1", "b2")])
    known.note([ledger(4, "b1")])
    assert known.naming({"b1", "b2"}) == [1, 2]
