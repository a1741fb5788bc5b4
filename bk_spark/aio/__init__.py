"""bk_spark.aio: the client for asyncio, with the names of the synchronous one.

    import bk_spark.aio as bk

    async with await bk.connect(uri) as bookkeeper:
        async with await bookkeeper.create_ledger() as writer:
            entry_id = await writer.append(b"one entry")
        reader = await bookkeeper.open_ledger(writer.ledger_id)
        async for batch in reader.read(0, reader.last_add_confirmed):
            ...

A client and its handles belong to the event loop that connected them; each event loop connects its own. The state machines run
where those of all clients run, on the one event loop of bk_spark: no call has a thread of its own.

**Order.** Appends keep the order in which they were called; tasks call in the order in which they were created.
**Back-pressure.** While ``ClientConfig.add_window_bytes`` are on their way, further appends stand in line: their coroutines
suspend, and the event loop goes on. What stands in line is what your tasks hold: bound how many you start.
**Cancellation.** A cancelled append that stands in line is withdrawn. Any other one is not undone: its entry may be confirmed
all the same. A cancelled read or wait ends its requests. A cancelled change of metadata may take effect all the same.
**Rows** are encoded and decoded in the few threads that a client has for calls; a reader, tail or writer that waits has none.

Imports ``bookkeeper`` and what lies below. Begin with ``bookkeeper.py``; ``calls.py`` is how a coroutine waits for the
client, ``client/ledger/arrivals.py`` how its appends reach the writer.
"""

from bk_spark.aio.bookkeeper import AsyncBookKeeper, connect
from bk_spark.aio.log import AsyncLog
from bk_spark.aio.log_writer import AsyncLogWriteHandle
from bk_spark.aio.reader import AsyncReadHandle
from bk_spark.aio.row_tail import AsyncRowTail
from bk_spark.aio.row_writer import AsyncRowWriteHandle
from bk_spark.aio.transaction import AsyncLogTransaction
from bk_spark.aio.writer import AsyncAdvWriteHandle, AsyncWriteHandle

__all__ = [
    "AsyncAdvWriteHandle",
    "AsyncBookKeeper",
    "AsyncLog",
    "AsyncLogTransaction",
    "AsyncLogWriteHandle",
    "AsyncReadHandle",
    "AsyncRowTail",
    "AsyncRowWriteHandle",
    "AsyncWriteHandle",
    "connect",
]
