"""``bk-spark log``: what is in a log, and its deletion. The commands that change a log are in ``log_changes.py``."""

from __future__ import annotations

import argparse
import base64
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pyarrow as pa

from bk_spark.client.log.stored.snapshot import LogSnapshot
from bk_spark.client.log.stored.values import CommittedLedger, Content, Head, LogVersion, OpenLedger, Retention
from bk_spark.client.log.stream.cursors import Cursor
from bk_spark.client.log.stream.follow import LogFollower
from bk_spark.client.log.stream.order import FAIL
from bk_spark.commands import log_changes
from bk_spark.commands.arguments import Commands, command, count, group_of
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.ledger import entry_line
from bk_spark.commands.log_changes import add_password, log_command
from bk_spark.commands.output import Record, print_json, print_record, print_records, readable, say
from bk_spark.errors import ConfigError, NoSuchLogError
from bk_spark.rows.codec import decode_stored, without_text
from bk_spark.rows.parts import whole_payloads


def add(commands: Commands) -> None:
    group = group_of(commands, "log", "logs: named, ordered lists of ledgers")
    command(group, "list", "all logs", _list)
    show = log_command(group, "show", "one log's state, commits, ledgers, and the streams that read it", _show)
    text = "at most N commits and N ledgers, the last ones (default %(default)s)"
    show.add_argument("--limit", type=count, default=20, metavar="N", help=text)
    read = log_command(group, "read", "one log's rows or entries", _read)
    read.add_argument("--limit", type=int, default=100, metavar="N", help="at most N rows (default %(default)s)")
    add_password(read)
    log_command(group, "delete", "delete one log and all its ledgers for good", _delete)
    log_changes.add(group)
    log_changes.add_orphans(commands)


def _list(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        records = []
        for name in client.list_logs():
            try:
                head = client.logs.names.head(name, client.logs.names.uid(name))
            except NoSuchLogError:
                continue  # it was deleted between the two calls
            records.append({"log": name, **_summary(head, args.json)})
        print_records(records, ["log", "content", "version", "ledgers", "open", "rows", "size"], as_json=args.json)


def _show(args: argparse.Namespace) -> None:
    """A log's state, then its newest commits, its last ledgers, and the streams that read it."""
    with bookkeeper(args) as client:
        snapshot = client.logs.reader.snapshot(args.name)
        head = client.logs.names.head(args.name, snapshot.uid)
        record = {"log": args.name, "uid": snapshot.uid, **_summary(head, args.json), **_state(head, snapshot, args.json)}
        first = max(head.oldest_record, 1, snapshot.version - args.limit + 1)
        versions = client.logs.reader.versions(args.name, snapshot.uid, first, snapshot.version)
        commits = [_commit(version) for version in versions]
        listed: list[CommittedLedger | OpenLedger] = [*snapshot.ledgers, *snapshot.open_ledgers]
        ledgers = [_ledger(ledger) for ledger in listed[max(len(listed) - args.limit, 0) :]]
        follower = LogFollower(client.logs.reader, args.name, snapshot.uid, FAIL, client.existing_ledgers)
        cursors = [_cursor(cursor, head, follower) for cursor in client.logs.cursors.all(args.name, snapshot.uid)]
    if args.json:
        print_json({**record, "commits": commits, "in_ledgers": ledgers, "cursors": cursors})
        return
    print_record(record, as_json=False)
    _section("newest commits", commits, ["version", "time", "kind", "rows", "added", "removed", "application"])
    _section("last ledgers", ledgers, ["ledger_id", "state", "entries", "rows", "length"])
    _section("streams that read it", cursors, ["cursor", "lag_rows", "version", "ledger_id", "entry_id", "updated"])
    if head.version - head.oldest_version > len(commits) or len(snapshot.ledgers) > len(ledgers):
        say(f"the last {args.limit} of commits and ledgers are shown: --limit N shows more")


def _read(args: argparse.Namespace) -> None:
    """Print the first rows (JSON lines) or entries."""
    with bookkeeper(args) as client:
        log = client.open_log(args.name, password=args.password.encode())
        snapshot = log.snapshot()
        left = args.limit
        for ledger in snapshot.ledgers:
            if left <= 0:
                say(f"only the first {args.limit} are shown: --limit N shows more")
                return
            reader = client.open_ledger(ledger.ledger_id, args.password.encode(), recover=False)
            if ledger.last_entry_id >= 0:
                place = (0, ledger.last_entry_id)
                is_rows = snapshot.content is Content.ROWS
                batches = whole_payloads(reader.read, ledger.ledger_id, *place) if is_rows else reader.read(*place)
                lines = _lines(batches, snapshot.content, ledger.ledger_id, left, args.json)
                for line in itertools.islice(lines, left):
                    print(line)
                    left -= 1


def _delete(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        client.logs.deleter.delete(args.name)


def _section(title: str, records: Sequence[Record], columns: Sequence[str]) -> None:
    if records:
        print(f"\n{title}:")
        print_records(records, columns, as_json=False)


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
        "committed": _time(snapshot.time_ms),
        "schema": schema if as_json else _columns(schema),
        "first_row": head.first_row,
        "end_row": head.end_row,
        "oldest_version": head.oldest_version,
        "epoch": head.writer.epoch,
        "open_ledgers": [ledger.ledger_id for ledger in head.writer.open_ledgers],
        **(asdict(head.retention) if as_json else {"keeps": _retention(head.retention)}),
    }


def _retention(retention: Retention) -> str:
    age = "for ever" if retention.retention_s is None else f"{retention.retention_s} s"
    size = "" if retention.retention_bytes is None else f", the last {readable(retention.retention_bytes)} at least"
    return f"old versions {retention.version_retention_s} s, data {age}{size}"


def _commit(version: LogVersion) -> Record:
    return {
        "version": version.version,
        "time": _time(version.time_ms),
        "kind": version.kind.value,
        "rows": version.added.rows + sum(ledger.rows for ledger in version.closed),
        "added": version.added.ledgers + (version.opened is not None),
        "removed": version.removed.ledgers,
        "application": None if version.application is None else f"{version.application[0]}:{version.application[1]}",
    }


def _ledger(ledger: CommittedLedger | OpenLedger) -> Record:
    if isinstance(ledger, OpenLedger):
        return {"ledger_id": ledger.ledger_id, "state": "open", "entries": None, "rows": None, "length": None}
    return {
        "ledger_id": ledger.ledger_id,
        "state": "closed",
        "entries": ledger.last_entry_id + 1,
        "rows": ledger.rows,
        "length": ledger.length,
    }


def _cursor(published: Cursor, head: Head, follower: LogFollower) -> Record:
    """The cursor, with the row number that its position has now: the stream published the one that it knew then."""
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
        "updated": _time(cursor.time_ms),
    }


def _time(time_ms: int) -> str:
    """Milliseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _columns(schema: dict[str, list[dict[str, object]]] | None) -> list[str]:
    columns = [] if schema is None else [(field["name"], field["type"]) for field in schema["fields"]]
    return [f"{name}: {kind.get('type', kind) if isinstance(kind, dict) else kind}" for name, kind in columns]


def _lines(
    batches: Iterable[pa.RecordBatch], content: Content | None, ledger_id: int, limit: int, as_json: bool
) -> Iterator[str]:
    """Entries, or rows as JSON lines. Of each entry's rows the first ``limit`` at most."""
    for batch in batches:
        for entry_id, payload in zip(batch.column("entry_id").to_pylist(), batch.column("payload"), strict=True):
            if content is not Content.ROWS:
                yield entry_line({"ledger_id": ledger_id}, entry_id, payload.as_py(), as_json=as_json)
                continue
            rows = decode_stored(payload.as_buffer(), f"entry {entry_id} of ledger {ledger_id}")
            for row in _listed(rows.slice(0, limit)):
                yield json.dumps({name: _plain(value) for name, value in row.items()}, default=str)


def _listed(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """Text is given as bytes if some of the rows' text is no UTF-8."""
    try:
        return list(rows.to_pylist())
    except UnicodeDecodeError:
        plain = [column.cast(without_text(column.type)) for column in rows.columns]
        return list(pa.record_batch(plain, rows.schema.names).to_pylist())


def _plain(value: object) -> object:
    """A value that JSON can hold: bytes as base64; what else JSON lacks becomes text later."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
