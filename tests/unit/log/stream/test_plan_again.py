"""Plans that a vacuum meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bk_spark.errors import DataLossError
from bk_spark.log.stored.values import Head
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.stream.plan_again import planned
from bk_spark.log.stream.positions import behind
from tests.unit.log.stream.stream_world import NAME, StreamWorld, entries, entries_of


class _Planning:
    """Plans all that there was when it was made. Before its first look, ``meanwhile`` happens."""

    def __init__(self, world: StreamWorld, meanwhile: Callable[[], object], *, fails: bool = True) -> None:
        self._world, self._meanwhile, self._fails = world, meanwhile, fails
        self.head = world.head
        self._end = world.follower().newest(self.head, world.ends(), behind(0)).position
        self.looks = 0

    def stretches(self) -> list[PlacedStretch]:
        return planned(self._world.logs.names, self._world.uid, self.head, self._plan)

    def _plan(self, head: Head) -> list[PlacedStretch]:
        self.looks += 1
        if self.looks == 1:
            self._meanwhile()
        return list(self._world.follower().stretches(behind(0), self._end, head, fail_on_data_loss=self._fails))


@pytest.fixture
def world() -> StreamWorld:
    """A leader has an empty ledger before that with its entries. Both are closed, and no version says so yet."""
    world = StreamWorld()
    world.open()
    world.confirm(world.roll(), 3)
    world.recover_all()
    return world


@pytest.mark.parametrize("fails", [True, False], ids=["failOnDataLoss", "not"])
def test_a_plan_whose_ledger_a_vacuum_deletes_is_made_again_and_tells_of_no_loss(world: StreamWorld, fails: bool) -> None:
    def compact_and_vacuum() -> None:
        world.append(2)
        world.compact(*[one.ledger_id for one in world.logs.reader.snapshot(NAME).ledgers])
        world.vacuum()

    planning = _Planning(world, compact_and_vacuum, fails=fails)
    found = planning.stretches()
    (compacted,) = world.logs.reader.snapshot(NAME).ledgers
    assert list(entries_of(found)) == entries(compacted.ledger_id, 3)
    assert planning.looks == 2


def test_a_ledger_that_is_gone_without_a_vacuum_is_a_loss(world: StreamWorld) -> None:
    lost = world.head.writer.open_ledgers[0].ledger_id
    planning = _Planning(world, lambda: world.store.delete(world.znodes.ledger(lost)))
    with pytest.raises(DataLossError, match=f"ledger {lost} of version 1 was deleted"):
        planning.stretches()
    assert planning.looks == 1
