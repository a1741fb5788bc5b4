"""A bookie over a real directory, with the steps of a test: add, read, kill, start again."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.disk import AppendFile, Disk
from bk_spark.config import BookieConfig, DigestType
from bk_spark.digest import Digester, master_key
from bk_spark.entry import EncodedBatch, EntryBatch, decode, encode, seal
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire import AddReply, AddRequest, LastAddConfirmedRequest, ReadBatch, ReadEnd, ReadRequest, Status

BOOKIE_ID = "bookie-1"
DIGESTER = Digester(DigestType.CRC32C, b"")


class FaultyDisk(Disk):
    """A disk whose appends or syncs fail for paths that contain a text."""

    def __init__(self) -> None:
        self.failing: set[tuple[str, str]] = set()

    def fail(self, verb: str, text: str) -> None:
        """``verb`` is write or sync."""
        self.failing.add((verb, text))

    def check(self, verb: str, path: Path) -> None:
        if any(verb == failing and text in str(path) for failing, text in self.failing):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _open_append(self, path: Path, flags: int) -> AppendFile:
        file = super()._open_append(path, flags)
        return FaultyAppendFile(self, path, file._descriptor, file.size)


class FaultyAppendFile(AppendFile):
    def __init__(self, disk: FaultyDisk, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        self._disk = disk

    def _write(self, buffers) -> None:
        self._disk.check("write", self.path)
        super()._write(buffers)

    def _fdatasync(self) -> None:
        self._disk.check("sync", self.path)
        super()._fdatasync()


class Harness:
    """One bookie and its directory. Batches hold the payloads that ``payload`` gives, so that a wrong one is seen."""

    def __init__(self, root: Path, data_dir: Path | None = None) -> None:
        self.disk = FaultyDisk()
        self.data_dir = data_dir or root / "data-0"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.config = BookieConfig(direct_add_bytes=4096)
        self.bookie: Bookie | None = None
        self.key = master_key(b"")
        self._root = root
        self._numbers = itertools.count(1)

    def start(self, **settings: int) -> Bookie:
        if settings:
            self.config = BookieConfig(**{"direct_add_bytes": 4096, **settings})
        self.bookie = Bookie.open(self.data_dir, BOOKIE_ID, self.config, self.disk)
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
        if self.bookie is not None:
            self.bookie._lock.release()
        self.bookie = None
        self.data_dir = left

    def files(self, kind: str) -> list[Path]:
        return sorted((self.data_dir / kind).iterdir())

    def batch(self, ledger_id: int, first: int, last: int, *, size: int = 10, tag: int = 0, pattern=DENSE) -> EncodedBatch:
        payloads = pa.array([payload(ledger_id, one, size, tag) for one in range(first, last + 1)], pa.binary())
        sealed = seal(DIGESTER, ledger_id, first, payloads, length_before=first * size, last_add_confirmed=first - 1)
        encoded = encode(sealed, DigestType.CRC32C, pattern)
        assert encoded is not None
        return encoded

    def stage(self, batch: EncodedBatch, *, key: bytes | None = None, bookie_id: str = BOOKIE_ID) -> None:
        assert self.bookie is not None
        self.bookie.stage(AddRequest(next(self._numbers), bookie_id, key or self.key, batch), None)

    def sync(self) -> list[AddReply]:
        assert self.bookie is not None
        return [reply for _, reply in self.bookie.sync()]

    def add(self, *args, key: bytes | None = None, bookie_id: str = BOOKIE_ID, **more) -> AddReply:
        self.stage(self.batch(*args, **more), key=key, bookie_id=bookie_id)
        (reply,) = self.sync()
        return reply

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        *,
        key: bytes | None = None,
        pattern: IdPattern = DENSE,
        budget: int = 1 << 30,
    ) -> tuple[list[EntryBatch], ReadEnd]:
        assert self.bookie is not None
        request = ReadRequest(BOOKIE_ID, ledger_id, key or self.key, first, last, pattern, budget)
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

    def confirmed(self, ledger_id: int):
        assert self.bookie is not None
        return self.bookie.read_last_add_confirmed(LastAddConfirmedRequest(BOOKIE_ID, ledger_id, self.key))

    def assert_holds(self, ledger_id: int, first: int, last: int, *, size: int = 10, tag: int = 0) -> None:
        found, end = self.payloads(ledger_id, first, last)
        assert end == ReadEnd(Status.OK, last + 1)
        assert found == {one: payload(ledger_id, one, size, tag) for one in range(first, last + 1)}


def payload(ledger_id: int, entry_id: int, size: int, tag: int) -> bytes:
    return (f"{ledger_id}/{entry_id}/{tag}/" * (size // 4 + 1)).encode()[:size].ljust(size, b".")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.disk.failing.clear()
    made.stop()


@pytest.fixture
def expected_payload():
    return payload


@pytest.fixture
def new_harness():
    return Harness
