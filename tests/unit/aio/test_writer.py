"""What the end of an ``async with`` block makes of errors."""

from __future__ import annotations

import asyncio

import pytest

from bk_spark.aio.writer import AsyncClosedAfterBlock
from bk_spark.errors import LedgerFencedError


class _Unclosable(AsyncClosedAfterBlock):
    @property
    def _title(self) -> str:
        return "ledger 7"

    @property
    def _standing(self) -> str:
        return "open"

    async def close(self) -> None:
        raise LedgerFencedError(7)


async def _left_by(error: BaseException | None) -> None:
    async with _Unclosable():
        if error is not None:
            raise error


def test_an_error_of_close_is_raised_or_becomes_a_note_on_the_error_of_the_block() -> None:
    with pytest.raises(LedgerFencedError):
        asyncio.run(_left_by(None))
    with pytest.raises(ZeroDivisionError) as raised:
        asyncio.run(_left_by(ZeroDivisionError()))
    assert raised.value.__notes__ == [f"closing ledger 7 failed as well: {LedgerFencedError(7)}"]
