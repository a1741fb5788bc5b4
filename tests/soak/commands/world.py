"""One cluster and what the net made on it: logs and ledgers whose names begin with its prefix, files in its folder."""

from __future__ import annotations

import csv
import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import MetadataConflictError, NoSuchLedgerError, NoSuchLogError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log
from bk_spark.log.stored.schema import type_name
from bk_spark.log.stored.values import CommittedLedger, Content
from bk_spark.metadata.under_replication import UnderReplication
from tests.soak.commands.model import LogState, State


class World:
    """What there is on a cluster. ``is_shared``: others use the cluster, too, so nothing is done to it as a whole."""

    def __init__(self, cluster: LocalCluster, client: BookKeeper, folder: Path, prefix: str, *, is_shared: bool) -> None:
        self.cluster = cluster
        self.client = client
        self.folder = folder
        self.prefix = prefix
        self.is_shared = is_shared
        self.ids: dict[str, list[int]] = {}
        """By log: its ledgers, as they were seen last."""
        self.unfinished: list[str] = []
        """Logs whose deletion was cut off, and that are there still."""
        self.half_deleted: set[str] = set()
        """Names of logs whose deletion may have been cut off once the name was free: to delete them again finishes it."""
        self._own_ledgers: list[int] = []
        self._marks = UnderReplication(client.logs.store, client.logs.znodes)
        self._seen: dict[str, tuple[object, LogState]] = {}

    def make_ledger(self, entries: int, *, is_closed: bool) -> None:
        writer = self.client.create_ledger()
        self._own_ledgers.append(writer.ledger_id)
        writer.append_batch([b"entry %d" % number for number in range(entries)])
        if is_closed:
            writer.close()

    def make_entries_log(self, name: str) -> None:
        """One of entries, whose leader is gone without closing its ledger."""
        log = self.client.open_log(name, create=True)
        writer = log.open_writer()
        writer.append_batch([b"one", b"two"])
        writer.roll()
        writer.append(b"three")
        deadline_s, tick = time.monotonic() + 30, threading.Event()
        while sum(batch.num_rows for batch in log.read()) < 3 and time.monotonic() < deadline_s:
            tick.wait(0.05)  # a reader hears a moment later than the writer that an entry is confirmed

    def observe(self) -> State:
        logs = {}
        self.unfinished = []
        for name in self.client.list_logs():
            if name.startswith(self.prefix):
                try:
                    logs[name] = self._log(self.client.open_log(name))
                except MetadataConflictError:
                    self.unfinished.append(name)
                except NoSuchLogError:
                    pass
        enabled = True if self.is_shared else self._marks.is_enabled()
        return State(logs, {one: it for one in self._own_ledgers if (it := self._ledger(one)) is not None}, enabled)

    def _log(self, log: Log) -> LogState:
        snapshot = log.snapshot()
        self.ids[log.name] = [one.ledger_id for one in (*snapshot.ledgers, *snapshot.open_ledgers)]
        retention = log.retention
        kept = (retention.version_retention_s, retention.retention_s, retention.retention_bytes)
        mark = (log.uid, snapshot.version, kept)
        known = self._seen.get(log.name)
        if known is None or known[0] != mark:
            self._seen[log.name] = mark, self._read(log, snapshot, kept)
        return self._seen[log.name][1]

    def _read(self, log: Log, snapshot: Any, kept: tuple[Any, ...]) -> LogState:
        if snapshot.content is None:
            return LogState(snapshot.version, retention=kept)
        if snapshot.content is Content.ENTRIES:
            payloads: dict[int, list[bytes]] = {one: [] for one in self.ids[log.name]}
            for batch in log.read():
                for ledger_id, payload in zip(batch["ledger_id"].to_pylist(), batch["payload"].to_pylist(), strict=True):
                    payloads[ledger_id].append(payload)
            ledgers = tuple(tuple(one) for one in payloads.values())
            return LogState(snapshot.version, (), ledgers, True, len(snapshot.open_ledgers), kept)
        fields = self.client.logs.reader.schema(log.name, log.uid, snapshot.schema_id)["fields"]
        columns = tuple((field["name"], type_name(field["type"])) for field in fields)
        rows = [tuple(row.items()) for row in log.read_rows(version=snapshot.version).read_all().to_pylist()]
        split = []
        for ledger in snapshot.ledgers:
            assert isinstance(ledger, CommittedLedger)
            split.append(tuple(rows[: ledger.rows]))
            rows = rows[ledger.rows :]
        return LogState(snapshot.version, columns, tuple(split), False, 0, kept)

    def _ledger(self, ledger_id: int) -> tuple[str, int] | None:
        try:
            metadata = self.client.ledger_metadata(ledger_id)
        except NoSuchLedgerError:
            return None
        return ("closed", metadata.last_entry_id or 0) if metadata.is_closed else ("open", -1)


def rows_of_file(path: Path, form: str) -> list[tuple[str, ...]]:
    """What ``log read --output`` wrote, with all values as texts."""
    if form == "parquet":
        rows = parquet.read_table(path).to_pylist()
    elif form == "arrow":
        rows = pa.ipc.open_file(path).read_all().to_pylist()
    elif form == "json":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="," if form == "csv" else "\t"))
    return [tuple(as_text(value) for value in row.values()) for row in rows]


def as_text(value: Any) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)
