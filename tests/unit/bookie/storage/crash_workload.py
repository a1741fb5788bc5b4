"""A fixed workload against one bookie on a simulated disk, and what it must know after a crash at any moment of it.

The workload has small and large adds, several to a sync, overlapping and striped ones too, adds again, fences, last adds
confirmed, deletions, adds of recoveries behind them, checkpoints that run beside later adds, logs of a few records, restarts
and compactions. The oracle notes what was asked for and what was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space.compaction import Compaction
from bk_spark.bookie.space.garbage_collection import LocalLedgers
from bk_spark.bookie.storage.second_adds import Judgement, SecondAdd
from bk_spark.config import BookieConfig, DigestType
from bk_spark.entries.batch import EncodedBatch, decode, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import (
    AddRequest,
    DeleteLedgerRequest,
    FenceRequest,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    StagedRequest,
    Status,
    StoreLastAddConfirmedRequest,
    Verdict,
)
from tests.simulation.world.simulated_disk import SimulatedDisk
from tests.simulation.world.simulated_index import open_simulated_index

NAME = "bookie-1"
KEY = master_key(b"")
DIGESTER = Digester(DigestType.CRC32C, b"")
SMALL, LARGE = 10, 900
LAST_ID = 80
CONFIG = BookieConfig(
    journal_dirs="/j0,/j1",
    ledger_dirs="/e0,/e1",
    direct_add_bytes=2048,
    journal_file_bytes=6_000,
    entry_log_file_bytes=16_000,
    write_cache_bytes=12_000,
    checkpoint_bytes=40_000,
)
STRIPED = IdPattern(4, 3, 2)


class HeldSteps:
    """The background of the workload: a checkpoint's slow part runs when the workload says so."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []

    def __call__(self, step: Callable[[], None]) -> None:
        self.steps.append(step)

    def run(self) -> None:
        while self.steps:
            self.steps.pop(0)()


def open_bookie(disk: SimulatedDisk, config: BookieConfig, **more: object) -> Bookie:
    return Bookie.open(  # type: ignore[arg-type]
        Path("/data"), NAME, config, disk, open_index=open_simulated_index, durable_wait_s=0, **more
    )


def batch(ledger_id: int, first: int, last: int, size: int, tag: int, *, pattern: IdPattern = DENSE) -> EncodedBatch:
    """Entries whose payloads tell the add, by its ``tag``, so that a mixture of two adds is seen."""
    payloads = pa.array([f"{ledger_id}/{one}/{tag}/".ljust(size, ".").encode() for one in range(first, last + 1)], pa.binary())
    sealed = seal(DIGESTER, ledger_id, first, payloads, length_before=first * size, last_add_confirmed=first - 1)
    encoded = encode(sealed, DigestType.CRC32C, pattern)
    assert encoded is not None
    return encoded


@dataclass(slots=True)
class Life:
    """A ledger between two deletions. ``batches`` in the order in which they were staged: ids, and whether it was acked."""

    batches: list[tuple[dict[int, bytes], bool]] = field(default_factory=list)
    confirmed: int = -1


@dataclass(slots=True)
class Ledger:
    lives: list[Life] = field(default_factory=lambda: [Life()])
    deletions_acked: int = 0
    """How many of the changes from one life to the next are certain."""
    is_fenced: bool = False

    @property
    def ids(self) -> list[int]:
        """All that any life may have, and one that none has."""
        return [*sorted({one for life in self.lives for content, _ in life.batches for one in content}), LAST_ID]


class Oracle:
    """What was asked of the bookie, and what it answered."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Ledger] = {}

    def staged(self, request: StagedRequest) -> Callable[[], None]:
        """Note a request; what is given back notes that it was acked."""
        match request:
            case AddRequest():
                return self._added(request.batch)
            case FenceRequest():
                ledger = self._ledger(request.ledger_id)
                return lambda: setattr(ledger, "is_fenced", True)
            case StoreLastAddConfirmedRequest():
                life, value = self._ledger(request.ledger_id).lives[-1], request.last_add_confirmed
                return lambda: setattr(life, "confirmed", value)
            case DeleteLedgerRequest():
                return self._deleted(self._ledger(request.ledger_id))
        return lambda: None

    def _ledger(self, ledger_id: int) -> Ledger:
        return self.ledgers.setdefault(ledger_id, Ledger())

    def _added(self, encoded: EncodedBatch) -> Callable[[], None]:
        entries = decode(encoded)
        content = dict(zip(entries.entry_ids.tolist(), entries.payloads.to_pylist(), strict=True))
        batches = self._ledger(encoded.header.ledger_id).lives[-1].batches
        place = len(batches)
        batches.append((content, False))
        return lambda: batches.__setitem__(place, (content, True))

    def _deleted(self, ledger: Ledger) -> Callable[[], None]:
        ledger.lives.append(Life())
        number = len(ledger.lives) - 1

        def acked() -> None:
            ledger.deletions_acked, ledger.is_fenced = number, True

        return acked

    def check(self, bookie: Bookie, *, loses_adds: bool = False) -> None:
        """Hold what a bookie that was started again says against this. ``loses_adds``: entries may be unknown, never denied."""
        for ledger_id, ledger in self.ledgers.items():
            found, end = read(bookie, ledger_id, ledger.ids)
            fits = [self._problem(life, found, loses_adds=loses_adds) for life in ledger.lives[ledger.deletions_acked :]]
            assert None in fits, f"ledger {ledger_id}: {fits}, found {_brief(found)}"
            denied = end.status.verdict is Verdict.NEGATIVE
            assert denied or (loses_adds and end.status is Status.UNKNOWN), f"ledger {ledger_id}: {end.describe()}"
            facts = bookie.storage.facts(ledger_id)
            assert not ledger.is_fenced or (facts is not None and facts.is_durably_fenced), f"ledger {ledger_id}: not fenced"
            if not ledger.deletions_acked and len(ledger.lives) == 1:
                reply = bookie.read_last_add_confirmed(LastAddConfirmedRequest(NAME, ledger_id, KEY))
                known = ledger.lives[0].confirmed
                assert reply.last_add_confirmed >= known or loses_adds, f"ledger {ledger_id}: {reply.describe()}"

    @staticmethod
    def _problem(life: Life, found: dict[int, bytes], *, loses_adds: bool) -> str | None:
        """Why what was found cannot be this life."""
        for entry_id in sorted({one for content, _ in life.batches for one in content} | set(found)):
            acked = [content[entry_id] for content, is_acked in life.batches if is_acked and entry_id in content]
            known = [content[entry_id] for content, _ in life.batches if entry_id in content]
            if entry_id not in found:
                if acked and not loses_adds:
                    return f"entry {entry_id} was acked and is gone"
            elif found[entry_id] not in (known if loses_adds else known[len(acked) - 1 :] if acked else known):
                return f"entry {entry_id} is {found[entry_id][:12]!r}"
        for content, _ in life.batches:
            held = [one for one in content if found.get(one) == content[one]]
            others = [one for one in content if one in found and found[one] != content[one]]
            if held and len(held) + len(others) < len(content):
                return f"the batch of entries {min(content)} to {max(content)} is torn"
        return None


def _brief(found: dict[int, bytes]) -> str:
    return ", ".join(content.strip(b".").decode() for content in found.values())


def read(bookie: Bookie, ledger_id: int, ids: list[int]) -> tuple[dict[int, bytes], ReadEnd]:
    """What the bookie has of ``ids``, ascending, the last of which nobody added; and the last answer."""
    found: dict[int, bytes] = {}
    waiting = ids
    while True:
        request = ReadRequest(NAME, ledger_id, KEY, waiting[0], ids[-1], DENSE, 1 << 30)
        *batches, end = bookie.read(request)
        assert isinstance(end, ReadEnd)
        for one in batches:
            assert isinstance(one, ReadBatch)
            entries = decode(one.batch)
            assert entries.matching(DIGESTER).all()
            found |= dict(zip(entries.entry_ids.tolist(), entries.payloads.to_pylist(), strict=True))
        waiting = [one for one in waiting if one > end.next_entry_id]
        if not waiting or end.status is Status.NO_SUCH_LEDGER:
            return found, end


def workload() -> Iterator[list[StagedRequest] | str]:
    """Groups of requests, each to be synced together, and steps in between: the names in ``Run.play``."""
    number = iter(range(1, 1_000))

    def add(*arguments: int, recovery: bool = False, pattern: IdPattern = DENSE) -> AddRequest:
        tag = next(number)
        return AddRequest(tag, NAME, KEY, batch(*arguments, tag, pattern=pattern), recovery=recovery)

    yield [add(1, 0, 2, SMALL), add(2, 0, 2, LARGE), add(3, 0, 9, SMALL, pattern=STRIPED)]
    yield [add(1, one, one, SMALL) for one in range(3, 8)]
    yield [FenceRequest(NAME, 4, KEY), add(2, 3, 5, LARGE), StoreLastAddConfirmedRequest(NAME, 1, KEY, 6)]
    yield "idle"
    yield [add(5, 0, 4, LARGE), add(6, 0, 4, SMALL), add(1, 2, 5, SMALL, recovery=True)]
    yield "checkpoint"
    yield [add(5, one, one + 2, LARGE) for one in range(5, 14, 3)]
    yield [DeleteLedgerRequest(5, 1), add(6, 5, 9, SMALL), FenceRequest(NAME, 2, KEY)]
    yield [add(7, one, one + 1, SMALL) for one in range(0, 10, 2)]
    yield "restart"
    yield [add(5, 0, 2, SMALL, recovery=True), add(2, 4, 8, LARGE, recovery=True)]
    yield [add(8, one, one + 2, LARGE) for one in range(0, 12, 3)]
    yield "checkpoint"
    yield [DeleteLedgerRequest(6, 2), DeleteLedgerRequest(8, 3)]
    yield [add(9, 0, 2, LARGE), add(7, 10, 14, SMALL), add(4, 0, 2, SMALL, recovery=True)]
    yield "force"
    yield "checkpoint"
    yield "compact"
    yield [add(8, 0, 2, SMALL, recovery=True), add(9, 0, 4, SMALL), DeleteLedgerRequest(9, 4)]
    yield [add(10, one, one + 3, LARGE) for one in range(0, 20, 4)]
    yield "restart"
    yield [add(10, 20, 23, SMALL), FenceRequest(NAME, 10, KEY)]
    yield "compact"


class Run:
    """Plays the workload on a disk."""

    def __init__(self, disk: SimulatedDisk, config: BookieConfig) -> None:
        self.oracle = Oracle()
        self._disk = disk
        self._config = config
        self.compacted = 0
        self.damaged: list[StoredBatch] = []
        self._background = HeldSteps()
        self._bookie = self._open()

    def play(self) -> None:
        for step in workload():
            match step:
                case list():
                    self._group(step)
                case "checkpoint":
                    self._bookie.storage.request_checkpoint()
                    self._bookie.sync()
                    self._group([ForceRequest(NAME, 1, KEY)])
                    self._background.run()
                case "idle":
                    self._bookie.idle()
                case "force":
                    self._group([ForceRequest(NAME, 9, KEY)])
                case "restart":
                    self._bookie.close()
                    self._bookie = self._open()
                case "compact":
                    self._compact()
        self._bookie.close()

    def _open(self) -> Bookie:
        return open_bookie(self._disk, self._config, background=self._background)

    def _compact(self) -> None:
        """Every sealed log that has dead bytes goes."""
        storage = self._bookie.storage
        storage.request_checkpoint(roll=True)
        self._bookie.sync()
        self._background.run()
        local = LocalLedgers(storage, lambda *_: False, lambda: 1 << 40, self.damaged.extend)
        done = Compaction(local, RateLimiter(1 << 40, lambda: 0.0, lambda _: None)).run(0.999, lambda: True)
        self.compacted += done.logs_deleted

    def _group(self, requests: list[StagedRequest]) -> None:
        with patch.object(SecondAdd, "judge", lambda *_: Judgement.STORE):  # copies that differ tell which one is read
            for request in requests:
                self._bookie.stage(request, self.oracle.staged(request))
        for acked, reply in self._bookie.sync():
            assert reply.status is Status.OK, reply
            assert callable(acked)
            acked()
