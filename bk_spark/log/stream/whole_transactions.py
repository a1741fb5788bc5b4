"""Where a batch of a stream over several logs ends, so that it has each transaction as a whole, or none of it.

A stream stands in each log by itself, and limits cut each log by itself. Then the batch is made shorter: a log's end goes back
to before its first transaction that is not whole in all other logs of the stream, until there is none. Transactions stand in
the same order in all logs, so what is left is whole. A transaction that is next in all of its logs, and that limits have cut,
comes as a whole, even if that is above the limits: otherwise it would never come. If something else is before it in one of its
logs, that is read first, within the limits.

A transaction that another log does not have yet, as far as the stream has heard, is waited for.

Ref: DESIGN.md, "Transactions".
"""

from __future__ import annotations

from collections.abc import Mapping
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
    cut = _Cut(logs, starts)
    found = {uid: cut.unread(uid, end) for uid, end in ends.items() if end > starts[uid]}
    if not any(found.values()):
        return ends
    shorter = cut.shortened(ends, found)
    blocked = (made[0] for uid, made in found.items() if made and shorter[uid] == starts[uid])
    for one in blocked:
        whole = cut.alone(one.transaction, newest)
        shorter = {uid: max(end, whole.get(uid, end)) for uid, end in shorter.items()}
    return shorter


class _Cut:
    """One batch, from its starts on."""

    def __init__(self, logs: FollowedLogs, starts: Positions) -> None:
        self._logs = logs
        self._starts = starts
        self._behind: dict[tuple[str, int], StreamPosition | None] = {}

    def unread(self, uid: str, end: StreamPosition) -> list[MadeVersion]:
        """The transactions between the start of a log and ``end`` that give something to read."""
        made = self._logs.made(uid, self._starts[uid].version - 1, end.version)
        return [one for one in made if not self._is_read(uid, one.version)]

    def shortened(self, ends: Positions, found: Mapping[str, list[MadeVersion]]) -> dict[str, StreamPosition]:
        shorter = dict(ends)
        is_whole = False
        while not is_whole:
            is_whole = True
            for uid, made in found.items():
                broken = self._first_broken(made, uid, shorter)
                if broken is not None:
                    shorter[uid] = self._logs.before(uid, broken.version, self._starts[uid], shorter[uid])
                    is_whole = False
        return shorter

    def alone(self, transaction: TransactionRecord, newest: Positions) -> dict[str, StreamPosition]:
        """The ends of its logs behind a transaction that is next in all of them; empty where it is not, or not all there."""
        ends = {}
        for change in transaction.changes:
            uid = change.uid
            if uid not in newest and self._logs.awaits(uid):
                return {}
            if uid not in newest or self._is_read(uid, change.version):
                continue
            end = self._end_of(uid, change.version)
            if end is None:
                continue
            before = self._logs.before(uid, change.version, self._starts[uid], newest[uid])
            if end > newest[uid] or before > self._starts[uid]:
                return {}
            ends[uid] = end
        return ends

    def _first_broken(self, made: list[MadeVersion], uid: str, ends: Positions) -> MadeVersion | None:
        """The first transaction of which the batch has a part in this log, and not all in all logs."""
        for one in made:
            if one.version > ends[uid].version or ends[uid] == self._starts[uid]:
                return None
            if not all(self._has(change.uid, change.version, ends) for change in one.transaction.changes):
                return one
        return None

    def _has(self, uid: str, version: int, ends: Positions) -> bool:
        """Whether the batch, or one before it, has all that a version of a log gives to read."""
        if uid not in ends:
            return not self._logs.awaits(uid)
        if version < ends[uid].version or self._is_read(uid, version):
            return True
        end = self._end_of(uid, version)
        return end is None or end <= ends[uid]

    def _is_read(self, uid: str, version: int) -> bool:
        """Whether the batches before have all that a version gives. A stream may begin before it: at an overwrite."""
        start = self._starts[uid]
        if version != start.version:
            return version < start.version
        end = self._end_of(uid, version)
        return end is None or end <= start

    def _end_of(self, uid: str, version: int) -> StreamPosition | None:
        if (uid, version) not in self._behind:
            self._behind[uid, version] = self._logs.behind(uid, version)
        return self._behind[uid, version]
