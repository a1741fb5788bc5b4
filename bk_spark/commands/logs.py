"""``bk-spark log``."""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterator

import pyarrow as pa

from bk_spark.client.log_layout import Content
from bk_spark.client.log_snapshot import LogSnapshot
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.ledgers import print_entries
from bk_spark.commands.output import print_json, print_record, print_records, readable, say
from bk_spark.datasource.row_codec import decode_stored
from bk_spark.errors import NoSuchLogError


def list_(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        records = []
        for name in client.list_logs():
            try:
                snapshot = client.logs.snapshot(name)
            except NoSuchLogError:
                continue  # it was deleted between the two calls
            records.append({"log": name, **_summary(snapshot, args.json)})
        print_records(records, ["log", "content", "version", "ledgers", "rows", "size"], as_json=args.json)


def show(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        snapshot = client.logs.snapshot(args.name)
        versions = client.logs.versions(args.name)
    ledgers = [f"{one.ledger_id} ({one.rows} rows, {one.length} bytes)" for one in snapshot.ledgers]
    commits = [f"{one.version} {one.kind.name.lower()} {one.added.rows} rows" for one in versions]
    record = {
        "log": args.name,
        "uid": snapshot.uid,
        **_summary(snapshot, args.json),
        "schema": json.loads(snapshot.schema_json) if args.json and snapshot.schema_json else _columns(snapshot.schema_json),
        "commits": commits,
        "in_ledgers": ledgers,
    }
    print_record(record, as_json=args.json)


def read(args: argparse.Namespace) -> None:
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
                left -= _print_batches(reader.read(0, ledger.last_entry_id), snapshot, ledger.ledger_id, left, args.json)


def delete(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        client.logs.delete(args.name)


def _print_batches(batches: Iterator[pa.RecordBatch], snapshot: LogSnapshot, ledger_id: int, limit: int, as_json: bool) -> int:
    """Print up to ``limit`` rows or entries; gives back how many."""
    printed = 0
    for batch in batches:
        left = limit - printed
        if snapshot.content is Content.ROWS:
            printed += _print_rows(batch, ledger_id, left)
        else:
            entries = batch.slice(0, left)
            payloads = entries.column("payload").to_pylist()
            print_entries({"ledger_id": ledger_id}, entries.column("entry_id").to_pylist(), payloads, as_json)
            printed += len(payloads)
        if printed >= limit:
            break
    return printed


def _print_rows(batch: pa.RecordBatch, ledger_id: int, limit: int) -> int:
    printed = 0
    for entry_id, payload in zip(batch.column("entry_id"), batch.column("payload"), strict=True):
        rows = (
            decode_stored(payload.as_buffer(), f"entry {entry_id} of ledger {ledger_id}").slice(0, limit - printed).to_pylist()
        )
        for row in rows:
            print_json({name: _plain(value) for name, value in row.items()})
        printed += len(rows)
        if printed >= limit:
            break
    return printed


def _plain(value: object) -> object:
    """Values as JSON has them: bytes as base64, all else that JSON lacks as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _summary(snapshot: LogSnapshot, as_json: bool) -> dict[str, object]:
    size = sum(one.length for one in snapshot.ledgers)
    return {
        "content": None if snapshot.content is None else snapshot.content.name.lower(),
        "version": snapshot.version,
        "ledgers": len(snapshot.ledgers),
        "rows": sum(one.rows for one in snapshot.ledgers),
        "size": size if as_json else readable(size),
    }


def _columns(schema_json: str | None) -> list[str]:
    if schema_json is None:
        return []
    return [f"{f['name']}: {_type_name(f['type'])}" for f in json.loads(schema_json)["fields"]]


def _type_name(kind: object) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type", kind)) if isinstance(kind, dict) else str(kind)
