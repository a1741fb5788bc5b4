"""Bookies whose disks go back to a snapshot, and nobody says so: what their cookies, boots and epochs are for.

In runs with such faults each bookie has the shipped identity, on its simulated disk and in a metadata store of its own that may
be away, lose replies, and make changes late. Boots find that store; moves of the epoch may not. Times are short, so that
snapshots are soon older than what is promised.

A disk goes back only where identity/boot_epoch.py promises something: the bookie took something later than ``epoch_timeout_s``
after the snapshot, or nothing since.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.identity.boot import Boot, MetadataPlace, begin_boot
from bk_spark.bookie.identity.cookie import format_bookie
from bk_spark.bookie.identity.identity import examine
from bk_spark.bookie.pace import Clocks
from bk_spark.bookie.process.boot_epoch_keeper import BootEpochKeeper
from bk_spark.config import BookieConfig
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import StoreError
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree
from tests.simulation.engines.choices import Choices

INTERVAL_MS = 200
TIMEOUT_MS = 600
LATE_MS = 2_000
"""How much later a change may take effect whose outcome is unknown."""

LEAST_MS = 10
"""Between two turns; less counts as no time in a script."""

ZNODES = Znodes("/ledgers")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a bookie's identity needs of the run that it is in."""

    choices: Choices
    now_ms: Callable[[], int]
    later: Callable[[int, Callable[[], None]], None]


class SimulatedIdentity:
    """The cookie of one bookie. ``format`` its empty disk first."""

    def __init__(self, path: Path, config: BookieConfig, disk: Disk, surroundings: Surroundings) -> None:
        seconds = {"epoch_interval_s": INTERVAL_MS / 1000, "epoch_timeout_s": TIMEOUT_MS / 1000}
        self._config = replace(config, automatic_cookie_repair=True, **seconds)  # type: ignore[arg-type]
        self._directories = Directories.of(path, self._config)
        self._disk = disk
        self._around = surroundings
        self._tree = MemoryTree(lambda: 0)
        self._place = MetadataPlace(MemoryStore(self._tree), ZNODES)
        self.store = _UnreliableStore(self._tree, surroundings)
        """That of the moves."""
        initialise_cluster(self._place.store, ZNODES)
        self._bookie_id = format_bookie(self._directories, self._place.store, ZNODES, "b", disk=disk)
        self._boot: Boot | None = None
        self._keeper: BootEpochKeeper | None = None
        self.is_stopped = False
        """Epochs move no more, and none lapses."""

    def boot(self) -> str:
        """Take the next boot number. Returns why data may be lost, "" if it is not. Raises BookKeeperError."""
        began_s = self._now_s()
        identity = examine(self._directories, self._place.store, ZNODES, self._disk, bookie_id=self._bookie_id)
        self._boot = begin_boot(identity, self._place, self._config, self._disk)
        moves = MetadataPlace(self.store, ZNODES)
        self._keeper = BootEpochKeeper(self._boot, moves, self._config, began_s, Clocks(lambda: 0, self._now_s))
        return self._boot.possible_loss

    def opened(self) -> None:
        """The storage is open, and its limbo durable if there is one."""
        assert self._boot is not None
        self._boot.opened(skips_journal=False)

    def ended_cleanly(self) -> None:
        assert self._boot is not None
        self._boot.end()

    def turn(self) -> int:
        """Move the epoch if that is due. Returns after how many ms to call this again."""
        assert self._keeper is not None
        return max(LEAST_MS, round(1000 * self._keeper.turn()))

    def lapse(self) -> str:
        """Why the bookie must acknowledge nothing now; "" if it may."""
        return "" if self.is_stopped or self._keeper is None else self._keeper.lapse()

    def _now_s(self) -> float:
        return self._around.now_ms() / 1000


class _UnreliableStore(MemoryStore):
    def __init__(self, tree: MemoryTree, surroundings: Surroundings) -> None:
        super().__init__(tree)
        self._around = surroundings
        self.is_away = False

    def sync(self, path: str) -> None:
        if self.is_away:
            raise MetadataUnavailableError(self.uri, "no answer")

    def set(self, path: str, value: bytes, version: int) -> int:
        fate = self._around.choices.choose(20, "what becomes of an epoch")
        if fate < 17:
            return super().set(path, value, version)
        if fate == 17:
            super().set(path, value, version)
        elif fate == 18:
            delay_ms = self._around.choices.choose(LATE_MS, "takes effect after")
            self._around.later(delay_ms, lambda: self._set_late(path, value, version))
        self.is_away = True  # or the outcome would be looked up at once
        self._around.later(INTERVAL_MS, lambda: setattr(self, "is_away", False))
        raise MetadataUnavailableError(self.uri, "no answer")

    def _set_late(self, path: str, value: bytes, version: int) -> None:
        with suppress(StoreError):
            super().set(path, value, version)


def draw_restored(choices: Choices, bookies: tuple[str, ...], chaos_ms: int) -> tuple[tuple[int, str, str, int], ...]:
    """As a schedule's faults: when, kind, target, for how long. Snapshots are restored that much later."""
    faults = []
    for _ in range(choices.between(1, 3, "snapshots")):
        at_ms = choices.choose(choices.pick((1_000, chaos_ms), "snapshot within"), "snapshot at")
        after_ms = choices.pick((1_500, 700, 5_000), "restored after")
        bookie = choices.pick(bookies, "whose disk")
        faults.append((at_ms, "restore", bookie, after_ms))
        if choices.choose(2, "an outage before it"):
            begins_ms = max(0, at_ms - choices.choose(2 * INTERVAL_MS, "outage before it by"))
            faults.append((begins_ms, "cookie store away", bookie, choices.pick((8_000, 300, 1_500), "away for")))
    return tuple(faults)
