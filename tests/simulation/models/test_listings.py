"""Listings of a log against a plain list."""

from __future__ import annotations

from dataclasses import replace as dataclass_replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.log.changes import commit as log_commit
from bk_spark.log.stored import checkpoint
from bk_spark.log.stored.values import Totals
from tests.budget import examples
from tests.unit.log.log_world import LogWorld
from tests.unit.log.stored.test_listing import Commits, NaiveLog, memory_world

KINDS = ["append", "append", "overwrite", "replace", "compact", "truncate", "open", "roll", "roll", "close", "recover"]


STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.integers(0, 5), max_size=3), st.integers(0, 30)), min_size=8, max_size=40
)


@examples(100)
@given(steps=STEPS, interval=st.integers(1, 7), lost=st.sets(st.integers(1, 30)), oldest=st.integers(0, 30))
def test_every_version_lists_what_a_plain_list_would_whatever_checkpoints_there_are(steps, interval, lost, oldest):
    world = memory_world()
    commits = Commits(world)
    with pytest.MonkeyPatch.context() as patch:
        for module in (checkpoint, log_commit):
            patch.setattr(module, "CHECKPOINT_INTERVAL", interval)
        for name, sizes, start in steps:
            getattr(commits, name)(sizes, start)
            commits.record()
        raise_oldest_version(world, oldest)
        lose_checkpoints(world, lost - {oldest})
        check_versions(world, commits.naive, oldest)


def raise_oldest_version(world: LogWorld, oldest: int) -> None:
    uid = world.logs.names.uid("orders")
    if 0 < oldest <= world.logs.names.head("orders", uid).version:
        world.logs.write_checkpoint("orders", uid, oldest)
        world.logs.names.change_head("orders", uid, lambda head: dataclass_replace(head, oldest_version=oldest))


def lose_checkpoints(world: LogWorld, lost: set[int]) -> None:
    """As if their writers had died before they were whole."""
    paths = world.paths(world.logs.names.uid("orders"))
    for version in lost:
        (stored,) = world.store.get_many([paths.checkpoint(version)])
        if stored is not None:
            world.store.set(paths.checkpoint(version), b"", stored.version)


def check_versions(world: LogWorld, naive: NaiveLog, oldest: int) -> None:
    uid, reader = world.logs.names.uid("orders"), world.logs.reader
    head = world.logs.names.head("orders", uid)
    for number, (closed, opened, first_row, end_row) in enumerate(naive.history, 1):
        version = reader.version("orders", uid, number)
        assert (version.end_row, version.end_row - version.total.rows) == (end_row, first_row)
        if number >= head.oldest_version:
            listing = reader.listing("orders", uid, number)
            assert ([one.ledger_id for one in listing.closed], [one.ledger_id for one in listing.open]) == (closed, opened)
            assert Totals.of(listing.closed) == version.total
    assert len(naive.history) == head.version
    if naive.history:
        assert (head.first_row, head.end_row) == naive.history[-1][2:]
        assert [one.ledger_id for one in head.writer.open_ledgers] == naive.history[-1][1]
