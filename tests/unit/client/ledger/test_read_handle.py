"""What a reader makes of metadata that it reads again, and how it cuts long reads."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from bk_spark.client.ledger import read_handle
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.protocol.limits import ReadLimits
from bk_spark.config import ClientConfig, LedgerOptions
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import NO_TOKEN, new_ledger

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


def test_a_reader_follows_a_ledger_whose_metadata_apache_s_client_wrote_again() -> None:
    """That client drops the token."""
    ledgers = mock.Mock()
    reader = ReadHandle(mock.Mock(), ledgers, METADATA)
    ledgers.metadata.return_value = replace(METADATA, creator_token=NO_TOKEN).closed_at(5, 60)
    assert reader.read_last_add_confirmed() == 5


@pytest.mark.parametrize(
    ("of_apache", "expected"), [(True, [(0, 3, 400), (4, 7, 400), (8, 11, 400), (12, 15, 400)]), (False, [(0, 15, 1200)])]
)
def test_a_long_read_from_bookies_of_apache_begins_three_parts_and_each_other_one_once_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, of_apache: bool, expected: list[tuple[int, int, int]]
) -> None:
    begun: list[tuple[int, int, int]] = []
    queues: list[mock.Mock] = []

    def begin(_: object, first: int, last: int, limits: ReadLimits, *, avoid: object) -> mock.Mock:
        begun.append((first, last, limits.ahead_bytes))
        return mock.Mock()

    def queue(*_: object) -> mock.Mock:
        made = mock.MagicMock(new_metadata=None)
        made.__iter__.return_value = iter([mock.MagicMock()] * 3)
        queues.append(made)
        return made

    monkeypatch.setattr(read_handle, "ReadEntries", begin)
    monkeypatch.setattr(read_handle, "ReadQueue", queue)
    context = mock.Mock(config=ClientConfig(read_batch_bytes=600, read_ahead_requests=2))
    context.are_of_apache.return_value = of_apache
    reader = ReadHandle(context, mock.Mock(), METADATA.closed_at(15, 16 * (100 - ENTRY_OVERHEAD_BYTES)))
    seen = [len(begun) for _ in reader.read(0, 15)]
    assert begun == expected
    assert seen == ([3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4] if of_apache else [1, 1, 1])
    assert all(one.close.call_count == 1 for one in queues)
    reading = reader.read(0, 15)
    next(reading)
    reading.close()
    assert all(one.close.call_count == 1 for one in queues), "a read that is left stops all of its parts"
