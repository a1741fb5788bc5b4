"""Versions of a log with keys, as look-ups need them: the ledgers of each lane, from the newest to the oldest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

from bk_spark.errors import ConfigError, NoSuchLogError
from bk_spark.log.rows.read_rows import stored_schema
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.snapshot import LogSnapshot, check_version
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier.opener import LogLedgerOpener

KEPT_VERSIONS = 4
"""The newest, and a few that a program compares it with: each has the list of all ledgers."""


@dataclass(frozen=True, eq=False)
class KeyedVersion:
    """One version."""

    snapshot: LogSnapshot
    schema: pa.Schema
    lanes: Lanes
    ledgers: dict[int, list[CommittedLedger]]
    """Of each lane that has some, the newest first."""
    opener: LogLedgerOpener


class KeyedVersions:
    """The versions of one log that were looked at last. Threads may share it."""

    def __init__(self, opener: LogLedgerOpener) -> None:
        assert opener.uid is not None, "only logs have keys"
        self._opener = opener
        self._uid = opener.uid
        self._kept: OrderedDict[int, KeyedVersion] = OrderedDict()
        self._lock = threading.Lock()
        """Held for moments, around ``_kept``."""

    def at(self, version: int | None) -> KeyedVersion:
        """The log at ``version``, or with every commit that was done before the call.

        Raises NoSuchLogError; ConfigError for a log without keys or rows, and for a version that cannot be read.
        """
        name, logs = self._opener.name, self._opener.logs
        head = logs.names.fresh_head(name, self._uid)
        check_version(name, head, version)
        wanted = head.version if version is None else version
        with self._lock:
            found = self._kept.get(wanted)
        if found is None or found.snapshot.tier != head.tier:
            found = self._made(logs.reader.snapshot(name, wanted))
        with self._lock:
            self._kept[wanted] = found
            self._kept.move_to_end(wanted)
            while len(self._kept) > KEPT_VERSIONS:
                self._kept.popitem(last=False)
        return found

    def _made(self, snapshot: LogSnapshot) -> KeyedVersion:
        if snapshot.uid != self._uid:
            raise NoSuchLogError(snapshot.name)
        schema = stored_schema(snapshot.name, snapshot)
        if not snapshot.lanes.columns:
            remedy = "it has no key: find its rows with read_rows(where=…), or write a log with partition_key"
            raise ConfigError("the log", snapshot.name, remedy)
        ledgers: dict[int, list[CommittedLedger]] = {}
        for ledger in reversed(snapshot.ledgers):
            ledgers.setdefault(ledger.lane, []).append(ledger)
        opener = self._opener.knowing(snapshot.tier, {one.ledger_id for one in snapshot.ledgers})
        return KeyedVersion(snapshot, schema, snapshot.lanes, ledgers, opener)
