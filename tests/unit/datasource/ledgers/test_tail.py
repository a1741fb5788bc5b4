"""How far one ledger can be read: an answer that is not there is no empty ledger."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.datasource.ledgers import tail
from bk_spark.datasource.ledgers.tail import FollowedLedger, LedgerTail
from bk_spark.errors import MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.znodes import Znodes


def followed(open_ledger: Any) -> FollowedLedger:
    store = SimpleNamespace(watch=lambda path, on_change: lambda: None)
    return FollowedLedger(7, cast("Any", SimpleNamespace(store=store, znodes=Znodes("/ledgers"))), open_ledger)


def test_a_ledger_of_which_nobody_tells_how_far_it_goes_is_not_taken_for_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "STALE_S", 0.01)
    released = threading.Event()

    def never(ledger_id: int) -> ReadHandle:
        released.wait(60)
        raise NoSuchLedgerError(ledger_id)

    following = LedgerTail(followed(never))
    with pytest.raises(MetadataUnavailableError, match="nothing was heard of ledger 7"):
        following.end()
    following.stop()
    released.set()


def test_why_a_ledger_cannot_be_followed_is_raised() -> None:
    def gone(ledger_id: int) -> ReadHandle:
        raise NoSuchLedgerError(ledger_id)

    with pytest.raises(NoSuchLedgerError):
        LedgerTail(followed(gone)).end()
