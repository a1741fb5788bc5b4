"""When the epoch of a bookie moves, and when the bookie lapses because it does not. Ref: docs/rules.md, storage rule 9."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bk_spark.bookie.identity.boot import MetadataPlace
from bk_spark.bookie.pace import Clocks
from bk_spark.bookie.process.boot_epoch_keeper import RETRY_S, BootEpochKeeper
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError, MetadataConflictError, MetadataUnavailableError
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.bookie.identity.bookie_home import ZNODES, Home

CONFIG = BookieConfig(epoch_interval_s=60, epoch_timeout_s=600)


class Outage(MemoryStore):
    """A metadata store that can be away; ``takes_s`` is how long it takes to say so."""

    def __init__(self, tree: MemoryTree, world: World) -> None:
        super().__init__(tree)
        self._world = world

    def sync(self, path: str) -> None:
        if self._world.is_away:
            self._world.now_s += self._world.takes_s
            raise MetadataUnavailableError(self.uri, "no answer")


class World:
    """A booted bookie, its clock and its metadata store."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root, disks=False)
        self.now_s, self.takes_s, self.is_away = 1_000.0, 1.0, False
        self.boot = self.home.run()
        place = MetadataPlace(Outage(self.home.tree, self), ZNODES)
        self.keeper = BootEpochKeeper(self.boot, place, CONFIG, self.now_s, Clocks(lambda: 0, lambda: self.now_s))

    @property
    def epoch(self) -> int:
        return self.home.stored().boot.epoch

    def run(self, seconds: float) -> None:
        """What the keeper's thread does in so much time; looks are made at the end."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + self.keeper.turn())
        self.keeper.look()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_epoch_moves_once_an_interval(world: World) -> None:
    world.run(59)
    assert world.epoch == 0
    world.run(600)
    assert world.epoch == 10
    assert world.keeper.lapse() == ""


def test_an_outage_of_the_metadata_store_of_nine_minutes_is_not_noticed(world: World) -> None:
    world.run(125)
    world.is_away = True
    world.run(9 * 60 - 6)
    assert world.keeper.lapse() == ""
    world.is_away = False
    world.run(2)
    assert world.keeper.age_s() < 60


def test_a_bookie_lapses_when_its_last_stored_epoch_is_too_old_and_says_so_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run(61)
    world.is_away = True
    with caplog.at_level(logging.WARNING):
        world.run(590)
        assert world.keeper.lapse() == ""
        world.run(9)
        assert "has not moved for 600 s (epoch_timeout_s): the metadata store" in world.keeper.lapse()
        world.run(3_000)
        world.is_away = False
        world.run(RETRY_S)
    assert world.keeper.lapse() == ""
    said = [record.getMessage() for record in caplog.records]
    assert ["cannot move its epoch" in line for line in said] == [True, False, False]
    assert "takes no changes and serves reads alone" in said[1]
    assert "takes changes again" in said[2]


def test_an_epoch_that_is_stored_late_counts_from_its_beginning(world: World) -> None:
    """A snapshot that was taken in between fits it, however late it was stored."""
    world.run(61)
    world.is_away = True
    world.run(900)
    world.is_away = False
    assert world.keeper.turn() == 0.0
    assert world.epoch == 2
    world.keeper.look()
    assert world.keeper.lapse() != ""
    world.keeper.turn()
    assert world.epoch == 3
    world.keeper.look()
    assert world.keeper.lapse() == ""


def test_a_process_that_stood_still_is_lapsed_when_it_goes_on(world: World) -> None:
    world.now_s += 3_600
    world.keeper.look()
    assert "the next try is under way" in world.keeper.lapse()


def test_a_bookie_that_another_process_has_taken_is_lapsed_at_once_and_ends(world: World) -> None:
    world.home.run()
    world.now_s += 60
    failures: list[BaseException] = []
    world.keeper.on_failure(failures.append)
    world.keeper.start()
    world.keeper._thread.join(60)
    assert isinstance(failures[0], MetadataConflictError)
    assert "another process runs this bookie" in world.keeper.lapse()


def test_no_time_is_left_without_a_try_where_the_timeout_allows_for_less_than_two(world: World) -> None:
    with pytest.raises(ConfigError, match="epoch_timeout_s"):
        BookieConfig(epoch_interval_s=60, epoch_timeout_s=119)
