"""Where a stream starts, before it has a checkpoint."""

from __future__ import annotations

from bk_spark.client.log.stored.values import Head
from bk_spark.client.log.stream.follow import LedgerEnd, LogFollower
from bk_spark.client.log.stream.positions import StreamPosition, parse_position
from bk_spark.datasource.connection import connect
from bk_spark.datasource.option_values import EARLIEST, LATEST
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.datasource.read.read_task import opened
from bk_spark.errors import ConfigError


def follow(options: SourceOptions, name: str, uid: str) -> FollowedLog:
    """The log as a stream with these options follows it."""
    bookkeeper = connect(options.metadata, options.client)
    describe = bookkeeper.existing_ledgers
    follower = LogFollower(bookkeeper.logs.reader, name, uid, options.overwrites, describe)
    return FollowedLog(name, uid, bookkeeper.logs, follower, lambda ledger_id: opened(bookkeeper, options, ledger_id), describe)


def initial_position(log: FollowedLog, options: SourceOptions) -> StreamPosition:
    """Options ``startingTimestamp`` and ``startingOffsets``; by default behind everything that is confirmed now.

    Raises ConfigError for an offset that is not one of this log, or that it does not keep any more.
    """
    return log.planned(log.logs.names.fresh_head(log.name, log.uid), lambda head: _initial(log, options, head))


def _initial(log: FollowedLog, options: SourceOptions, head: Head) -> StreamPosition:
    if options.starting_timestamp is not None:
        return log.follower.at_time(head, options.starting_timestamp)
    if options.starting_offsets in (None, LATEST):
        return log.follower.latest(head, open_ends(log, head))
    if options.starting_offsets == EARLIEST:
        return log.follower.earliest(head)
    return _given(log, str(options.starting_offsets), head)


def open_ends(log: FollowedLog, head: Head) -> dict[int, LedgerEnd]:
    """How far each open ledger is confirmed, by a quorum of its bookies."""
    return {one.ledger_id: LedgerEnd.of(log.open_ledger(one.ledger_id)) for one in head.writer.open_ledgers}


def _given(log: FollowedLog, text: str, head: Head) -> StreamPosition:
    what = "option 'startingOffsets'"
    position = parse_position(text, log.name, log.uid, what)
    if not head.oldest_version <= position.version <= head.version:
        problem = f"log '{log.name}' can be read from version {head.oldest_version} to {head.version}"
        raise ConfigError(what, text, problem)
    log.follower.row_number(position, head)  # raises where nothing stands there
    return position
