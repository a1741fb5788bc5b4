"""How entries become the batches of a copy. Ref: docs/formats.md, "A batch of entries"; protocol rule 33."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.client.protocol import copy_batches
from bk_spark.client.protocol.copy_batches import COPY_BYTES, copies
from bk_spark.config import LedgerOptions
from bk_spark.entries.batch import EncodedBatch, EntryBatch, decode, seal
from bk_spark.entries.digest import Digester
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.quorum import DENSE, IdPattern


def _metadata(options: LedgerOptions | None = None) -> LedgerMetadata:
    bookies = ("b1", "b2", "b3", "b4", "b5")[: (options or LedgerOptions()).ensemble_size]
    return new_ledger(7, options or LedgerOptions(), bookies, created_ms=0, creator_token=1)


def _sealed(metadata: LedgerMetadata, first: int, payloads: list[bytes], confirmed: int) -> EntryBatch:
    digester = Digester(metadata.digest_type, metadata.password)
    return seal(
        digester,
        metadata.ledger_id,
        first,
        pa.array(payloads, pa.binary()),
        length_before=first * len(payloads[0]),
        last_add_confirmed=confirmed,
    )


def _entries(copies: Sequence[EncodedBatch]) -> dict[int, tuple[int, bytes, bytes]]:
    """Entry id → last add confirmed, digest, payload."""
    decoded = [decode(one) for one in copies]
    columns = ((one.entry_ids, one.last_add_confirmed, one.digests.to_pylist(), one.payloads.to_pylist()) for one in decoded)
    rows = [row for column in columns for row in zip(*column, strict=True)]
    return {int(entry_id): (int(confirmed), digest, payload) for entry_id, confirmed, digest, payload in rows}


@pytest.mark.parametrize("pattern", [DENSE, IdPattern(5, 3, 1)])
def test_small_adds_are_joined_and_keep_their_digests_and_what_they_said_was_confirmed(pattern: IdPattern) -> None:
    metadata = _metadata(LedgerOptions(ensemble_size=5, write_quorum=5 if pattern.is_dense else 3))
    singles = [_sealed(metadata, one, [b"%03d" % one], one - 1) for one in range(100)]
    made = list(copies(singles, metadata, pattern))
    assert len(made) == 1
    assert all(one.header.pattern == pattern for one in made)
    wanted = {one: (one - 1, singles[one].digests[0].as_py(), b"%03d" % one) for one in range(100) if pattern.holds(one)}
    assert _entries(made) == wanted
    assert all(decode(one).matching(Digester(metadata.digest_type, b"")).all() for one in made)


def test_large_answers_are_cut_into_batches_that_a_bookie_takes() -> None:
    metadata = _metadata()
    large = [_sealed(metadata, 3 * one, [b"x" * 300_000] * 3, 3 * one - 1) for one in range(4)]
    made = list(copies(large, metadata, DENSE))
    assert list(_entries(made)) == list(range(12))
    assert max(len(one.body) for one in made) <= COPY_BYTES + 301_000


def test_no_batch_spans_more_ids_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_batches, "MAX_BATCH_ENTRIES", 10)
    metadata = _metadata()
    arrivals = [(0, 25), (25, 4), (29, 10), (39, 1)]
    made = list(copies([_sealed(metadata, first, [b"x"] * count, first - 1) for first, count in arrivals], metadata, DENSE))
    assert list(_entries(made)) == list(range(40))
    assert max(one.header.last_entry_id - one.header.first_entry_id for one in made) < 10


def test_entries_whose_lengths_do_not_add_up_are_copied_as_they_are() -> None:
    metadata = _metadata()
    odd = replace(_sealed(metadata, 1, [b"b"], 0), lengths=np.array([77]))
    made = list(copies([_sealed(metadata, 0, [b"a"], -1), odd], metadata, DENSE))
    assert [one.header.first_entry_id for one in made] == [0, 1]
