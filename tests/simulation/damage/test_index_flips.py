"""One flipped bit anywhere in the files of an index, or one page in the wrong place: each answer is right or an error.

Never a wrong place, never "no such entry" for one that is there, never a lost fence, tombstone or limbo; whether the file was
damaged while it was closed or under an open index that had not read all of it.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

import contextlib
import random
import shutil

import pytest

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE, INDEX_FILE, open_index
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.log_files.log_file import FilePosition
from bk_spark.bookie.log_files.mark import LogMark
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.errors import BookKeeperError
from bk_spark.quorum import IdPattern
from tests.unit.bookie.index.index_model import KEY, Answers, IndexModel, log, stored

PAGE_BYTES = 4096
LEDGERS = (1, 2, 3, 4, 5, 6, 40, 41, 1 << 20)
ENTRIES = [(ledger_id, entry_id) for ledger_id in (1, 2, 40, 6) for entry_id in (0, 31, 250, 899, 65_540, 1 << 24, 1 << 30)]


def _fill(*targets) -> None:
    """A history of every kind of operation, the same for index and model."""
    limbo = Limbo(90, 50, frozenset({7, 9}))
    mark = LogMark(5_000, 3, 4, (FilePosition(2, 77),), (FilePosition(3, 88),))
    changes = [LedgerChange(one, KEY, 7, [], is_fenced=one % 2 == 0) for one in range(5, 40)]
    changes.append(LedgerChange(1 << 20, KEY, 3, []))
    for ledger_id in (1, 2, 3, 40):
        batches = [
            stored(ledger_id, first, first + 4, ledger_id * 1_000 + first, file_id=1 + first % 2) for first in range(0, 900, 3)
        ]
        batches += [
            stored(ledger_id, 65_530, 65_600, 4_000 + ledger_id),
            stored(ledger_id, 1 << 24, (1 << 24) + 9, 4_100 + ledger_id),
        ]
        batches.append(stored(ledger_id, 30, 900, 4_200 + ledger_id, IdPattern(3, 2, 1)))
        changes.append(LedgerChange(ledger_id, KEY, 40, batches, is_fenced=ledger_id == 2))
    moved = [one for one in changes[-1].batches if one.location.file_id == 2]
    for target in targets:
        target.commit(changes[:20], mark, [log(1), log(2, is_sealed=True)])
        target.commit(changes[20:], mark, [log(1)])
        target.commit([LedgerChange(3, KEY, -1, [], deleted_at=4_300, deleted_ms=99)], mark)
        target.move([(one, EntryLocation(3, one.sequence, 77)) for one in moved], [log(3)], 2)
        if isinstance(target, IndexModel):
            target.limbo = limbo
        else:
            target.set_limbo(limbo)


@pytest.fixture
def answers(tmp_path):
    """Of an index that is there, whole, in ``tmp_path``."""
    model = IndexModel()
    index = open_index(tmp_path, "bookie-1", REAL_DISK, logs_exist=False)
    _fill(index, model)
    model.check(index, ENTRIES, LEDGERS)
    index.close()
    return Answers(model, ENTRIES, LEDGERS)


def _flips(data: bytes, samples: int):
    """The same ones in every run."""
    chosen = random.Random(1)
    for _ in range(samples):
        flipped = bytearray(data)
        flipped[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        yield bytes(flipped)


def _open(directory):
    return open_index(directory, "bookie-1", REAL_DISK, logs_exist=True)


def test_a_bit_that_flipped_while_the_index_was_closed_makes_no_answer_wrong(answers, tmp_path, samples):
    path, generation = tmp_path / INDEX_FILE, (tmp_path / GENERATION_FILE).read_bytes()
    caught = 0
    for data in _flips(path.read_bytes(), samples):
        path.write_bytes(data)
        (tmp_path / GENERATION_FILE).write_bytes(generation)
        caught += _is_caught(answers, tmp_path)
    assert caught > samples // 20


def _is_caught(answers, directory) -> bool:
    try:
        index = _open(directory)
    except BookKeeperError:
        return True
    try:
        return answers.is_caught(index)
    finally:
        index.close()


def test_a_bit_that_flips_under_an_open_index_makes_no_answer_wrong(answers, tmp_path, samples):
    path, generation = tmp_path / INDEX_FILE, (tmp_path / GENERATION_FILE).read_bytes()
    data = path.read_bytes()
    caught = 0
    for flipped in _flips(data, samples // 2):
        path.write_bytes(data)
        (tmp_path / GENERATION_FILE).write_bytes(generation)
        index = _open(tmp_path)
        with path.open("r+b") as file:
            file.write(flipped)
        caught += answers.is_caught(index)
        index.close()
    assert caught > samples // 40


def test_a_page_in_the_place_of_another_makes_no_answer_wrong(answers, tmp_path, samples):
    """As a disk leaves it that wrote to the wrong place: every checksum is right, the order of the stored batches is not."""
    path, generation = tmp_path / INDEX_FILE, (tmp_path / GENERATION_FILE).read_bytes()
    data = path.read_bytes()
    chosen = random.Random(2)
    for _ in range(samples // 2):
        source, target = (PAGE_BYTES * one for one in chosen.sample(range(1, len(data) // PAGE_BYTES), 2))
        path.write_bytes(data[:target] + data[source : source + PAGE_BYTES] + data[target + PAGE_BYTES :])
        (tmp_path / GENERATION_FILE).write_bytes(generation)
        _is_caught(answers, tmp_path)


def test_a_bit_that_flips_in_the_rollback_journal_makes_no_answer_wrong(answers, tmp_path, samples):
    """A process was killed in a commit whose pages had reached the file: the start is to undo them, and cannot undo all."""
    left = tmp_path / "left"
    batches = [stored(one, 5_000 + first, 5_000 + first, 6_000 + first) for one in (1, 6) for first in range(600)]
    changes = [LedgerChange(one, KEY, 40, [added for added in batches if added.ledger_id == one]) for one in (1, 6)]

    def killed():
        yield from changes
        shutil.copytree(tmp_path, left)
        raise InterruptedError

    index = _open(tmp_path)
    index._database.run("PRAGMA cache_size = 5")
    with contextlib.suppress(InterruptedError):
        index.commit(killed(), LogMark(next_sequence=9_000))
    index.close()
    answers.accept(batches)
    caught = 0
    files = {path: path.read_bytes() for path in left.iterdir()}
    journal = left / f"{INDEX_FILE}-journal"
    for flipped in [files[journal], *_flips(files[journal], samples // 2)]:
        for path, data in files.items():
            path.write_bytes(data)
        journal.write_bytes(flipped)
        caught += _is_caught(answers, left)
        assert caught == 0 or flipped != files[journal]
    assert caught > samples // 40


def test_every_flipped_bit_of_the_generation_file_is_found(answers, tmp_path):
    path = tmp_path / GENERATION_FILE
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(BookKeeperError, match=GENERATION_FILE):
            _open(tmp_path)


def test_a_full_check_finds_whatever_makes_an_answer_an_error(answers, tmp_path, samples):
    """The scrub comes across it before anybody asks."""
    path, generation = tmp_path / INDEX_FILE, (tmp_path / GENERATION_FILE).read_bytes()
    for data in _flips(path.read_bytes(), samples // 4):
        path.write_bytes(data)
        (tmp_path / GENERATION_FILE).write_bytes(generation)
        with contextlib.suppress(BookKeeperError):
            index = _open(tmp_path)
            try:
                list(index.check(True))
                assert not answers.is_caught(index)
            finally:
                index.close()
