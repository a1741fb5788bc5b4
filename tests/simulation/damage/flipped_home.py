"""A bookie with a past whose files can be put back and changed at will, and everything that it can be asked.

The past is of every kind: small and large adds, several ledgers, striped and overlapping batches, fences, last adds confirmed,
deletions, ledgers that came back after one; each of these in the index already and each in the logs alone.
"""

from __future__ import annotations

import copy
import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.identity.boot import MetadataPlace, begin_boot
from bk_spark.bookie.identity.identity import examine
from bk_spark.bookie.repair.ledger_repair import LedgerRepair
from bk_spark.bookie.repair.limbo_repair import LimboRepair
from bk_spark.bookie.repair.scrub import Scrubber
from bk_spark.entries.batch import EncodedBatch, decode
from bk_spark.errors import BookKeeperError
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import (
    AddRequest,
    DeleteLedgerRequest,
    FenceRequest,
    LastAddConfirmedRequest,
    ReadEnd,
    ReadRequest,
    StagedReply,
    StagedRequest,
    Status,
    StoreLastAddConfirmedRequest,
    Verdict,
)
from tests.unit.bookie.harness import DIGESTER, Harness, payload
from tests.unit.bookie.identity.bookie_home import QUICK_DISK, ZNODES, Home
from tests.unit.bookie.repair.known_cluster import OTHERS, KnownCluster

MEMORY = Path("/dev/shm")
"""A file system without a disk where there is one: thousands of starts write and sync."""

RIGHT = {Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER, Status.FENCED}
"""What a whole bookie answers beside yes."""

HIGHEST_ISSUED = 90
UNKNOWN_LEDGERS = (50, HIGHEST_ISSUED + 7)
"""Nothing was ever stored of them. Limbo covers the first."""

OPEN = (1, 10)
"""Nobody has closed these yet."""

STRIPE = IdPattern(3, 2, 0)
NEXT = 9
"""How far behind its end something is added to a ledger: it is there afterwards, and out of the way of other questions."""

LARGE = 3000
"""Bytes of an entry that goes directly into the entry log, two to a batch."""


@dataclass(frozen=True)
class Ledger:
    """What is true of a ledger at the end."""

    entry_ids: frozenset[int]
    size: int = 20
    is_fenced: bool = False
    is_deleted: bool = False
    deleted_ids: frozenset[int] = frozenset()
    """What a deletion has removed for good."""
    last_add_confirmed: int = -1
    pattern: IdPattern = DENSE

    @property
    def end(self) -> int:
        """The last entry id that it has or had, -1 if there is none."""
        return max(self.entry_ids | self.deleted_ids, default=-1)


def _ids(last: int, first: int = 0) -> frozenset[int]:
    return frozenset(range(first, last + 1))


LEDGERS = {
    1: Ledger(_ids(19), last_add_confirmed=14),
    2: Ledger(_ids(7), LARGE, last_add_confirmed=5),
    3: Ledger(_ids(3), is_fenced=True),
    4: Ledger(frozenset(), is_fenced=True, is_deleted=True, deleted_ids=_ids(3)),
    5: Ledger(_ids(3), last_add_confirmed=3),
    6: Ledger(frozenset(), is_fenced=True),
    7: Ledger(frozenset({0, 2, 3, 5, 6}), last_add_confirmed=4, pattern=STRIPE),
    8: Ledger(_ids(9), last_add_confirmed=7),
    9: Ledger(_ids(3), is_fenced=True),
    10: Ledger(_ids(4)),
    11: Ledger(frozenset(), is_fenced=True, is_deleted=True, deleted_ids=_ids(3)),
    12: Ledger(_ids(2), is_fenced=True),
    13: Ledger(_ids(1), LARGE, is_fenced=True),
    14: Ledger(_ids(3, 2), is_fenced=True, deleted_ids=_ids(1), last_add_confirmed=1),
    15: Ledger(_ids(2, 1), is_fenced=True, deleted_ids=frozenset({0, 3}), last_add_confirmed=0),
    16: Ledger(frozenset(), is_fenced=True),
    17: Ledger(_ids(1), last_add_confirmed=9),
}


@dataclass(frozen=True)
class Kept:
    """The files of a bookie, by path below its data directory, and the content of the metadata store beside them."""

    files: dict[str, bytes]
    nodes: dict[str, object]

    def flipped(self, name: str, bit: int) -> Kept:
        """The same, but for one bit of one file."""
        data = bytearray(self.files[name])
        data[bit // 8] ^= 1 << bit % 8
        return Kept({**self.files, name: bytes(data)}, self.nodes)


class FlippedHome(Home):
    """``live`` makes its past; then ``put`` and ``start``, again and again."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, disks=False)
        self.configure(direct_add_bytes=4096, journal_file_bytes=6000, entry_log_file_bytes=24_000)
        self.batches = Harness(root)
        self.bookie: Bookie | None = None
        self.is_repaired = False
        """After a repair ledgers may be fenced that were not, and what was deleted may have come back."""
        self._numbers = itertools.count(1)
        self._next_adds: dict[int, AddRequest] = {}

    def start(self) -> Bookie:
        """As process.py does. Raises BookKeeperError; nothing is open then."""
        place = MetadataPlace(self.store, ZNODES)
        boot = begin_boot(examine(self.directories, self.store, ZNODES, QUICK_DISK), place, self.config, QUICK_DISK)
        self.bookie = Bookie.open(
            self.directories,
            boot.bookie_id,
            self.config,
            QUICK_DISK,
            highest_issued=lambda: HIGHEST_ISSUED,
            possible_loss=boot.possible_loss,
        )
        boot.opened(skips_journal=False)
        self._boot = boot
        return self.bookie

    def stop(self) -> None:
        """Cleanly."""
        assert self.bookie is not None
        bookie, self.bookie = self.bookie, None
        bookie.close()
        self._boot.end()

    def abandon(self) -> None:
        """As SIGKILL: nothing more is written."""
        if self.bookie is not None:
            bookie, self.bookie = self.bookie, None
            bookie.storage.log_files.close()
            with bookie.storage._index.reading() as index:
                index.close()
            bookie._home.lock.release()

    def keep(self) -> Kept:
        """Everything as it is now."""
        paths = [path for path in sorted(self.data.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(self.data)): path.read_bytes() for path in paths}
        return Kept(files, copy.deepcopy(self.tree.nodes))

    def put(self, kept: Kept) -> None:
        """Have what was kept and nothing else."""
        self.is_repaired = False
        shutil.rmtree(self.data)
        for folder in {Path(name).parent for name in kept.files}:
            (self.data / folder).mkdir(parents=True, exist_ok=True)
        for name, data in kept.files.items():
            (self.data / name).write_bytes(data)
        self.tree.nodes.clear()
        self.tree.nodes.update(copy.deepcopy(kept.nodes))

    # --- requests

    def stage(self, *requests: StagedRequest) -> list[StagedReply]:
        """Their replies, in order, after one sync."""
        assert self.bookie is not None
        for number, request in enumerate(requests):
            self.bookie.stage(request, number)
        return [reply for _, reply in sorted(self.bookie.sync(), key=lambda one: one[0])]

    def add(self, ledger_id: int, first: int, last: int, *, recovery: bool = False) -> AddRequest:
        batch = self.batch(ledger_id, first, last, pattern=LEDGERS[ledger_id].pattern)
        return AddRequest(next(self._numbers), self.bookie_id, self.batches.key, batch, recovery=recovery)

    def next_add(self, ledger_id: int) -> AddRequest:
        """Of an entry that is not there yet, always the same one."""
        if ledger_id not in self._next_adds:
            entry_id = LEDGERS.get(ledger_id, Ledger(frozenset())).end + NEXT
            batch = self.batch(ledger_id, entry_id, entry_id)
            self._next_adds[ledger_id] = AddRequest(next(self._numbers), self.bookie_id, self.batches.key, batch)
        return self._next_adds[ledger_id]

    def batch(self, ledger_id: int, first: int, last: int, *, pattern: IdPattern = DENSE) -> EncodedBatch:
        size = LEDGERS[ledger_id].size if ledger_id in LEDGERS else 20
        return self.batches.batch(ledger_id, first, last, size=size, pattern=pattern)

    def fence(self, ledger_id: int) -> FenceRequest:
        return FenceRequest(self.bookie_id, ledger_id, self.batches.key)

    def confirm(self, ledger_id: int, last_add_confirmed: int) -> StoreLastAddConfirmedRequest:
        return StoreLastAddConfirmedRequest(self.bookie_id, ledger_id, self.batches.key, last_add_confirmed)


def live(home: FlippedHome) -> None:
    """The past up to a crash: at its end every answer is as ``LEDGERS`` says."""

    def done(*requests: StagedRequest) -> None:
        for request in requests:
            assert [reply.status for reply in home.stage(request)] == [Status.OK]

    bookie, add = home.start(), home.add
    done(add(1, 0, 4), add(1, 5, 9), add(2, 0, 1), add(2, 2, 3), add(3, 0, 3), home.fence(3))
    done(add(4, 0, 3), DeleteLedgerRequest(4, 1), add(5, 0, 1), home.confirm(5, 1), home.fence(6), add(7, 0, 3))
    done(add(8, 0, 4), add(8, 5, 9), add(8, 3, 6, recovery=True), add(9, 0, 3), add(11, 0, 3), add(13, 0, 1))
    done(add(14, 0, 3), DeleteLedgerRequest(14, 1), add(14, 2, 3, recovery=True), add(15, 0, 3), add(17, 0, 1))
    bookie.storage.checkpoint()
    done(add(1, 10, 14), add(2, 4, 5), home.fence(9), home.confirm(5, 2), add(5, 2, 3), add(7, 5, 6), add(10, 0, 4))
    bookie.idle()
    done(DeleteLedgerRequest(11, 1), add(12, 0, 2), home.fence(12), home.fence(13), home.confirm(17, 9), home.confirm(5, 3))
    done(DeleteLedgerRequest(15, 1), add(15, 1, 2, recovery=True), add(8, 8, 9, recovery=True), home.fence(16))
    done(add(1, 15, 19), add(2, 6, 7))


# --- questions


def ask_everything(home: FlippedHome, *, adds: bool = True) -> Counter[Status]:
    """Every question about every ledger. A wrong answer is an AssertionError; gives what the answers were that are not "yes".

    An answer that a bookie may not give in limbo, where it cannot know, is wrong even if it happens to be true. ``adds``: also
    what writers are told; their entries are there afterwards.
    """
    found: Counter[Status] = Counter()
    for ledger_id in (*LEDGERS, *UNKNOWN_LEDGERS):
        found += _ask_entries(home, ledger_id)
        found += _ask_confirmed(home, ledger_id)
    return found + _ask_to_add(home) if adds else found


def is_limbo(home: FlippedHome, ledger_id: int) -> bool:
    limbo = home.bookie.limbo
    return limbo is not None and limbo.holds(ledger_id)


def _ask_entries(home: FlippedHome, ledger_id: int) -> Counter[Status]:
    """All entries and one beyond the end, in as few reads as the damage allows."""
    ledger, found = LEDGERS.get(ledger_id, Ledger(frozenset())), Counter()
    may_return = home.is_repaired or is_limbo(home, ledger_id)
    readable = ledger.entry_ids | (ledger.deleted_ids if may_return else frozenset())
    position, last = 0, ledger.end + 1 + ledger.pattern.ensemble_size
    while position <= last:
        request = ReadRequest(home.bookie_id, ledger_id, home.batches.key, position, last, ledger.pattern, 1 << 30, False)
        *batches, end = home.bookie.read(request)
        assert isinstance(end, ReadEnd)
        came = {one for batch in batches for one in _entries(batch.batch, ledger_id, ledger.size)}
        asked = {one for one in range(position, end.next_entry_id) if ledger.pattern.holds(one)}
        assert asked <= came <= readable, f"ledger {ledger_id}: {sorted(came)} came, {end}"
        if end.status is not Status.OK:
            found[end.status] += 1
            _check_no_yes(home, ledger_id, end.status, is_there=end.next_entry_id in ledger.entry_ids)
        if end.status is Status.NO_SUCH_LEDGER:  # and so to every entry
            break
        position = end.next_entry_id + (end.status is not Status.OK)
    return found


@lru_cache(maxsize=512)
def _entries(encoded: EncodedBatch, ledger_id: int, size: int) -> list[int]:
    """The ids in a batch, all of whose entries are right."""
    batch = decode(encoded)
    assert batch.ledger_id == ledger_id
    assert batch.matching(DIGESTER).all()
    ids = [int(one) for one in batch.entry_ids]
    assert batch.payloads.to_pylist() == [payload(ledger_id, one, size, 0) for one in ids]
    return ids


def _check_no_yes(home: FlippedHome, ledger_id: int, status: Status, *, is_there: bool) -> None:
    """A refusal says nothing wrong."""
    assert status not in (Status.UNAUTHORIZED, Status.WRONG_BOOKIE, Status.BAD_REQUEST)
    if status.verdict is Verdict.NEGATIVE:
        assert not is_there, f"ledger {ledger_id}: an acked entry is denied"
        assert not is_limbo(home, ledger_id), f"ledger {ledger_id}: {status} in limbo"
    if status is Status.NO_SUCH_LEDGER:
        assert ledger_id not in LEDGERS or LEDGERS[ledger_id].is_deleted


def _ask_confirmed(home: FlippedHome, ledger_id: int) -> Counter[Status]:
    reply = home.bookie.read_last_add_confirmed(LastAddConfirmedRequest(home.bookie_id, ledger_id, home.batches.key, False))
    if reply.status is Status.OK:
        assert not is_limbo(home, ledger_id)
        ledger = LEDGERS.get(ledger_id, Ledger(frozenset()))
        assert home.is_repaired or (ledger_id in LEDGERS and not ledger.is_deleted)
        is_right = reply.last_add_confirmed == ledger.last_add_confirmed and reply.is_fenced == ledger.is_fenced
        bound = max(ledger.last_add_confirmed, ledger.end + NEXT - 1)
        is_later = reply.last_add_confirmed <= bound and reply.is_fenced >= ledger.is_fenced
        assert is_right or (home.is_repaired and is_later), f"ledger {ledger_id}: {reply}"
        return Counter()
    _check_no_yes(home, ledger_id, reply.status, is_there=False)
    return Counter([reply.status])


def _ask_to_add(home: FlippedHome) -> Counter[Status]:
    """What a writer that was displaced is told, or one that was not."""
    ledger_ids = [*LEDGERS, *UNKNOWN_LEDGERS]
    replies = home.stage(*(home.next_add(one) for one in ledger_ids))
    for ledger_id, reply in zip(ledger_ids, replies, strict=True):
        ledger = LEDGERS.get(ledger_id, Ledger(frozenset()))
        is_fenced = ledger.is_fenced and not (home.is_repaired and ledger.is_deleted)
        refusals = (Status.FENCED,) if is_fenced or home.is_repaired else ()
        assert (reply.status is Status.OK) <= (not is_fenced), f"ledger {ledger_id}: {reply}"
        assert (reply.status is Status.OK) <= (not is_limbo(home, ledger_id))
        assert reply.status in (Status.OK, Status.UNKNOWN, Status.DAMAGED, Status.IO_ERROR, *refusals), f"{ledger_id}: {reply}"
    return Counter(reply.status for reply in replies if reply.status is not Status.OK)


# --- repair


class Neighbours:
    """The other bookies, which hold everything, and this one's repair from them."""

    def __init__(self, home: FlippedHome) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._cluster = cluster = KnownCluster(home.batch)
        for ledger_id, ledger in LEDGERS.items():
            if not ledger.is_deleted:
                first = min(ledger.entry_ids, default=0)
                fragments = [(0, OTHERS)] * (first > 0) + [(first, f"{home.bookie_id} b2 b3")]
                is_open = ledger_id in OPEN
                last, quorum = max(ledger.entry_ids, default=-1), 2 if ledger.pattern == STRIPE else 3
                cluster.add(ledger_id, *fragments, last=None if is_open else last, quorum=quorum)
                if is_open:
                    cluster.ends[ledger_id] = last

    def repair(self) -> None:
        """Phase two, then garbage collection as far as it deletes again, then a scrub. Raises BookKeeperError."""
        bookie = self._home.bookie
        assert bookie is not None
        bookie.storage.request_checkpoint = partial(self._checkpoint, bookie.storage.request_checkpoint)
        repair = LedgerRepair(self._home.bookie_id, bookie.storage, self._cluster, self._stage)
        assert LimboRepair(bookie, repair).round()
        for ledger_id, ledger in LEDGERS.items():
            if ledger.is_deleted:
                self._stage(DeleteLedgerRequest(ledger_id, 2))
        bookie.storage.checkpoint()
        scrubber = Scrubber(bookie.storage, repair, replace(self._home.config, scrub_bytes_per_s=1 << 40))
        scrubber.run()
        self._home.is_repaired = True
        assert scrubber.status().last_error == ""

    def _stage(self, request: StagedRequest) -> StagedReply:
        with self._lock:
            [reply] = self._home.stage(request)
            return reply

    def _checkpoint(self, request_checkpoint: Callable[[], None]) -> None:
        with self._lock:
            request_checkpoint()
            self._home.stage()
            self._home.bookie.idle()


def outcome(home: FlippedHome, kept: Kept) -> str:
    """Start with these files and ask everything: what the bookie made of them. An AssertionError names a wrong answer."""
    home.put(kept)
    try:
        bookie = home.start()
    except BookKeeperError:
        return "refused"
    try:
        answers = ask_everything(home)
        if bookie.limbo is not None:
            return "limbo"
        return "right" if answers.keys() <= RIGHT else "damaged"
    finally:
        home.abandon()
