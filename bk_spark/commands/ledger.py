"""``bk-spark ledger``."""

from __future__ import annotations

import argparse
import base64
import itertools
import json
from collections.abc import Iterator, Mapping

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.commands.arguments import (
    Commands,
    Handler,
    add_password,
    command,
    count,
    group_of,
    ledger_id,
    password,
    plain_text,
)
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_line, print_pages, print_record, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.program.question import add_yes, check_wanted
from bk_spark.errors import NoSuchEntryError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

BATCH = 1000
"""Ledgers whose metadata is read at once."""


def add(commands: Commands) -> None:
    group = group_of(commands, "ledger", "ledgers")
    listing = command(group, "list", "all ledgers, ascending; printed as they are found", _list)
    listing.add_argument(
        "--first", type=ledger_id, default=0, metavar="ID", help="ledgers from this id on (default %(default)s)"
    )
    listing.add_argument("--limit", type=count, metavar="N", help="at most N ledgers (default: all)")
    _ledger_command(group, "show", "one ledger's metadata", _show)
    text = "one ledger's entries: payloads that are text as text, others in hexadecimal behind 0x; with --json in base64"
    read = _ledger_command(group, "read", text, _read)
    read.add_argument("--first", type=ledger_id, default=0, metavar="N", help="first entry (default %(default)s)")
    read.add_argument("--last", type=ledger_id, metavar="N", help="last entry, inclusive (default: the last that can be read)")
    read.add_argument("--recover", action="store_true", help="recover the ledger first, if it is open")
    text = "fence one ledger, whose writer then confirms nothing more, and close it after its last entry"
    recover = _ledger_command(group, "recover", text, _recover)
    for parser in (read, recover):
        add_password(parser, "the ledger's password")
    delete = _ledger_command(group, "delete", "delete one ledger for good", _delete)
    add_yes(delete)
    delete.add_argument("--force", action="store_true", help="also a ledger that belongs to a log")
    for parser in (read, recover, delete):
        text = "take a ledger that belongs to this application, such as pulsar, from its writer"
        parser.add_argument("--of-application", type=plain_text, default="", metavar="NAME", help=text)


def _ledger_command(group: Commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:
    parser = command(group, name, text, handler)
    parser.add_argument("ledger_id", type=ledger_id, metavar="ID", help="the ledger, as 'bk-spark ledger list' shows it")
    return parser


def _list(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar(beside_output=True) as progress:
        pages = _pages(client, args.first, args.limit, progress)
        print_pages(pages, ["ledger_id", "state", "entries", "length", "ensemble"], as_json=args.json)


def _show(args: argparse.Namespace) -> None:
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


def _read(args: argparse.Namespace) -> None:
    if args.last is not None and args.last < args.first:
        raise UsageError(f"--last {args.last} is before --first {args.first}")
    with bookkeeper(args) as client, _opened(client, args, recover=args.recover) as reader:
        last = reader.last_add_confirmed if args.last is None else args.last
        if args.last is None and last < args.first:
            if args.first > 0:
                raise NoSuchEntryError(args.ledger_id, args.first)
            say(f"ledger {args.ledger_id} has no entries that can be read")
            return
        with ProgressBar(beside_output=True) as progress:
            for batch in reader.read(args.first, last):
                entry_ids = batch.column("entry_id").to_pylist()
                for entry_id, payload in zip(entry_ids, batch.column("payload").to_pylist(), strict=True):
                    print_line(entry_line({}, entry_id, payload, as_json=args.json))
                progress.show("entries", entry_ids[-1] + 1 - args.first, last + 1 - args.first)


def _recover(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        print_record(_summary(_opened(client, args, recover=True).metadata), as_json=args.json)


def _opened(client: BookKeeper, args: argparse.Namespace, *, recover: bool) -> ReadHandle:
    return client.open_ledger(args.ledger_id, password(args), recover=recover, of_application=args.of_application)


def _delete(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        metadata = client.ledger_metadata(args.ledger_id)
        check_wanted(args, "ledger", args.ledger_id)
        client.delete_ledger(args.ledger_id, force=args.force, of_application=args.of_application)
    summary = _summary(metadata)
    shown = {name: summary[name] for name in ("ledger_id", "entries", "length")}
    print_record({**shown, "deleted": True}, as_json=args.json)


def entry_line(place: Mapping[str, object], entry_id: int, payload: bytes, *, as_json: bool) -> str:
    """One entry: a payload that is text as text, any other as 0x and hexadecimal. In JSON ``place`` too, payloads in base64.

    A text that itself begins with 0x is shown as the other ones.
    """
    if as_json:
        return json.dumps({**place, "entry_id": entry_id, "payload": base64.b64encode(payload).decode()})
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = ""
    is_text = text.isprintable() and not text.startswith("0x")
    return f"{entry_id}\t{text if is_text and (text or not payload) else f'0x{payload.hex()}'}"


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
