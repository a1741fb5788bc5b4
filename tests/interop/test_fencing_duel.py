"""A writer of one side and a recovery of the other, at random moments: nothing confirmed is lost, and all readers agree."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import LedgerClosedError, LedgerFencedError
from tests.interop.apache import IS_ALL, ON_BOTH, ApacheError, JavaClient, payload, read_all, summary

DUELS = 200 if IS_ALL else 10
COUNT = 400
SIZE = 60
LONGEST_S = 0.04
"""About as long as the adds take."""

LEDGER_FENCED, LEDGER_CLOSED, NOT_ENOUGH_BOOKIES = -101, -11, -6
ENDS_OF_JAVAS_WRITER = (LEDGER_FENCED, LEDGER_CLOSED, NOT_ENOUGH_BOOKIES)
"""The last one where a bookie said that the ledger is fenced only when two others had confirmed the entry: at its next append
Apache's client takes that for a failure of the bookie (``maybeHandleDelayedWriteBookieFailure``), and finds no fourth one."""
SHAPES = [(3, 3, 2), (3, 2, 2)]

pytestmark = [pytest.mark.timeout(1200), ON_BOTH]


def everything(client: BookKeeper, ledger_id: int) -> list[bytes]:
    with client.open_ledger(ledger_id) as reader:
        return read_all(reader)


def test_our_recovery_against_javas_writer(java: JavaClient, java_3: JavaClient, client: BookKeeper) -> None:
    chance, ends = random.Random(1), set()
    with ThreadPoolExecutor(1) as pool:
        for duel in range(DUELS):
            ledger_id = java.create(*SHAPES[duel % 2])
            adding = pool.submit(java.add, ledger_id, COUNT, SIZE)
            time.sleep(chance.random() * LONGEST_S)  # the moment is what is tried; nothing waits for anything
            found = everything(client, ledger_id)
            refused = adding.exception()
            assert refused is None or (isinstance(refused, ApacheError) and refused.code in ENDS_OF_JAVAS_WRITER)
            assert len(found) >= (COUNT if refused is None else refused.confirmed)
            assert found == [payload(ledger_id, one, SIZE) for one in range(len(found))]
            java_3.open(ledger_id)
            if found:
                assert java_3.read(ledger_id, 0, len(found) - 1) == summary(found)
            ends.add(len(found))
    assert len(ends) > 1, "the moments were all alike"


def test_javas_recovery_against_our_writer(java: JavaClient, client: BookKeeper) -> None:
    chance, ends = random.Random(2), set()
    with ThreadPoolExecutor(1) as pool:
        for duel in range(DUELS):
            e, w, a = SHAPES[duel % 2]
            writer = client.create_ledger(e, w, a)
            adds = [writer.append_async(payload(writer.ledger_id, one, SIZE)) for one in range(COUNT // 2)]
            opening = pool.submit(java.open, writer.ledger_id)
            while not opening.done() and len(adds) < 20 * COUNT:
                adds.append(writer.append_async(payload(writer.ledger_id, len(adds), SIZE)))
                time.sleep(chance.random() * 0.0005)  # adds go on at some pace while the other side recovers
            last = opening.result()["last"]
            failures = [add.exception(timeout=60) for add in adds]
            assert {type(one) for one in failures} <= {type(None), LedgerFencedError, LedgerClosedError}
            assert last + 1 >= failures.count(None)
            wanted = [payload(writer.ledger_id, one, SIZE) for one in range(last + 1)]
            assert everything(client, writer.ledger_id) == wanted
            if wanted:
                assert java.read(writer.ledger_id, 0, last) == summary(wanted)
            ends.add(last)
    assert len(ends) > 1, "the moments were all alike"
