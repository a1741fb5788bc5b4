"""``bk-spark log read`` and ``log delete``; the other commands of logs are in ``log_show.py`` and ``log_changes.py``."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator

import pyarrow as pa

from bk_spark.client.log.stored.snapshot import LogSnapshot
from bk_spark.client.log.stored.values import Content
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.ledgers import print_entries
from bk_spark.commands.output import print_json, say
from bk_spark.rows.codec import decode_stored


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
        client.logs.deleter.delete(args.name)


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
