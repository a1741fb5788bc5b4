"""What a client leaves behind when it is closed: nothing that waits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from unittest import mock

import pytest

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.ledger.write_handle import AdvWriteHandle
from bk_spark.config import ClientConfig, LedgerOptions
from bk_spark.errors import ConfigError
from bk_spark.metadata.ledger_metadata import new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")
PAYLOAD = bytes(600)
LONG_S = 30.0


@pytest.fixture
def context() -> Iterator[ClientContext]:
    store = MemoryStore(MemoryTree(lambda: 0))
    initialise_cluster(store, ZNODES)
    context = ClientContext(store, ZNODES, ClientConfig())
    yield context
    context.close()


@pytest.fixture(params=[False, True], ids=["threads wait", "appends stand in line"])
def writer(context: ClientContext, request: pytest.FixtureRequest) -> AdvWriteHandle:
    """Of a ledger on bookies that nobody has registered."""
    context.appends_stand_in_line = request.param
    return AdvWriteHandle(context, new_ledger(7, LedgerOptions(), ("b1", "b2", "b3"), created_ms=0, creator_token=1), 0)


def test_an_append_that_waits_for_the_entry_before_it_fails(context: ClientContext, writer: AdvWriteHandle) -> None:
    waiting = writer.append_async(1, PAYLOAD)
    context.close()
    with pytest.raises(ConfigError, match="what was not confirmed may be in the ledger, or not"):
        waiting.result(LONG_S)


def test_a_close_that_comes_while_the_client_is_closed_ends(context: ClientContext, writer: AdvWriteHandle) -> None:
    queue, closings = writer._queue, list[Future[None]]()
    with mock.patch.object(queue._runner, "stop", side_effect=lambda: closings.append(queue.close_async())):
        context.close()
    (closing,) = closings
    assert isinstance(closing.exception(LONG_S), ConfigError)


def test_a_later_close_of_the_writer_says_that_the_client_is_closed(context: ClientContext, writer: AdvWriteHandle) -> None:
    context.close()
    with pytest.raises(ConfigError, match="this client is closed"):
        writer.close()
