"""The connections to one Apache bookie, each opened when it is first needed.

Batch reads have one of their own: a bookie before 4.17 does not know them, and ends the connection that brings one. It would
take with it all adds that it owes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bk_spark.client.driver.apache.connecting import STEP_S, open_framed, open_version_3
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.version_2 import Version2
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.client.driver.connections import Lookup
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_2, version_3

_CLOSED = "the client was closed"

_Connection = TypeVar("_Connection", Version2, Version3)


class ApacheConnections:
    """Runs on the event loop. Every request raises ConnectionError or another OSError, MetadataUnavailableError."""

    def __init__(self, bookie_id: str, lookup: Lookup, access: LoginAccess) -> None:
        self._bookie_id = bookie_id
        self._lookup = lookup
        self._access = access
        self._opening = {kind: asyncio.Lock() for kind in ("adds", "numbered", "batch reads")}
        self._adds: Version2 | None = None
        self._batch_reads: Version2 | None = None
        self._numbered: Version3 | None = None
        self._has_batch_reads: bool | None = None
        """None while that is not known. Found out anew with each ``_numbered``: a bookie may come back in another version."""
        self._is_closed = False

    @property
    def owes_adds(self) -> bool:
        return self._adds is not None and self._adds.owes_adds

    async def adds(self) -> Version2:
        """To add. Reads that end this connection would take adds with them."""
        async with self._opening["adds"]:
            if self._adds is None or self._adds.ended is not None:
                self._adds = await self._kept(_open_version_2)
            return self._adds

    async def numbered(self) -> Version3:
        """For requests whose answers have their numbers."""
        async with self._opening["numbered"]:
            if self._numbered is None or self._numbered.ended is not None:
                self._numbered = await self._kept(open_version_3)
                self._has_batch_reads = None
            return self._numbered

    async def batch_read(self, ledger_id: int, first: int, most_entries: int, most_bytes: int) -> version_2.Answer | None:
        """Consecutive entries from ``first`` on. None: the bookie has no batch reads."""
        numbered = await self.numbered()
        if self._has_batch_reads is False:
            return None
        connection = await self._for_batch_reads()
        try:
            answer = await connection.batch_read(ledger_id, first, most_entries, most_bytes)
        except ConnectionError:
            if self._has_batch_reads or numbered.ended is not None:
                raise
            await numbered.ask(pb.AUTH, version_3.without_authentication(), STEP_S)
            self._has_batch_reads = False  # the bookie itself did not end, so it was the request
            return None
        self._has_batch_reads = True
        return answer

    def close(self) -> None:
        """Later requests fail at once."""
        self._is_closed = True
        for connection in (self._adds, self._batch_reads, self._numbered):
            if connection is not None:
                connection.close(_CLOSED)

    async def _for_batch_reads(self) -> Version2:
        async with self._opening["batch reads"]:
            if self._batch_reads is None or self._batch_reads.ended is not None:
                self._batch_reads = await self._kept(_open_version_2)
            return self._batch_reads

    async def _kept(self, opened: Callable[[BookieAddress, LoginAccess], Awaitable[_Connection]]) -> _Connection:
        """A new connection, unless the client was closed meanwhile."""
        connection = await opened(await self._address(), self._access)
        if self._is_closed:
            connection.close(_CLOSED)
            raise ConnectionError(_CLOSED)
        return connection

    async def _address(self) -> BookieAddress:
        if self._is_closed:
            raise ConnectionError(_CLOSED)
        address = await self._lookup(self._bookie_id)
        if address is None:
            raise ConnectionError("it is not registered as available")
        return address


async def _open_version_2(address: BookieAddress, access: LoginAccess) -> Version2:
    return await open_framed(address, access, Version2())
