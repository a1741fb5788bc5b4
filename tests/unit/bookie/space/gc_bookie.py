"""A real bookie on a simulated disk with small entry logs, what it must still hold, and the steps of compaction."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.log_files.mark import KnownEntryLog
from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space.compaction import Compacted, Compaction
from bk_spark.bookie.space.garbage_collection import LocalLedgers
from bk_spark.config import KIB, BookieConfig, DigestType
from bk_spark.entries.batch import EncodedBatch, decode, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import AddRequest, DeleteLedgerRequest, ReadBatch, ReadEnd, ReadRequest, StagedReply, Status
from tests.simulation.world.simulated_disk import SimulatedDisk
from tests.simulation.world.simulated_index import open_simulated_index

BOOKIE_ID = "bookie-1"
DATA_DIR = Path("/data")
CONFIG = BookieConfig(direct_add_bytes=3 * KIB, entry_log_file_bytes=32 * KIB, journal_file_bytes=32 * KIB)
LARGE, SMALL = 3_600, 40
"""Payload bytes of entries that go straight into an entry log, and of those that a checkpoint copies there."""

_DIGESTER = Digester(DigestType.CRC32C, b"")
_KEY = master_key(b"")


@dataclass(frozen=True)
class Written:
    first: int
    last: int
    size: int


class CollectedBookie:
    def __init__(self, disk: SimulatedDisk | None = None, ledgers: dict[int, list[Written]] | None = None) -> None:
        self.disk = disk or SimulatedDisk(1)
        self.ledgers: dict[int, list[Written]] = {} if ledgers is None else ledgers
        """What must be readable, by ledger; an empty list: the ledger was deleted."""
        self.free_bytes = 1 << 40
        self.damaged: list[StoredBatch] = []
        self.copied: list[int] = []
        self._numbers = itertools.count(1)
        self.start()

    def start(self) -> None:
        self.bookie = Bookie.open(DATA_DIR, BOOKIE_ID, CONFIG, self.disk, open_index=open_simulated_index, durable_wait_s=0)
        self.local = LocalLedgers(self.bookie.storage, self._stage_deletion, lambda: self.free_bytes, self.damaged.extend)
        self.compaction = Compaction(self.local, _CountingLimiter(self.copied))

    def restart(self) -> None:
        self.bookie.close()
        self.start()

    def kill(self) -> None:
        """As SIGKILL does."""
        self.disk.kill_process()
        self.start()

    # --- what is written

    def add(self, ledger_id: int, first: int, last: int, size: int = LARGE) -> None:
        self.bookie.stage(AddRequest(next(self._numbers), BOOKIE_ID, _KEY, _batch(ledger_id, first, last, size)), None)
        ((_, reply),) = self.bookie.sync()
        assert reply.status is Status.OK, reply
        self.ledgers.setdefault(ledger_id, []).append(Written(first, last, size))

    def write_as(self, creator_token: int, ledger_id: int) -> None:
        """One entry of a ledger that this creator made."""
        key = master_key(b"", creator_token)
        self.bookie.stage(AddRequest(next(self._numbers), BOOKIE_ID, key, _batch(ledger_id, 0, 0, SMALL)), None)
        ((_, reply),) = self.bookie.sync()
        assert reply.status is Status.OK, reply

    def answer_to_add(self, ledger_id: int, *, recovery: bool = False) -> StagedReply:
        request = AddRequest(next(self._numbers), BOOKIE_ID, _KEY, _batch(ledger_id, 50, 50, SMALL), recovery)
        self.bookie.stage(request, None)
        ((_, reply),) = self.bookie.sync()
        return reply

    def fill(self, *ledger_ids: int, entries: int = 5, size: int = LARGE) -> None:
        """Entries of all these ledgers, side by side in the same logs."""
        for entry_id in range(entries):
            for ledger_id in ledger_ids:
                self.add(ledger_id, entry_id, entry_id, size)

    def fill_mixed(self) -> None:
        """Five ledgers, large adds and small ones; two of them deleted; all logs sealed."""
        self.fill(1, 2, 3, 4, 5, entries=8)
        for ledger_id in (1, 2, 3, 4, 5):
            self.add(ledger_id, 8, 30, SMALL)
        self.seal()
        self.delete(2, 4)
        self.checkpoint()

    def delete(self, *ledger_ids: int) -> None:
        """As garbage collection does; the index knows of it after a checkpoint."""
        for ledger_id in ledger_ids:
            assert self._stage_deletion(ledger_id, 1)
            self.ledgers[ledger_id] = []

    def checkpoint(self) -> None:
        self.bookie.storage.checkpoint()

    def seal(self) -> None:
        """Let all logs be sealed and known as such: a clean restart."""
        self.restart()

    # --- what is asked

    def compact(self, threshold: float = 0.8, go_on: Callable[[], bool] = lambda: True) -> Compacted:
        return self.compaction.run(threshold, go_on)

    def logs(self) -> dict[int, KnownEntryLog]:
        return {log.file_id: log for log in self.bookie.storage.entry_logs()}

    def live_ids(self) -> list[int]:
        """The logs that have live bytes."""
        return [file_id for file_id, log in self.logs().items() if log.live_bytes]

    def files(self) -> dict[int, int]:
        """The entry log files on the disk, with their sizes."""
        names = [name for name in self.disk.list(DATA_DIR / "entry_log") if name.endswith(".log")]
        return {int(name[:-4]): self.disk.size(DATA_DIR / "entry_log" / name) for name in names}

    def batches(self, ledger_id: int) -> list[StoredBatch]:
        return [
            stored for stored in self.bookie.storage.batches_from((ledger_id, -1, -1), 1000) if stored.ledger_id == ledger_id
        ]

    def payloads(self, ledger_id: int, last: int) -> tuple[dict[int, bytes], ReadEnd]:
        request = ReadRequest(BOOKIE_ID, ledger_id, _KEY, 0, last, DENSE, 1 << 30)
        *batches, end = self.bookie.read(request)
        assert isinstance(end, ReadEnd)
        found: dict[int, bytes] = {}
        for one in batches:
            assert isinstance(one, ReadBatch)
            decoded = decode(one.batch)
            assert decoded.matching(_DIGESTER).all()
            found |= dict(zip(decoded.entry_ids.tolist(), decoded.payloads.to_pylist(), strict=True))
        return found, end

    def check(self) -> None:
        """Everything that must be there is, in the right bytes, and nothing that was deleted."""
        for ledger_id, written in self.ledgers.items():
            if not written:
                assert self.payloads(ledger_id, 0) == ({}, ReadEnd(Status.NO_SUCH_LEDGER, 0, self._no_such_ledger(ledger_id)))
                continue
            expected = {
                entry_id: payload(ledger_id, entry_id, one.size)
                for one in written
                for entry_id in range(one.first, one.last + 1)
            }
            found, end = self.payloads(ledger_id, max(expected))
            assert (found, end.status) == (expected, Status.OK), f"ledger {ledger_id}: {end}"

    def _no_such_ledger(self, ledger_id: int) -> str:
        return self.payloads(ledger_id, 0)[1].detail

    def _stage_deletion(self, ledger_id: int, deleted_ms: int, decided_at: int | None = None, /) -> bool:
        self.bookie.stage(DeleteLedgerRequest(ledger_id, deleted_ms, decided_at), None)
        ((_, reply),) = self.bookie.sync()
        return reply.status is Status.OK


class _CountingLimiter(RateLimiter):
    def __init__(self, taken: list[int]) -> None:
        super().__init__(1, lambda: 0.0, lambda _: None)
        self._taken = taken

    def take(self, nbytes: int) -> None:
        self._taken.append(nbytes)


def payload(ledger_id: int, entry_id: int, size: int) -> bytes:
    return (f"{ledger_id}/{entry_id}/" * (size // 4 + 1)).encode()[:size]


def _batch(ledger_id: int, first: int, last: int, size: int) -> EncodedBatch:
    payloads = pa.array([payload(ledger_id, one, size) for one in range(first, last + 1)], pa.binary())
    sealed = seal(_DIGESTER, ledger_id, first, payloads, length_before=first * size, last_add_confirmed=first - 1)
    encoded = encode(sealed, DigestType.CRC32C, DENSE)
    assert encoded is not None
    return encoded
