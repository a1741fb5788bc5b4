"""What a reader makes of metadata that it reads again."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.config import LedgerOptions
from bk_spark.errors import NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import new_ledger

METADATA = new_ledger(7, LedgerOptions(), ("b1", "b2", "b3"), created_ms=0, creator_token=1)


def test_a_reader_whose_ledger_s_id_was_given_out_again_reads_nothing_of_the_other_ledger() -> None:
    """Protocol rule 64."""
    ledgers = mock.Mock()
    reader = ReadHandle(mock.Mock(), ledgers, METADATA)
    ledgers.metadata.return_value = replace(METADATA, creator_token=2).closed_at(5, 60)
    for ask in (reader.read_last_add_confirmed, reader.try_read_last_add_confirmed):
        with pytest.raises(NoSuchLedgerError):
            ask()
    assert (reader.is_closed, reader.metadata) == (False, METADATA)
    ledgers.metadata.return_value = METADATA.closed_at(5, 60)
    assert reader.read_last_add_confirmed() == 5
