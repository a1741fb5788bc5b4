"""One flipped bit in any file of a bookie: every answer is an error or right, and the other replicas repair it.

The bookie was killed, or stopped cleanly; a bit flips in a journal, an entry log, a copy that a checkpoint made, the index, its
generation, the boot file or the cookie; then it starts as a process does. It may refuse to start, be in limbo, or answer
"damaged"; it never gives wrong data, never denies what was acked, forgets no fence, takes no add against one.

Of the generation, boot file and cookie every bit is flipped, of the others a sample (``--samples``), the same in every run.

Ref: docs/rules.md, storage rules 2, 3, 7, 8, 10 and 11, protocol rules 39, 40 and 50, situation 61.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.bookie.identity.boot import MetadataPlace, fix_cookies
from bk_spark.bookie.identity.identity import examine
from bk_spark.bookie.inspection.rebuild_index import rebuild_index
from bk_spark.bookie.log_files import all_log_files
from bk_spark.errors import BookKeeperError
from bk_spark.wire.messages import Status
from tests.simulation.damage.flipped_home import MEMORY, RIGHT, FlippedHome, Kept, Neighbours, ask_everything, live, outcome
from tests.unit.bookie.identity.bookie_home import QUICK_DISK, ZNODES

PAGE_BYTES = 4096
PAGE_HEAD_BYTES = 16
"""Of the index: what a page is and how many rows it has; an error there can hide many."""

SMALL = ("index/generation", "boot", "cookie")
SMALL_BITS = 8 * 600
KINDS = ("journal/", "entry_log/", "index/ledgers.sqlite", *SMALL)
ENDS = pytest.mark.parametrize("end", ["killed", "stopped"])


class Past:
    """A home, and what it left when it was killed and when it was stopped."""

    def __init__(self, root: Path) -> None:
        self.home = home = FlippedHome(root)
        live(home)
        self.killed = home.keep()
        home.stop()
        self.stopped = home.keep()

    def flips(self, end: str, kind: str, number: int) -> Iterator[tuple[str, int]]:
        """So many bits of the files of a kind, as file and bit; all if they are not more. The same places in every run.

        A third is of anywhere, a third of bytes that are not zero, for most are, a third of where pages and file headers begin.
        """
        kept: Kept = getattr(self, end)
        names = [name for name in kept.files if name.startswith(kind) and not name.endswith("-journal")]
        bits = [(name, bit) for name in names for bit in range(8 * len(kept.files[name]))]
        if len(bits) <= number:
            yield from bits
            return
        used = [(name, bit) for name, bit in bits if kept.files[name][bit // 8]]
        begins = [(name, bit) for name, bit in bits if bit // 8 % PAGE_BYTES < PAGE_HEAD_BYTES]
        for places in (bits, used, begins):
            yield from random.Random(1).sample(places, min(number // 3, len(places)))


@pytest.fixture(scope="module")
def past() -> Iterator[Past]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_log_files, "ALIGNED_FROM_BYTES", 0)
        root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        yield Past(root)
        shutil.rmtree(root)


def outcomes(past: Past, end: str, kind: str, number: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, bit in past.flips(end, kind, number):
        try:
            found[outcome(past.home, getattr(past, end).flipped(name, bit))] += 1
        except AssertionError as problem:
            problem.add_note(f"{end}, bit {bit % 8} of byte {bit // 8} of {name}")
            raise
    return found


@ENDS
def test_the_bookie_whose_bits_flip_was_whole_and_answers_everything(past, end):
    assert outcome(past.home, getattr(past, end)) == "right"


@ENDS
@pytest.mark.parametrize(
    ("kind", "possible"),
    [
        ("journal/", {"right", "limbo"}),
        ("entry_log/", {"right", "limbo", "damaged"}),
        ("index/ledgers.sqlite", {"right", "damaged", "refused"}),
        ("index/generation", {"refused"}),
        ("boot", {"right", "refused"}),
        ("cookie", {"right", "refused"}),
    ],
)
def test_a_bit_that_flipped_while_the_bookie_was_down_makes_no_answer_wrong(
    past, end, kind, possible, samples, record_property
):
    found = outcomes(past, end, kind, max(SMALL_BITS, samples // 2) if kind in SMALL else samples // 2)
    record_property("outcomes", dict(found))
    assert found.keys() <= possible
    assert found.keys() & {"limbo", "refused", "damaged"} or (end, kind) == ("stopped", "journal/")


@ENDS
def test_a_bit_of_an_entry_log_that_flips_under_an_open_bookie_makes_no_answer_wrong(past, end, samples, record_property):
    """All that was stored is in the index by then, and is read from there."""
    home = past.home
    home.put(getattr(past, end))
    home.start()
    found: Counter[bool] = Counter()
    for path in sorted((home.data / "entry_log").iterdir()):
        data = path.read_bytes()
        for bit in random.Random(2).sample(range(8 * len(data)), samples // 16):
            with path.open("r+b") as file:
                file.seek(bit // 8)
                file.write(bytes([data[bit // 8] ^ 1 << bit % 8]))
                file.flush()
                found[ask_everything(home, adds=False).keys() <= RIGHT] += 1
                file.seek(bit // 8)
                file.write(data[bit // 8 : bit // 8 + 1])
    assert ask_everything(home).keys() <= RIGHT
    home.abandon()
    record_property("outcomes", dict(found))
    assert found[True] > 0
    assert found[False] > 0


# --- repair


@ENDS
@pytest.mark.parametrize("kind", KINDS)
def test_the_other_replicas_repair_it(past, end, kind, samples):
    for name, bit in past.flips(end, kind, max(2, samples // 50)):
        try:
            _repaired(past.home, getattr(past, end).flipped(name, bit))
        except AssertionError as problem:
            problem.add_note(f"{end}, bit {bit % 8} of byte {bit // 8} of {name}")
            raise


def _repaired(home: FlippedHome, kept: Kept) -> None:
    """Start, repair, and do what errors tell the operator to do, until the bookie is whole."""
    home.put(kept)
    for _ in range(3):
        try:
            home.start()
            Neighbours(home).repair()
            _is_whole(home)
            return
        except BookKeeperError as problem:
            home.abandon()
            _remedy(home, problem)
        finally:
            home.abandon()
    pytest.fail("still damaged")


def _is_whole(home: FlippedHome) -> None:
    """It answers everything, and does so after restarts.

    Some damage of the index shows when its page is written: that fails, or the next scrub finds it. Raises BookKeeperError.
    """
    for is_last in (False, True):
        assert home.bookie.limbo is None
        answers = ask_everything(home, adds=is_last)
        if Status.DAMAGED in answers:
            list(home.bookie.storage.check_index())
            home.stop()
        assert answers.keys() <= RIGHT
        home.stop()
        home.start()
    assert home.bookie.limbo is None


def _remedy(home: FlippedHome, problem: BookKeeperError) -> None:
    """What the error tells the operator to do."""
    if "rebuild-index" in str(problem) or "ledgers.sqlite" in str(problem):
        rebuild_index(home.directories, home.bookie_id, QUICK_DISK, lambda *_: None)
        return
    assert "cookie fix" in str(problem), str(problem)
    identity = examine(home.directories, home.store, ZNODES, QUICK_DISK, bookie_id=home.bookie_id)
    fix_cookies(identity, MetadataPlace(home.store, ZNODES), QUICK_DISK)
