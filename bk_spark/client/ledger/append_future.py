"""The future of a single append, cheap enough for one of each entry.

The futures of one writer share a lock (``call_future.Guard``), and those of a batch are all done before their waiters wake: who
waits for the first entry of a batch would otherwise take turns with the event loop for each entry that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import _base as states

from bk_spark.calls.call_future import CallFuture


class AppendFuture(CallFuture):
    """It holds the id of its entry."""


def confirm_all(futures: Sequence[AppendFuture], first_entry_id: int) -> None:
    """Give consecutive ids to futures of one writer. One that has failed stays so."""
    awaited = []
    guard = futures[0]._guard
    held = guard.take()
    try:
        for entry_id, future in enumerate(futures, first_entry_id):
            if future._state == states.PENDING:
                future._result = entry_id
                future._state = states.FINISHED
                if future._waiters or future._done_callbacks:  # after the state: whoever comes later sees that
                    awaited.append(future)
    finally:
        if held:
            guard.release()
    for future in awaited:
        future._tell()
