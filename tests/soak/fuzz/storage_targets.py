"""The files of a bookie: small ones by themselves, and all of them together as a bookie that starts finds them."""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from bk_spark.bookie.disk import REAL_DISK, SECTOR_BYTES, ReadFile
from bk_spark.bookie.identity.boot_file import BootPhase, BootRecord, decode_boot, encode_boot
from bk_spark.bookie.identity.cookie_file import BootNumber, Cookie, DirectoryPlace, decode_cookie, encode_cookie
from bk_spark.bookie.index.generation import IndexGeneration, read_generation, writing_generation
from bk_spark.bookie.log_files.log_file import (
    FILE_HEADER_BYTES,
    NO_PREDECESSOR,
    FileHeader,
    FileKind,
    FilePosition,
    Predecessor,
    pack_file_header,
    unpack_file_header,
)
from bk_spark.bookie.log_files.record import (
    RECORD_HEADER_BYTES,
    LedgerNote,
    Place,
    RecordKind,
    pack_batch,
    pack_mark,
    pack_note,
    unpack,
)
from bk_spark.bookie.log_files.scan import Gap, LogScan
from bk_spark.bookie.log_files.witness import WITNESS_FILE, Witnessed, read_witness, write_witness
from bk_spark.entries.crc import crc32c
from bk_spark.errors import BookKeeperError, CorruptionError
from tests.simulation.damage.flipped_home import FlippedHome, Kept, ask_everything, live
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import Mutator, spoil_bytes, spoil_end
from tests.soak.fuzz.wire_targets import batches

SALT = 77
MEMORY = Path("/dev/shm")
KEY_HASH = bytes(24)


def targets() -> list[Target]:
    return [_record(), _file_header(), _log_file(), _generation(), _witness(), *_texts(), home_target()]


def _sealed(mutate: Mutator, size: int) -> Mutator:
    """Most spoilt values get a right checksum again, over their first ``size`` bytes: what stands behind it is tried, too."""

    def spoil(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
        spoilt = mutate(data, others, chance)
        if chance.random() < 0.2 or len(spoilt) < size + 4:
            return spoilt
        return spoilt[:size] + struct.pack("<I", crc32c(spoilt[:size])) + spoilt[size + 4 :]

    return spoil


# --- records and log files


@cache
def _records() -> Sequence[bytes]:
    """Each as it stands at offset 4096, with its body."""
    place = Place(SALT, FILE_HEADER_BYTES, 4096)
    found = [pack_batch(place, 3, one, KEY_HASH) + one.body for one in batches()]
    found += [pack_mark(place, 4, kind) for kind in (RecordKind.IDLE, RecordKind.SEAL)]
    notes = [LedgerNote(RecordKind.FENCE, 7), LedgerNote(RecordKind.CONFIRMED, 7, 5), LedgerNote(RecordKind.DELETED, 7, -1, 99)]
    return found + [pack_note(place, 5, note, KEY_HASH) for note in notes]


def _record() -> Target:
    def run(data: bytes) -> None:
        header = unpack(data, "a record", SALT, FILE_HEADER_BYTES)
        assert header.end >= FILE_HEADER_BYTES + RECORD_HEADER_BYTES
        assert (header.batch is not None) == (header.kind is RecordKind.BATCH)

    return Target("record", _records, run, _sealed(spoil_bytes, RECORD_HEADER_BYTES - 4))


def _file_header() -> Target:
    headers = (
        FileHeader(FileKind.JOURNAL, 1, SALT, NO_PREDECESSOR, "h:1"),
        FileHeader(FileKind.ENTRY_LOG, 2, SALT, Predecessor(1, 5000, 9), "h:1"),
    )

    def run(data: bytes) -> None:
        header = unpack_file_header(data, "a log")
        assert unpack_file_header(pack_file_header(header), "it") == header

    def spoil(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
        return spoil_bytes(data[:80], others, chance)[:80].ljust(80, b"\0") + data[80:]

    return Target("file header", lambda: [pack_file_header(one) for one in headers], run, _sealed(spoil, FILE_HEADER_BYTES - 4))


class _Bytes(ReadFile):
    def __init__(self, data: bytes) -> None:
        super().__init__(Path("0000000001.log"), -1)
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        assert 0 <= offset <= len(self._data)
        assert size >= 0
        return self._data[offset : offset + size]


def _log_file() -> Target:
    """Journals and entry logs: every byte is in a record or in a gap, once; what is given out is right."""

    def run(data: bytes) -> None:
        if len(data) < FILE_HEADER_BYTES:
            raise CorruptionError("a log", "it is too short")
        for kind in (FileKind.JOURNAL, FileKind.ENTRY_LOG):
            scan = LogScan(_Bytes(data), FileHeader(kind, 1, SALT, NO_PREDECESSOR, "b"), FILE_HEADER_BYTES, len(data))
            end = FILE_HEADER_BYTES
            for item in scan.items():
                start = item.start if isinstance(item, Gap) else item.header.place.offset
                assert start >= end
                end = item.end if isinstance(item, Gap) else item.header.end
                if not isinstance(item, Gap) and item.batch is not None:
                    item.batch.check()
            assert end <= len(data)

    def spoil(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
        mutate = spoil_end if chance.random() < 0.3 else spoil_bytes
        return data[:FILE_HEADER_BYTES] + mutate(data[FILE_HEADER_BYTES:], [one[FILE_HEADER_BYTES:] for one in others], chance)

    return Target("journal and entry log file", lambda: [_log(3), _log(20)], run, spoil)


def _log(count: int) -> bytes:
    data = bytes(FILE_HEADER_BYTES)
    for number in range(count):
        one = batches()[number % len(batches())]
        if number % 7 == 6:
            data += bytes(-len(data) % 4096)
        data += pack_batch(Place(SALT, len(data), len(data)), number + 1, one, KEY_HASH) + one.body
    return data + pack_mark(Place(SALT, len(data), len(data)), count + 1, RecordKind.SEAL)


# --- small files


def _directory() -> Path:
    return Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))


def _witness() -> Target:
    directory = _directory()
    told = Witnessed((FilePosition(3, 70_000),), (FilePosition(9, 512), FilePosition(8, 0)), bytes(range(16)), 42)
    path = directory / WITNESS_FILE

    def run(data: bytes) -> None:
        path.write_bytes(data)
        found = read_witness(REAL_DISK, directory)
        assert found is not None
        write_witness(REAL_DISK, directory, found)
        assert read_witness(REAL_DISK, directory) == found

    def seeds() -> Sequence[bytes]:
        directory.mkdir(exist_ok=True)
        write_witness(REAL_DISK, directory, told)
        return [path.read_bytes()]

    return Target("witness", seeds, run, _spoil_sector, close=lambda: shutil.rmtree(directory, True))


def _spoil_sector(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Spoil the fields of one sector, often with a right checksum behind them."""
    at = chance.randrange(max(1, len(data) // SECTOR_BYTES)) * SECTOR_BYTES
    sizes = {0: 20, SECTOR_BYTES: 24}
    spoil = _sealed(spoil_bytes if chance.random() < 0.9 else spoil_end, sizes.get(at, 16))
    return data[:at] + spoil(data[at : at + SECTOR_BYTES], others, chance) + data[at + SECTOR_BYTES :]


def _generation() -> Target:
    directory = _directory()
    path = directory / "generation"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        read_generation(REAL_DISK, path)

    def seeds() -> Sequence[bytes]:
        directory.mkdir(exist_ok=True)
        with writing_generation(REAL_DISK, path) as write:
            write(IndexGeneration(bytes(range(16)), 42))
        return [path.read_bytes()]

    return Target("index generation", seeds, run, _sealed(spoil_bytes, 36), close=lambda: shutil.rmtree(directory, True))


def _texts() -> list[Target]:
    places = (DirectoryPlace("data", "0" * 16), DirectoryPlace("journal-0", "1" * 16))
    cookie = Cookie("h:1", "0f0e3a52", "0" * 16, ("data", "journal-0"), places)
    boot = BootRecord(BootNumber(7, "abc"), BootNumber(8, "def"), BootPhase.RUNNING, True, IndexGeneration(bytes(16), 42))
    return [
        _text("cookie file", encode_cookie(cookie), lambda data: _same(decode_cookie, encode_cookie, data)),
        _text("boot file", encode_boot(boot), lambda data: _same(decode_boot, encode_boot, data)),
    ]


def _text(name: str, seed: bytes, run: Callable[[bytes], None]) -> Target:
    long = seed.replace(b"version: 1", b"version: " + b"1" * 5000).replace(b"confirmed: 7", b"confirmed: " + b"7" * 5000)
    return Target(name, lambda: [seed, _with_checksum(long)], run, _spoil_text)


def _same(decode: Callable[[bytes, str], object], encode: Callable[..., bytes], data: bytes) -> None:
    value = decode(data, "it")
    assert decode(encode(value), "it") == value


def _spoil_text(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    spoilt = spoil_bytes(data, others, chance)
    return spoilt if chance.random() < 0.2 else _with_checksum(spoilt)


def _with_checksum(text: bytes) -> bytes:
    body = text.rpartition(b"crc32c: ")[0]
    return body + b"crc32c: %08x\n" % crc32c(body)


# --- everything together


def home_target() -> Target:
    """A bookie starts over a file that was spoilt: it refuses, or each of its answers is right, unknown or an error.

    It was stopped before, cleanly: after a crash, the loss of the end of a file looks as if its last records had never been
    durable, and nothing there could tell. A value is the number of the file, then its content.
    """
    root = _directory()
    past: list[tuple[FlippedHome, Kept]] = []

    def made() -> tuple[FlippedHome, Kept]:
        if not past:
            home = FlippedHome(root / "home")
            live(home)
            home.stop()
            past.append((home, home.keep()))
        return past[0]

    def seeds() -> Sequence[bytes]:
        kept = made()[1]
        return [bytes([number]) + data for number, (name, data) in enumerate(sorted(kept.files.items())) if _is_spoilt(name)]

    def run(data: bytes) -> None:
        home, kept = made()
        name = sorted(kept.files)[(data[0] if data else 0) % len(kept.files)]
        home.put(Kept({**kept.files, name: data[1:]}, kept.nodes))
        try:
            home.start()
            ask_everything(home)
        finally:
            home.abandon()

    def close() -> None:
        shutil.rmtree(root, ignore_errors=True)

    return Target("bookie's home", seeds, run, _spoil_file, (BookKeeperError,), close, max_cpu_s=10.0)


def _is_spoilt(name: str) -> bool:
    return not name.endswith("lock")


def _spoil_file(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    same = [one[1:] for one in others if one[:1] == data[:1]]
    mutate = chance.choice((spoil_end, spoil_bytes, _spoil_page))
    return data[:1] + mutate(data[1:], same, chance)


def _spoil_page(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    """A page of 4 KiB is lost, or stands where another belongs: what a disk does that writes to the wrong place."""
    size = 4096
    count = len(data) // size
    if not count:
        return spoil_bytes(data, [], chance)
    at, other = chance.randrange(count) * size, chance.randrange(count) * size
    page = bytes(size) if chance.random() < 0.5 else data[other : other + size]
    return data[:at] + page + data[at + size :]
