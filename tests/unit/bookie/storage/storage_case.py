"""What a schedule of a storage rule is: a story with one bookie that must not end in lost, denied, wrong or returned data.

A ``Case`` names the guard that keeps its schedule from going wrong, and can take it out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bk_spark.bookie import batch_read
from bk_spark.bookie.identity.boot import Boot
from bk_spark.errors import BookKeeperError
from bk_spark.wire.messages import ReadEnd, Status
from tests.unit.bookie.harness import Harness, payload
from tests.unit.bookie.identity.bookie_home import Home
from tests.unit.schedule_cases import Mutation, ScheduleCase, ScheduleCases

DENIALS = {Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER}
WATERMARK = 9
"""The highest ledger id that was issued, where a start may have lost something."""


class Violated(AssertionError):
    """Data was lost, denied, wrong or came back. Nothing else that goes wrong in a schedule is one of these."""


class Scene:
    """Where a schedule plays. What it started is let go of at the end as SIGKILL does, in whatever state that is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._harnesses: list[Harness] = []

    def harness(self, data_dir: Path | None = None) -> Harness:
        """A bookie that is not started."""
        made = Harness(self.root, data_dir or self.root / f"data-of-{len(self._harnesses)}")
        self._harnesses.append(made)
        return made

    def started(self, **settings: object) -> Harness:
        made = self.harness()
        made.start(**settings)
        return made

    def end(self) -> None:
        for one in self._harnesses:
            let_go(one)


Case = ScheduleCase[Scene]
Cases = ScheduleCases[Scene]


class Life:
    """A bookie with its boots: identity, boot number and unclean mark decide how its storage is opened."""

    def __init__(self, scene: Scene) -> None:
        self.home = Home(scene.root / "home", disks=False)
        self.bookie = scene.harness(self.home.data)
        self.bookie.highest_issued = lambda: WATERMARK
        self._boot: Boot

    def boot(self, *, journal_write_data: bool = True) -> Harness:
        self.home.configure(journal_write_data=journal_write_data)
        self._boot = self.home.boot()
        self.bookie.start(possible_loss=self._boot.possible_loss, journal_write_data=journal_write_data)
        self._boot.opened(skips_journal=not journal_write_data)
        return self.bookie

    def stop(self) -> None:
        self.bookie.stop()
        self._boot.end()

    def kill(self) -> None:
        let_go(self.bookie)

    def note_failed_sync(self) -> None:
        self._boot.note_failed_sync()


def let_go(harness: Harness) -> None:
    """As SIGKILL: what was not written is gone."""
    bookie, harness.bookie = harness.bookie, None
    if bookie is not None:
        if bookie._home.lock is not None:
            bookie._home.lock.release()
        bookie.storage.log_files.close()
        with bookie.storage._index.reading() as index:
            index.close()


def must(condition: bool, problem: str) -> None:
    if not condition:
        raise Violated(problem)


def must_hold(harness: Harness, ledger_id: int, first: int, last: int, *, size: int = 10, tag: int = 0) -> None:
    """All of these entries are served."""
    found, end = harness.payloads(ledger_id, first, last)
    wanted = {one: payload(ledger_id, one, size, tag) for one in range(first, last + 1)}
    must(end == ReadEnd(Status.OK, last + 1), f"entries {first} to {last} of ledger {ledger_id} are lost: {end}")
    must(found == wanted, f"entries {first} to {last} of ledger {ledger_id} are not what was added")


def must_not_lose(harness: Harness, ledger_id: int, entry_id: int, *, size: int = 10, tag: int = 0) -> None:
    """An entry that may have been acked is served as it was, or it is said to be unknown."""
    found, end = harness.payloads(ledger_id, entry_id, entry_id)
    must(end.status not in DENIALS, f"entry {entry_id} of ledger {ledger_id} is denied: {end}")
    must(found in ({}, {entry_id: payload(ledger_id, entry_id, size, tag)}), f"entry {entry_id} is not what was added")


def must_refuse(status: Status, whose: str) -> None:
    must(status is not Status.OK, f"an add was acked {whose}")


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def deny_what_fails_to_be_read(error: type[BookKeeperError]) -> Mutation:
    """A read that fails so is answered as if there was nothing."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        known = batch_read.status_of
        patch.setattr(
            batch_read, "status_of", lambda problem: Status.NO_SUCH_ENTRY if isinstance(problem, error) else known(problem)
        )

    return mutate
