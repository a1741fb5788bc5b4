"""``bk-spark ledger``."""

from __future__ import annotations

import argparse
import base64
import itertools
from collections.abc import Iterator, Mapping

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_json, print_pages, print_record, say
from bk_spark.errors import NoSuchEntryError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

BATCH = 1000
"""Ledgers whose metadata is asked for at once."""


def list_(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar(beside_output=True) as progress:
        pages = _pages(client, args.first, args.limit, progress)
        print_pages(pages, ["ledger_id", "state", "entries", "length", "ensemble"], as_json=args.json)


def show(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        metadata = client.ledger_metadata(args.ledger_id)
        record = {
            **_summary(metadata),
            "quorums": f"E={metadata.ensemble_size} Qw={metadata.write_quorum} Qa={metadata.ack_quorum}",
            "digest_type": metadata.digest_type.name,
            "created_ms": metadata.created_ms,
            "custom": {key: value.decode(errors="replace") for key, value in metadata.custom_metadata},
            "fragments": [f"{f.first_entry_id}: {' '.join(f.ensemble)}" for f in metadata.fragments],
        }
        print_record(record, as_json=args.json)


def read(args: argparse.Namespace) -> None:
    password = args.password.encode()
    with bookkeeper(args) as client, client.open_ledger(args.ledger_id, password, recover=args.recover) as reader:
        last = reader.last_add_confirmed if args.last is None else args.last
        if last < args.first:
            if args.last is not None or args.first > 0:
                raise NoSuchEntryError(args.ledger_id, args.first)
            say(f"ledger {args.ledger_id} has no entries that can be read")
            return
        with ProgressBar(beside_output=True) as progress:
            for batch in reader.read(args.first, last):
                entry_ids = batch.column("entry_id").to_pylist()
                print_entries({}, entry_ids, batch.column("payload").to_pylist(), args.json)
                progress.show("entries", entry_ids[-1] + 1 - args.first, last + 1 - args.first)


def recover(args: argparse.Namespace) -> None:
    """Fence and close what a vanished writer left open."""
    with bookkeeper(args) as client:
        reader = client.open_ledger(args.ledger_id, args.password.encode(), recover=True)
        print_record(_summary(reader.metadata), as_json=args.json)


def delete(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        client.delete_ledger(args.ledger_id, force=args.force)


def print_entries(place: Mapping[str, object], entry_ids: list[int], payloads: list[bytes], as_json: bool) -> None:
    """Print entries: as text where a payload is text, else as its bytes in hexadecimal; in JSON always as base64."""
    for entry_id, payload in zip(entry_ids, payloads, strict=True):
        if as_json:
            print_json({**place, "entry_id": entry_id, "payload": base64.b64encode(payload).decode()})
        else:
            print(f"{entry_id}\t{_readable(payload)}")


def _pages(client: BookKeeper, first: int, limit: int | None, progress: ProgressBar) -> Iterator[list[dict[str, object]]]:
    ids, done = itertools.islice(client.list_ledgers(first), limit), 0
    while batch := list(itertools.islice(ids, BATCH)):
        done += len(batch)
        progress.count("ledgers", done)
        yield [_summary(metadata) for metadata in client.existing_ledgers(batch)]


def _summary(metadata: LedgerMetadata) -> dict[str, object]:
    last = metadata.last_entry_id
    return {
        "ledger_id": metadata.ledger_id,
        "state": metadata.state.name,
        "entries": None if last is None else last + 1,
        "length": metadata.length if metadata.is_closed else None,
        "ensemble": list(metadata.last_fragment.ensemble),
    }


def _readable(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload.hex()
    return text if text.isprintable() else payload.hex()
