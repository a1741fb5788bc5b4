"""Entries that a recovery holds come out in order, each once, and are counted as long as they are held."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.client.protocol.recovery_reads import HeldEntries, detached
from bk_spark.config import DigestType
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, EntryBatch, seal
from bk_spark.entries.digest import Digester


def payload(entry_id: int) -> bytes:
    return b"%d" % entry_id * (entry_id % 3)


def batch(*ids: int) -> EntryBatch:
    """Entries of a ledger, the chosen ones of which are in the batch."""
    whole = seal(
        Digester(DigestType.CRC32C, b""),
        7,
        0,
        pa.array([payload(one) for one in range(max(ids) + 1)], pa.binary()),
        length_before=0,
        last_add_confirmed=-1,
    )
    return whole.select(np.isin(whole.entry_ids, ids))


def check(run: EntryBatch | None, *ids: int) -> None:
    assert run is not None
    assert run.entry_ids.tolist() == list(ids)
    assert run.payloads.to_pylist() == [payload(one) for one in ids]
    assert run.lengths.tolist() == [sum(len(payload(below)) for below in range(one + 1)) for one in ids]
    assert run.nbytes == sum(len(payload(one)) + ENTRY_OVERHEAD_BYTES for one in ids)


def test_a_run_ends_before_the_next_gap_and_the_rest_stays() -> None:
    held = HeldEntries()
    held.add(batch(0, 1, 2, 4, 5))
    check(held.take_run(0), 0, 1, 2)
    assert held.ids == {4, 5}
    assert held.nbytes == batch(4, 5).nbytes
    assert held.take_run(3) is None
    held.add(batch(3))
    check(held.take_run(3), 3, 4, 5)
    assert (held.ids, held.nbytes) == (set(), 0)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_in_which_entries_come_each_comes_out_once_in_its_place(seed: int) -> None:
    chance = random.Random(seed)
    ids = list(range(1, 40))
    chance.shuffle(ids)
    held, found, frontier = HeldEntries(), list[int](), 1
    while ids:
        some, ids = sorted(ids[:5]), ids[5:]
        held.add(batch(*some))
        run = held.take_run(frontier)
        if run is not None:
            check(run, *run.entry_ids.tolist())
            found += run.entry_ids.tolist()
            frontier = int(run.entry_ids[-1]) + 1
    assert found == list(range(1, 40))
    assert held.nbytes == 0


def test_a_part_of_a_message_does_not_keep_the_whole_in_memory() -> None:
    whole = batch(*range(1000))
    part = detached(whole, whole.entry_ids < 10)
    assert part.payloads.buffers()[2].size < whole.payloads.buffers()[2].size / 10
    assert part.digests.buffers()[1].size < whole.digests.buffers()[1].size / 10
    assert part.lengths.base is None
    everything = detached(whole, np.ones(len(whole), np.bool_))
    assert everything.payloads is whole.payloads


def test_nothing_new_changes_nothing() -> None:
    held = HeldEntries()
    one = batch(0, 1)
    held.add(detached(one, np.zeros(2, np.bool_)))
    assert (held.ids, held.nbytes, held.take_run(0)) == (set(), 0, None)
