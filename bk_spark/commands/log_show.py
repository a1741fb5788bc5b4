"""``bk-spark log list`` and ``log show``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.log.stored.snapshot import LogSnapshot
from bk_spark.client.log.stored.values import CommittedLedger, Head, LogVersion, OpenLedger, Retention
from bk_spark.client.log.stream.cursors import Cursor
from bk_spark.client.log.stream.follow import LogFollower
from bk_spark.client.log.stream.order import FAIL
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import print_json, print_record, print_records, readable, say
from bk_spark.errors import ConfigError, NoSuchLogError

Record = Mapping[str, object]


def list_(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        records = []
        for name in client.list_logs():
            try:
                head = client.logs.names.head(name, client.logs.names.uid(name))
            except NoSuchLogError:
                continue  # it was deleted between the two calls
            records.append({"log": name, **_summary(head, args.json)})
        print_records(records, ["log", "content", "version", "ledgers", "open", "rows", "size"], as_json=args.json)


def show(args: argparse.Namespace) -> None:
    """A log's state, then its newest commits, its last ledgers, and the streams that read it."""
    with bookkeeper(args) as client:
        snapshot = client.logs.reader.snapshot(args.name)
        head = client.logs.names.head(args.name, snapshot.uid)
        record = {"log": args.name, "uid": snapshot.uid, **_summary(head, args.json), **_state(head, snapshot, args.json)}
        commits = [_commit(one) for one in _newest(client, head, snapshot, args.limit)]
        ledgers = _ledgers((*snapshot.ledgers, *snapshot.open_ledgers), args.limit)
        follower = LogFollower(client.logs.reader, args.name, snapshot.uid, FAIL, client.existing_ledgers)
        cursors = [_cursor(one, head, follower) for one in client.logs.cursors.all(args.name, snapshot.uid)]
    if args.json:
        print_json({**record, "commits": commits, "in_ledgers": ledgers, "cursors": cursors})
        return
    print_record(record, as_json=False)
    _section("newest commits", commits, ["version", "time", "kind", "rows", "added", "removed", "application"])
    _section("last ledgers", ledgers, ["ledger_id", "state", "entries", "rows", "length"])
    _section("streams that read it", cursors, ["cursor", "lag_rows", "version", "ledger_id", "entry_id", "updated"])
    if head.version - head.oldest_version > len(commits) or len(snapshot.ledgers) > len(ledgers):
        say(f"the last {args.limit} of commits and ledgers are shown: --limit N shows more")


def _section(title: str, records: Sequence[Record], columns: Sequence[str]) -> None:
    if records:
        print(f"\n{title}:")
        print_records(records, columns, as_json=False)


def _newest(client: BookKeeper, head: Head, snapshot: LogSnapshot, limit: int) -> list[LogVersion]:
    first = max(head.oldest_record, 1, snapshot.version - limit + 1)
    return list(client.logs.reader.versions(snapshot.name, snapshot.uid, first, snapshot.version))


def _summary(head: Head, as_json: bool) -> dict[str, object]:
    return {
        "content": None if head.content is None else head.content.value,
        "version": head.version,
        "ledgers": head.total.ledgers,
        "open": len(head.writer.open_ledgers),
        "rows": head.total.rows,
        "size": head.total.length if as_json else readable(head.total.length),
    }


def _state(head: Head, snapshot: LogSnapshot, as_json: bool) -> dict[str, object]:
    schema = None if snapshot.schema_json is None else json.loads(snapshot.schema_json)
    return {
        "committed": time_of(snapshot.time_ms),
        "schema": schema if as_json else _columns(schema),
        "first_row": head.first_row,
        "end_row": head.end_row,
        "oldest_version": head.oldest_version,
        "epoch": head.writer.epoch,
        "open_ledgers": [one.ledger_id for one in head.writer.open_ledgers],
        **_retention(head.retention, as_json),
    }


def _retention(retention: Retention, as_json: bool) -> dict[str, object]:
    if as_json:
        return {
            "version_retention_s": retention.version_retention_s,
            "retention_s": retention.retention_s,
            "retention_bytes": retention.retention_bytes,
        }
    age = "for ever" if retention.retention_s is None else f"{retention.retention_s} s"
    size = "" if retention.retention_bytes is None else f", the last {readable(retention.retention_bytes)} at least"
    return {"keeps": f"old versions {retention.version_retention_s} s, data {age}{size}"}


def _commit(version: LogVersion) -> Record:
    return {
        "version": version.version,
        "time": time_of(version.time_ms),
        "kind": version.kind.value,
        "rows": version.added.rows + sum(one.rows for one in version.closed),
        "added": version.added.ledgers + (version.opened is not None),
        "removed": version.removed.ledgers,
        "application": None if version.application is None else f"{version.application[0]}:{version.application[1]}",
    }


def _ledgers(listed: Sequence[CommittedLedger | OpenLedger], limit: int) -> list[Record]:
    return [_ledger(one) for one in listed[max(len(listed) - limit, 0) :]]


def _ledger(one: CommittedLedger | OpenLedger) -> Record:
    if isinstance(one, OpenLedger):
        return {"ledger_id": one.ledger_id, "state": "open", "entries": None, "rows": None, "length": None}
    return {
        "ledger_id": one.ledger_id,
        "state": "closed",
        "entries": one.last_entry_id + 1,
        "rows": one.rows,
        "length": one.length,
    }


def _cursor(published: Cursor, head: Head, follower: LogFollower) -> Record:
    """Its row number as the log knows it now: the stream published what was known then."""
    try:
        cursor = replace(published, row=follower.row_number(published.position, head))
    except ConfigError:
        cursor = published  # its version's record was vacuumed
    return {
        "cursor": cursor.name,
        "lag_rows": cursor.lag(head),
        "row": cursor.row,
        "version": cursor.position.version,
        "ledger_id": cursor.position.ledger_id,
        "entry_id": cursor.position.entry_id,
        "updated": time_of(cursor.time_ms),
    }


def time_of(time_ms: int) -> str:
    """Milliseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _columns(schema: dict[str, list[dict[str, object]]] | None) -> list[str]:
    return [] if schema is None else [f"{field['name']}: {_type_name(field['type'])}" for field in schema["fields"]]


def _type_name(kind: object) -> str:
    return str(kind.get("type", kind)) if isinstance(kind, dict) else str(kind)
