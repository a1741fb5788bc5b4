"""A bookie over a real directory, with the steps of a test: add, read, kill, start again."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.disk import AppendFile, Disk, SlotFile
from bk_spark.bookie.log_files.witness import WITNESS_FILE
from bk_spark.bookie.storage.checkpoint import Background, run_inline
from bk_spark.bookie.storage.second_adds import Judgement, SecondAdd
from bk_spark.config import BookieConfig, DigestType
from bk_spark.entries.batch import EncodedBatch, EntryBatch, decode, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    DeleteLedgerRequest,
    FenceRequest,
    ForceRequest,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    StagedReply,
    Status,
    StoreLastAddConfirmedRequest,
)

BOOKIE_ID = "bookie-1"
DIGESTER = Digester(DigestType.CRC32C, b"")


class FaultyDisk(Disk):
    """A disk whose opens, appends or syncs fail for paths that contain a text, and whose syncs can be held up."""

    def __init__(self) -> None:
        self.sync_begins = threading.Event()
        self.sync_may_end = threading.Event()
        self.sync_may_end.set()
        self.failing: set[tuple[str, str]] = set()
        self.files: list[AppendFile] = []
        self.slots: FaultySlotFile | None = None
        """The file of slots that was opened last."""

    def fail(self, verb: str, text: str) -> None:
        """``verb`` is open, write or sync. An open fails for lack of descriptors, the others as on a broken disk."""
        self.failing.add((verb, text))

    def hold_syncs(self) -> None:
        """Let no sync end until ``sync_may_end`` is set; ``sync_begins`` tells that one has begun."""
        self.sync_may_end.clear()
        self.sync_begins.clear()

    def check(self, verb: str, path: Path) -> None:
        if any(verb == failing and text in str(path) for failing, text in self.failing):
            number = errno.EMFILE if verb == "open" else errno.EIO
            raise OSError(number, os.strerror(number))

    def _descriptor(self, path: Path, flags: int) -> int:
        self.check("open", path)
        return super()._descriptor(path, flags)

    def _open_append(self, path: Path, flags: int) -> AppendFile:
        file = super()._open_append(path, flags)
        faulty = FaultyAppendFile(self, path, file._descriptor, file.size)
        self.files.append(faulty)
        return faulty

    def open_slots(self, path: Path) -> SlotFile:
        self.slots = FaultySlotFile(self, path, super().open_slots(path)._descriptor)
        return self.slots


class FaultySlotFile(SlotFile):
    def __init__(self, disk: FaultyDisk, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._disk = disk
        self.durable = path.read_bytes()

    def _overwrite(self, offset: int, data: bytes) -> None:
        self._disk.check("write", self.path)
        super()._overwrite(offset, data)

    def _fdatasync(self) -> None:
        self._disk.check("sync", self.path)
        super()._fdatasync()
        self.durable = self.path.read_bytes()


class FaultyAppendFile(AppendFile):
    def __init__(self, disk: FaultyDisk, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        self._disk = disk

    def _write(self, buffers) -> None:
        self._disk.check("write", self.path)
        super()._write(buffers)

    def _fdatasync(self) -> None:
        self._disk.sync_begins.set()
        assert self._disk.sync_may_end.wait(10)
        self._disk.check("sync", self.path)
        super()._fdatasync()


class HeldBackground:
    """Keeps what is slow of checkpoints until a test lets it run."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []

    def __call__(self, step: Callable[[], None]) -> None:
        self.steps.append(step)

    def run(self) -> None:
        while self.steps:
            self.steps.pop(0)()


class Harness:
    """One bookie and its directory. Batches hold the payloads that ``payload`` gives, so that a wrong one is seen."""

    def __init__(self, root: Path, data_dir: Path | None = None) -> None:
        self.disk = FaultyDisk()
        self.data_dir = data_dir or root / "data-0"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.config = BookieConfig(direct_add_bytes=4096)
        self.bookie: Bookie | None = None
        self.durable_wait_s = 10.0
        self.background: Background = run_inline
        self.highest_issued: Callable[[], int] | None = None
        self.key = master_key(b"")
        self._root = root
        self._numbers = itertools.count(1)

    def start(self, *, fence_watermark: int | None = None, possible_loss: str = "", **settings: object) -> Bookie:
        if settings:
            self.config = BookieConfig(**{"direct_add_bytes": 4096, **settings})
        self.disk.files.clear()
        highest_issued = self.highest_issued
        if fence_watermark is not None:
            possible_loss, highest_issued = possible_loss or "a watermark was given", lambda: fence_watermark
        self.bookie = Bookie.open(
            self.data_dir,
            BOOKIE_ID,
            self.config,
            self.disk,
            possible_loss=possible_loss,
            highest_issued=highest_issued,
            durable_wait_s=self.durable_wait_s,
            background=self.background,
        )
        return self.bookie

    def stop(self) -> None:
        if self.bookie is not None:
            bookie, self.bookie = self.bookie, None
            bookie.close()

    def restart(self) -> Bookie:
        self.stop()
        return self.start()

    def copy(self) -> Path:
        """The files as they are now: what a SIGKILL would leave."""
        target = self._root / f"data-{next(self._numbers)}"
        shutil.copytree(self.data_dir, target)
        return target

    def kill(self) -> None:
        """End the bookie as SIGKILL does: what it did not write is gone."""
        left = self.copy()
        if self.bookie is not None and self.bookie._home.lock is not None:
            self.bookie._home.lock.release()
        self.bookie = None
        self.data_dir = left

    def power_off(self) -> None:
        """End the bookie as a power cut does: what it did not sync is gone."""
        before = self.data_dir
        self.kill()
        for file in {one.path: one for one in self.disk.files}.values():  # a file that was replaced is the last one
            left = self.data_dir / file.path.relative_to(before)
            if left.exists():
                os.truncate(left, file.synced)
        self.forget_witness()

    def forget_witness(self) -> None:
        """Put back what the witness said when it was last synced, as a power cut may. The bookie must have ended."""
        assert self.disk.slots is not None
        (self.data_dir / WITNESS_FILE).write_bytes(self.disk.slots.durable)

    def files(self, kind: str) -> list[Path]:
        return sorted((self.data_dir / kind).iterdir())

    def batch(self, ledger_id: int, first: int, last: int, *, size: int = 10, tag: int = 0, pattern=DENSE) -> EncodedBatch:
        payloads = pa.array([payload(ledger_id, one, size, tag) for one in range(first, last + 1)], pa.binary())
        sealed = seal(DIGESTER, ledger_id, first, payloads, length_before=first * size, last_add_confirmed=first - 1)
        encoded = encode(sealed, DigestType.CRC32C, pattern)
        assert encoded is not None
        return encoded

    def stage(self, batch: EncodedBatch, *, key: bytes | None = None, bookie_id: str = BOOKIE_ID, **flags: bool) -> None:
        assert self.bookie is not None
        self.bookie.stage(AddRequest(next(self._numbers), bookie_id, key or self.key, batch, **flags), None)

    def stage_fence(self, ledger_id: int, *, key: bytes | None = None, bookie_id: str = BOOKIE_ID) -> None:
        assert self.bookie is not None
        self.bookie.stage(FenceRequest(bookie_id, ledger_id, key or self.key), None)

    def fence(self, ledger_id: int, **more) -> PlainReply:
        self.stage_fence(ledger_id, **more)
        (reply,) = self.sync()
        return reply

    def delete(self, ledger_id: int, deleted_ms: int = 1) -> PlainReply:
        assert self.bookie is not None
        self.bookie.stage(DeleteLedgerRequest(ledger_id, deleted_ms), None)
        (reply,) = self.sync()
        return reply

    def confirm(self, ledger_id: int, last_add_confirmed: int, *, key: bytes | None = None) -> PlainReply:
        assert self.bookie is not None
        self.bookie.stage(StoreLastAddConfirmedRequest(BOOKIE_ID, ledger_id, key or self.key, last_add_confirmed), None)
        (reply,) = self.sync()
        return reply

    def force(self, ledger_id: int, *, key: bytes | None = None) -> PlainReply:
        assert self.bookie is not None
        self.bookie.stage(ForceRequest(BOOKIE_ID, ledger_id, key or self.key), None)
        (reply,) = self.sync()
        return reply

    def early(self) -> list[StagedReply]:
        assert self.bookie is not None
        return [reply for _, reply in self.bookie.take_early()]

    def sync(self) -> list[StagedReply]:
        assert self.bookie is not None
        return [reply for _, reply in self.bookie.sync()]

    def add(self, *args, key: bytes | None = None, bookie_id: str = BOOKIE_ID, recovery: bool = False, **more) -> AddReply:
        self.stage(self.batch(*args, **more), key=key, bookie_id=bookie_id, recovery=recovery)
        (reply,) = self.sync()
        assert isinstance(reply, AddReply)
        return reply

    def add_over(self, *args, **more) -> AddReply:
        """Store other entries under stored ids, which a bookie refuses. Copies that differ tell which one is read."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SecondAdd, "judge", lambda *_: Judgement.STORE)
            return self.add(*args, **more)

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        *,
        key: bytes | None = None,
        pattern: IdPattern = DENSE,
        budget: int = 1 << 30,
        fence: bool = False,
    ) -> tuple[list[EntryBatch], ReadEnd]:
        assert self.bookie is not None
        request = ReadRequest(BOOKIE_ID, ledger_id, key or self.key, first, last, pattern, budget, fence)
        *batches, end = self.bookie.read(request)
        assert isinstance(end, ReadEnd)
        return [decode(one.batch) for one in batches if isinstance(one, ReadBatch)], end

    def payloads(self, ledger_id: int, first: int, last: int, **more) -> tuple[dict[int, bytes], ReadEnd]:
        """The answer as entry id → payload; digests hold, ids ascend."""
        batches, end = self.read(ledger_id, first, last, **more)
        ids = [int(one) for batch in batches for one in batch.entry_ids]
        assert ids == sorted(set(ids))
        assert all(batch.matching(DIGESTER).all() for batch in batches)
        return dict(zip(ids, (one for batch in batches for one in batch.payloads.to_pylist()), strict=True)), end

    def confirmed(self, ledger_id: int, *, fence: bool = False):
        assert self.bookie is not None
        return self.bookie.read_last_add_confirmed(LastAddConfirmedRequest(BOOKIE_ID, ledger_id, self.key, fence))

    def assert_holds(self, ledger_id: int, first: int, last: int, *, size: int = 10, tag: int = 0) -> None:
        found, end = self.payloads(ledger_id, first, last)
        assert end == ReadEnd(Status.OK, last + 1)
        assert found == {one: payload(ledger_id, one, size, tag) for one in range(first, last + 1)}


def payload(ledger_id: int, entry_id: int, size: int, tag: int) -> bytes:
    return (f"{ledger_id}/{entry_id}/{tag}/" * (size // 4 + 1)).encode()[:size].ljust(size, b".")


@pytest.fixture(autouse=True)
def _no_log_of_a_dead_bookie_stays_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that lets a bookie crash drops it unclosed. Over a whole run the descriptors of its logs would pass the 1,024
    that select() takes, with which Spark waits for its callbacks in this process."""
    home = f"{request.getfixturevalue('tmp_path')}/" if "tmp_path" in request.fixturenames else None
    yield
    if home is None or not os.path.isdir("/proc/self/fd"):
        return
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(home) and target.removesuffix(" (deleted)").endswith((".log", ".journal", WITNESS_FILE)):
                os.close(int(name))


@pytest.fixture(autouse=True)
def _records_of_a_few_kilobytes_are_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every direct add, as elsewhere those of hundreds of kilobytes: what padding changes is tested without megabytes."""
    monkeypatch.setattr("bk_spark.bookie.log_files.all_log_files.ALIGNED_FROM_BYTES", 0)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.disk.failing.clear()
    made.disk.sync_may_end.set()
    made.stop()


@pytest.fixture
def expected_payload():
    return payload


@pytest.fixture
def held_background():
    return HeldBackground()


@pytest.fixture
def new_harness():
    return Harness
