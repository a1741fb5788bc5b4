"""``bk-spark auditor|autorecovery|underreplicated``: finding lost copies and making them again."""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.commands.arguments import Commands, Handler, add_log_option, command, group_of, host, positive_number
from bk_spark.commands.connect import bookkeeper, client_config, metadata_store, metadata_uri
from bk_spark.commands.output import ProgressBar, print_pages, print_record
from bk_spark.commands.program.process import StopSignal
from bk_spark.commands.settings import add_fields, given_fields, with_options
from bk_spark.errors import ConfigError, State
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.replication.auditor_znodes import auditor_report, candidates, current_auditor, is_requested, request_audit
from bk_spark.replication.autorecovery import AutoRecoveryPlace, run_autorecovery
from bk_spark.replication.copy_moves import movable_fragments
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.telemetry.logging_setup import set_up_logging

PAGE = 1_000
"""Marks that are printed at a time."""

_POLL_S = 0.1
"""How often ``auditor trigger --wait-s`` looks whether the audit is done."""


def add(commands: Commands) -> None:
    auditor = group_of(commands, "auditor", "the process that finds out which ledgers lack copies")
    text = "take part in the election of the auditor, and audit when elected, until SIGTERM"
    _add_run(auditor, text, partial(_run, with_worker=False))
    command(auditor, "who", "who is the auditor, and who else stands for election", _who)
    text = (
        "have the auditor compare all ledgers with the bookies that are there now, without the grace period of those that are "
        "gone"
    )
    trigger = command(auditor, "trigger", text, _trigger)
    text = "also read and verify every replica of every entry, at the check's rate"
    trigger.add_argument("--replicas", action="store_true", help=text)
    text = "wait until it is done, at most so many seconds, and print what it found"
    trigger.add_argument("--wait-s", type=positive_number, metavar="S", help=text)
    autorecovery = group_of(commands, "autorecovery", "the processes that find lost copies and make them again")
    text = "find lost copies (as auditor, if elected) and make them again, until SIGTERM"
    _add_run(autorecovery, text, partial(_run, with_worker=True))
    text = "in the whole cluster: begin again to mark ledgers of lost bookies, and to copy"
    command(autorecovery, "enable", text, partial(_switch, on=True))
    text = "in the whole cluster, at once: mark and copy nothing until 'enable', as while all bookies are upgraded one by one"
    command(autorecovery, "disable", text, partial(_switch, on=False))
    command(autorecovery, "status", "whether it is enabled, who does what, what waits, which bookies are lost", _status)
    marks = group_of(commands, "underreplicated", "ledgers that lack copies")
    command(marks, "list", "the ledgers that are marked: which bookies' copies are missing, since when, who works on it", _list)
    text = "the ledgers whose copies could be in more racks or zones than they are, with the bookies that are there now"
    command(marks, "racks", text, _racks)


def _add_run(group: Commands, text: str, handler: Handler) -> None:
    parser = command(group, "run", text, handler)
    parser.add_argument("--name", metavar="NAME", help="who this is, in votes, locks and logs (default: host name and process)")
    parser.add_argument(
        "--http-host", type=host, default="127.0.0.1", metavar="HOST", help="where --http-port listens (default %(default)s)"
    )
    add_log_option(parser)
    settings = parser.add_argument_group(
        "settings", "sizes in bytes or such as 64m, times in seconds; the elected auditor's decide for all"
    )
    add_fields(settings, AutoRecoveryConfig, lambda default: f"{default:.12g}")


def _run(args: argparse.Namespace, *, with_worker: bool) -> None:
    """Serve until SIGTERM or SIGINT."""
    set_up_logging(args.log_json)
    until = StopSignal()
    config = with_options(lambda given: AutoRecoveryConfig(**given), given_fields(args, AutoRecoveryConfig))
    name = args.name or f"{socket.gethostname()}:{os.getpid()}"
    place = AutoRecoveryPlace(name=name, http_host=args.http_host, with_worker=with_worker, client=client_config(args))
    if not run_autorecovery(metadata_uri(args), config, place, until):
        raise SystemExit(1)  # the log says why


def _who(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        standing = candidates(store, znodes)
        record = {"auditor": standing[0] if standing else None, "candidates": standing}
        print_record(record, as_json=args.json)


def _trigger(args: argparse.Namespace) -> None:
    """Request an audit; the request stands in the metadata store until an auditor has fulfilled it."""
    with metadata_store(args) as (store, znodes):
        auditor = current_auditor(store, znodes)
        if auditor is None:
            raise ConfigError("the auditor", None, "nobody stands for election: start 'bk-spark autorecovery run' somewhere")
        if not UnderReplication(store, znodes).is_enabled():
            raise ConfigError("AutoRecovery", State("disabled"), "no audit is made until 'bk-spark autorecovery enable'")
        request_audit(store, znodes, reads_replicas=args.replicas)
        report = {}
        if args.wait_s:
            _await_audit(store, znodes, args.wait_s)
            report = auditor_report(store, znodes) or {}
        kind = "last_check" if args.replicas else "last_audit"
        print_record({"auditor": auditor, **report.get(kind, {})}, as_json=args.json)


def _await_audit(store: MetadataStore, znodes: Znodes, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    with ProgressBar() as progress:
        while is_requested(store, znodes):
            if time.monotonic() >= deadline:
                remedy = "it goes on without this command; 'bk-spark autorecovery status' shows what the auditor does"
                raise ConfigError("--wait-s", wait_s, f"the audit takes longer: {remedy}")
            progress.show("audit", 0, 1)
            time.sleep(_POLL_S)


def _switch(args: argparse.Namespace, *, on: bool) -> None:
    with metadata_store(args) as (store, znodes):
        marks = UnderReplication(store, znodes)
        if on:
            marks.enable()
        else:
            marks.disable()
        print_record({"enabled": on}, as_json=args.json)


def _status(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        marks = UnderReplication(store, znodes)
        standing, report, locks = candidates(store, znodes), auditor_report(store, znodes) or {}, marks.locks()
        now_s = time.time()
        left_s = {name: max(0, round(due_ms / 1000 - now_s)) for name, due_ms in report.get("waiting", {}).items()}
        lost_in_s = left_s if args.json else [f"{name} in {left} s" for name, left in left_s.items()]
        record = {
            "enabled": marks.is_enabled(),
            "auditor": standing[0] if standing else None,
            "candidates": standing,
            "marked_ledgers": marks.count(),
            "locked_ledgers": len(locks),
            "workers": sorted(set(locks.values())),
            "lost_bookies": report.get("lost"),
            "lost_in_s": lost_in_s if report else None,
            "ledgers_in_few_racks": report.get("last_audit", {}).get("in_few_racks"),
            "replicas_are_checked": report.get("is_checking"),
        }
        print_record(record, as_json=args.json)


def _list(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        marks = UnderReplication(store, znodes)
        locks = marks.locks()
        records = (_record(mark, locks.get(mark.ledger_id), as_json=args.json) for mark in marks.marks())
        print_pages(_pages(records), ["ledger_id", "missing", "marked", "locked_by"], as_json=args.json)


def _racks(args: argparse.Namespace) -> None:
    """Looks at all ledgers itself, so it needs no auditor."""
    with bookkeeper(args) as client, ProgressBar(beside_output=True) as progress:
        known = client.context.submit(client.context.rack_map()).result()
        racks = {one.bookie_id: one.rack for one in client.list_bookies()}
        ledgers, read = LedgerStore(client.metadata_store, client.znodes), 0

        def pages() -> Iterator[list[dict[str, object]]]:
            nonlocal read
            yield []
            for page in ledger_pages(client.metadata_store, client.znodes):
                found = [one for one in ledgers.readable(page) if isinstance(one, LedgerMetadata)]
                yield [record for one in found for record in _in_few_racks(one, known, racks)]
                read += len(page)
                progress.show("ledgers", read, read)

        print_pages(pages(), ["ledger_id", "first_entry_id", "racks", "bookies"], as_json=args.json)


def _in_few_racks(metadata: LedgerMetadata, known: RackMap, racks: Mapping[str, str]) -> Iterator[dict[str, object]]:
    """A record for each fragment of which a copy would move. ``racks`` are those of its write set that spans fewest."""
    for fragment in movable_fragments(metadata):
        if known.wider_slot(fragment.ensemble, metadata.write_quorum) is not None:
            yield {
                "ledger_id": metadata.ledger_id,
                "first_entry_id": fragment.first_entry_id,
                "racks": known.fewest_racks(fragment.ensemble, metadata.write_quorum),
                "bookies": [f"{bookie_id} {racks[bookie_id]}" for bookie_id in fragment.ensemble],
            }


def _pages(records: Iterator[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    """Records in pages; one empty page if there are none."""
    yield list(itertools.islice(records, PAGE))
    while page := list(itertools.islice(records, PAGE)):
        yield page


def _record(mark: Mark, locked_by: str | None, *, as_json: bool) -> dict[str, object]:
    record = {"ledger_id": mark.ledger_id, "missing": mark.missing, "locked_by": locked_by}
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(mark.marked_ms / 1000))
    return {**record, "marked_ms": mark.marked_ms} if as_json else {**record, "marked": since}
