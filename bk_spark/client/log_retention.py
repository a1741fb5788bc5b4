"""How much of a log's data its retention lets go. Pure arithmetic.

Data goes from the head of the log by whole ledgers. How old a ledger is, its rows say: rows are numbered in the order in
which they were committed, and a ledger is as old as its last row, also after a compaction has written it anew. The newest
CLOSED ledger always stays, and so do open ones: retention never empties a log.
"""

from __future__ import annotations

from collections.abc import Sequence

from bk_spark.client.log_layout import CommittedLedger


def expired_ledgers(
    closed: Sequence[CommittedLedger], first_row: int, expired_rows: int | None, retention_bytes: int | None
) -> int:
    """How many ledgers at the head of ``closed``, the log's CLOSED ledgers in order, are to go.

    A ledger goes if all its rows are below row number ``expired_rows``, ``first_row`` being the number of the first one
    listed; or if at least ``retention_bytes`` of payload stay without it. None switches either off.
    """
    row, left = first_row, sum(one.length for one in closed)
    for count, ledger in enumerate(closed[:-1]):
        row, left = row + ledger.rows, left - ledger.length
        is_old = expired_rows is not None and row <= expired_rows
        is_excess = retention_bytes is not None and left >= retention_bytes
        if not is_old and not is_excess:
            return count
    return max(len(closed) - 1, 0)
