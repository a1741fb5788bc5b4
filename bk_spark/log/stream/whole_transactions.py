"""Where a batch of a stream over several logs ends, so that it has each transaction as a whole, or none of it.

A stream stands in each log by itself, and limits cut each log by itself. Then the batch is made shorter: a log's end goes back
to before its first transaction that is not whole in all other logs of the stream, until there is none. Transactions stand in
the same order in all logs, so what is left is whole. If that leaves nothing at all, the oldest transaction comes as a whole,
and with it all before it, even if that is above the limits: a batch has to make progress.

A transaction that another log does not have yet, as far as the stream has heard, is waited for.

Ref: DESIGN.md, "Transactions".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from bk_spark.log.stored.values import TransactionRecord
from bk_spark.log.stream.positions import StreamPosition

Positions = Mapping[str, StreamPosition]
"""By the uids of logs."""


@dataclass(frozen=True, slots=True)
class MadeVersion:
    """A version of a log that a transaction made."""

    version: int
    time_ms: int
    transaction: TransactionRecord


class FollowedLogs(Protocol):
    """The logs of a stream, as far as it has heard of them."""

    def made(self, uid: str, after: int, last: int) -> list[MadeVersion]:
        """Those of the versions above ``after``, up to ``last``, that a transaction made, ascending."""

    def behind(self, uid: str, version: int) -> StreamPosition | None:
        """Behind all that a version gives the stream to read; None if that is nothing."""

    def before(self, uid: str, version: int, start: StreamPosition, end: StreamPosition) -> StreamPosition:
        """The last position between the two at which nothing of ``version`` was read."""

    def awaits(self, uid: str) -> bool:
        """Whether the stream is going to read a log that it does not follow yet."""


def whole_ends(logs: FollowedLogs, starts: Positions, ends: Positions, newest: Positions) -> Positions:
    """``ends`` of a batch, which has begun at ``starts`` and could reach ``newest``, with whole transactions alone."""
    found = {uid: logs.made(uid, starts[uid].version, end.version) for uid, end in ends.items() if end > starts[uid]}
    if not any(found.values()):
        return ends
    cut = _Cut(logs, starts, found)
    shorter = cut.shortened(ends)
    if any(shorter[uid] > starts[uid] for uid in shorter):
        return shorter
    return cut.with_oldest(newest) or shorter


class _Cut:
    """One batch. ``found`` has the transactions between its starts and the ends that limits allow."""

    def __init__(self, logs: FollowedLogs, starts: Positions, found: Mapping[str, list[MadeVersion]]) -> None:
        self._logs = logs
        self._starts = starts
        self._found = found
        self._behind: dict[tuple[str, int], StreamPosition | None] = {}

    def shortened(self, ends: Positions) -> dict[str, StreamPosition]:
        shorter = dict(ends)
        is_whole = False
        while not is_whole:
            is_whole = True
            for uid in self._found:
                broken = self._first_broken(uid, shorter)
                if broken is not None:
                    shorter[uid] = self._logs.before(uid, broken.version, self._starts[uid], shorter[uid])
                    is_whole = False
        return shorter

    def with_oldest(self, newest: Positions) -> dict[str, StreamPosition] | None:
        """The ends behind the oldest transaction, and behind all that are before it; None if not all of it is there yet."""
        first = [made[0] for made in self._found.values() if made]
        wanted = [min(first, key=lambda one: (one.time_ms, one.transaction.transaction_id)).transaction]
        ends = dict(self._starts)
        while wanted:
            for uid, end in self._reached(wanted.pop()):
                if end is None or uid not in newest or end > newest[uid]:
                    return None
                if end > ends[uid]:
                    wanted += [one.transaction for one in self._logs.made(uid, ends[uid].version, end.version)]
                    ends[uid] = end
        return {uid: ends[uid] for uid in newest}

    def _reached(self, transaction: TransactionRecord) -> Iterator[tuple[str, StreamPosition | None]]:
        """How far each log has to be read for all of a transaction; None where the log is not known yet."""
        for change in transaction.changes:
            if change.uid not in self._starts:
                if self._logs.awaits(change.uid):
                    yield change.uid, None
                continue
            end = self._end_of(change.uid, change.version)
            if end is not None:
                yield change.uid, end

    def _first_broken(self, uid: str, ends: Positions) -> MadeVersion | None:
        """The first transaction of which the batch has a part in this log, and not all in all logs."""
        for one in self._found[uid]:
            if one.version > ends[uid].version:
                return None
            gives_rows = one.version < ends[uid].version or self._end_of(uid, one.version) is not None
            if gives_rows and not all(self._has(change.uid, change.version, ends) for change in one.transaction.changes):
                return one
        return None

    def _has(self, uid: str, version: int, ends: Positions) -> bool:
        """Whether the batch, or one before it, has all that a version of a log gives to read."""
        if uid not in ends:
            return not self._logs.awaits(uid)
        if version < ends[uid].version or version <= self._starts[uid].version:
            return True
        end = self._end_of(uid, version)
        return end is None or end <= ends[uid]

    def _end_of(self, uid: str, version: int) -> StreamPosition | None:
        if (uid, version) not in self._behind:
            self._behind[uid, version] = self._logs.behind(uid, version)
        return self._behind[uid, version]
