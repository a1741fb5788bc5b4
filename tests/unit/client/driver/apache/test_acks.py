"""Which batch an answer of an Apache bookie is for, in any order and in any groups."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from bk_spark.client.driver.apache.acks import SentAdds
from bk_spark.config import DigestType
from bk_spark.entries.batch import BatchHeader
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.apache.version_2 import ACK
from bk_spark.wire.messages import Status


def header(ledger_id: int, first: int, last: int, pattern: IdPattern = DENSE) -> BatchHeader:
    return BatchHeader(ledger_id, first, last, pattern, -1, 0, DigestType.CRC32C)


def acks(*answers: tuple[int, int, int]) -> npt.NDArray[np.void]:
    """Ledger, entry id, code."""
    return np.array([(24, 2, 1, 0, code, ledger_id, entry_id) for ledger_id, entry_id, code in answers], dtype=ACK)


def test_a_batch_is_told_once_all_its_entries_are_answered() -> None:
    sent: SentAdds[str] = SentAdds()
    sent.add(header(1, 0, 2), "batch")
    assert list(sent.answered(acks((1, 2, 0), (1, 0, 0)))) == []
    assert list(sent.answered(acks((1, 1, 0)))) == [("batch", Status.OK, 2)]
    assert list(sent.answered(acks((1, 1, 0)))) == [], "an answer that nobody waits for"


def test_a_failure_is_told_at_once_and_the_other_answers_are_still_taken() -> None:
    sent: SentAdds[str] = SentAdds()
    sent.add(header(1, 0, 2), "first")
    sent.add(header(1, 0, 2), "second")
    assert list(sent.answered(acks((1, 1, 104)))) == [("first", Status.FENCED, 1)]
    assert list(sent.answered(acks((1, 0, 0), (1, 2, 0), (1, 1, 0)))) == []
    assert list(sent.answered(acks((1, 0, 0), (1, 2, 0)))) == [("second", Status.OK, 2)]


def test_an_answer_counts_for_the_oldest_batch_that_waits_for_its_entry() -> None:
    sent: SentAdds[str] = SentAdds()
    for token in ("first", "second"):
        sent.add(header(1, 5, 5), token)
    assert list(sent.answered(acks((1, 5, 0), (1, 5, 102)))) == [("first", Status.OK, 5), ("second", Status.UNAUTHORIZED, 5)]


def test_an_unknown_code_is_unknown_never_negative() -> None:
    sent: SentAdds[str] = SentAdds()
    sent.add(header(1, 5, 5), "batch")
    assert list(sent.answered(acks((1, 5, 106)))) == [("batch", Status.UNKNOWN, 5)]


def test_what_is_left_when_the_connection_ends_is_told_once() -> None:
    sent: SentAdds[str] = SentAdds()
    for ledger_id, token in ((1, "failed"), (1, "waits"), (2, "waits, too")):
        sent.add(header(ledger_id, 0, 1), token)
    list(sent.answered(acks((1, 0, 101))))
    assert sent.take_all() == ["waits", "waits, too"]
    assert sent.take_all() == []


@pytest.mark.parametrize("seed", range(50))
def test_any_order_of_answers_tells_each_batch_once_and_not_before_its_last_entry(seed: int) -> None:
    chance = random.Random(seed)
    sent: SentAdds[int] = SentAdds()
    pattern = chance.choice([DENSE, IdPattern(3, 2, 1)])
    left: dict[int, set[tuple[int, int]]] = {}
    for token in range(12):
        ledger_id, first, span = chance.randrange(3), 100 * token, chance.randrange(1, 20)
        ids = pattern.ids(first, first + span).tolist()
        if ids:
            sent.add(header(ledger_id, ids[0], ids[-1], pattern), token)
            left[token] = {(ledger_id, one) for one in ids}
    answers = [one for ids in left.values() for one in ids]
    chance.shuffle(answers)
    told: list[int] = []
    while answers:
        some = [answers.pop() for _ in range(min(len(answers), chance.randrange(1, 9)))]
        found = [token for token, status, _ in sent.answered(acks(*_ok(some))) if status is Status.OK]
        for ids in left.values():
            ids.difference_update(some)
        told += found
        assert set(told) == {token for token, ids in left.items() if not ids}
    assert sorted(told) == sorted(left)


def _ok(answers: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    return [(ledger_id, entry_id, 0) for ledger_id, entry_id in answers]
