"""An append waits for room for ``append_wait_s`` at most; then it did not happen, and the writer goes on once there is room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.aio.calls import Calls
from bk_spark.aio.writer import AsyncWriteHandle
from bk_spark.config import ClientConfig
from bk_spark.errors import AppendTimeoutError
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.rows.row_writer import RowWriteHandle, leader_of
from tests.soak.interrupts.bookies import MemoryClient
from tests.soak.interrupts.writers import CONFIG, DEADLINE_S, LARGE, ledger, log_writer, row_writer, until

WAIT_S = 0.3
SAYS = f"had no room for an append for {WAIT_S} s \\(append_wait_s\\): 8000 bytes \\(add_window_bytes\\)"


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    yield from standing_still(replace(CONFIG, append_wait_s=WAIT_S))


@pytest.fixture
def patient_client() -> Iterator[MemoryClient]:
    yield from standing_still(CONFIG)


def standing_still(config: ClientConfig) -> Iterator[MemoryClient]:
    """A client whose bookies stand still. Two entries of LARGE fill a window."""
    client = MemoryClient(config)
    client.bookie.stand_still()
    yield client
    client.context.close()


def impatient_log_writer(client: MemoryClient) -> LogWriteHandle:
    return impatient(log_writer(client))


def impatient(leader: LogWriteHandle) -> LogWriteHandle:
    leader._limits = replace(leader._limits, append_wait_s=WAIT_S)
    return leader


@pytest.mark.parametrize("make", [ledger, impatient_log_writer])
@pytest.mark.parametrize("append", ["one", "many"])
def test_an_append_of_a_thread_ends_with_an_error_that_names_limit_and_option(
    client: MemoryClient, make: Any, append: str
) -> None:
    writer = make(client)
    before = [writer.append_async(LARGE) for _ in range(2)]
    began_s = time.monotonic()
    with pytest.raises(AppendTimeoutError, match=SAYS):
        writer.append_async(LARGE) if append == "one" else writer.append_batch_async([LARGE] * 4)
    assert WAIT_S <= time.monotonic() - began_s < DEADLINE_S
    client.bookie.go_on()
    places = [one.result(DEADLINE_S) for one in (*before, writer.append_async(LARGE))]
    assert [getattr(place, "entry_id", place) for place in places] == [0, 1, 2], "what was refused took no id"
    queue = getattr(writer, "_queue", None) or writer._rolls.ledger._queue
    until(lambda: queue._held_bytes == 0 and queue._arrivals.held_bytes == 0, "room is missing")


def test_an_append_of_a_coroutine_ends_with_the_same_error(client: MemoryClient) -> None:
    async def test() -> None:
        writer = AsyncWriteHandle(client.context, Calls(), client.ledger(), deferred_sync=False)
        before = [asyncio.ensure_future(writer.append(LARGE)) for _ in range(2)]
        for append in (writer.append(LARGE), writer.append_batch([LARGE] * 2)):
            with pytest.raises(AppendTimeoutError, match=SAYS):
                await asyncio.wait_for(append, DEADLINE_S)
        client.bookie.go_on()
        assert await asyncio.wait_for(asyncio.gather(*before, writer.append(LARGE)), DEADLINE_S) == [0, 1, 2]

    client.context.appends_stand_in_line = True
    asyncio.run(test())


def test_rows_for_which_their_ledger_has_no_room_fail_with_the_same_error_and_the_next_are_written(
    client: MemoryClient,
) -> None:
    writer, rows = row_writer(client), pa.table({"i": list(range(900))})
    impatient(leader_of(writer).handle)
    calls = []
    for _ in range(3):
        calls.append(writer.append_async(rows))
        writer._ask("what waits is due now")
        until(lambda: writer._asked.empty() and not writer._buffer.rows, "the rows were not taken")
    assert isinstance(calls[-1].exception(DEADLINE_S), AppendTimeoutError)
    client.bookie.go_on()
    assert [call.result(DEADLINE_S).entry_id for call in (calls[0], writer.append_async(rows))] == [0, 1]


def test_a_call_of_a_row_writer_that_finds_no_room_names_what_bounds_its_rows(patient_client: MemoryClient) -> None:
    leader = leader_of(row_writer(patient_client))
    writer = RowWriteHandle(replace(leader, limits=replace(leader.limits, append_wait_s=WAIT_S)))
    rows, before = pa.table({"i": list(range(1_000))}), list[Any]()

    def fill() -> None:
        for _ in range(20):
            before.append(writer.append_async(rows))

    with pytest.raises(AppendTimeoutError, match=rf"for {WAIT_S} s \(append_wait_s\): 200000 bytes \(twice max_bytes\)"):
        fill()
    patient_client.bookie.go_on()
    found = [call.result(DEADLINE_S).entry_id for call in (*before, writer.append_async(rows))]
    assert found == sorted(found), "what was refused was not written"
    writer.close()
