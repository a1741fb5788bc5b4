"""``bk-spark bookie``: one bookie's files and process, and what an operator asks of a running bookie.

``bookie format`` and ``start`` are in ``bookie_start.py``, ``list`` is in ``listing.py``, ``decommission`` and
``balance`` in ``../replicate.py``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot import possible_losses
from bk_spark.bookie.identity.cookie import bookie_id_of, locked
from bk_spark.bookie.identity.identity import Identity, examine, examine_alone
from bk_spark.bookie.inspection.rebuild_index import rebuild_index
from bk_spark.bookie.inspection.sanity import check_directories, check_storage
from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands import replicate
from bk_spark.commands.arguments import Commands, command, group_of, valid_bookie_id
from bk_spark.commands.bookies import bookie_start, limbo, listing
from bk_spark.commands.connect import accepted, bookkeeper, metadata_store
from bk_spark.commands.output import ProgressBar, print_record, print_records, say
from bk_spark.commands.settings import add_settings, bookie_config, bookie_directories, data_dir_command
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.errors import ConfigError, State
from bk_spark.wire.messages import AdministerReply, AdminOperation

LOOK_S = 0.5
"""Between two looks at a run that is waited for."""

BEGIN_S = 60.0
"""A run that is neither under way nor ended after this long never began: it begins within a second."""


def add(commands: Commands) -> None:
    group = bookie_start.add(commands)
    listing.add_list(group)
    data_dir_command(group, "id", "print the id of the bookie whose directory this is", _show_id)
    text = (
        "check the directories, cookies, index and logs of a stopped bookie, with --metadata also the store's side; "
        "changes nothing"
    )
    sanity = data_dir_command(group, "sanity", text, _sanity)
    text = (
        "make the index of a stopped bookie anew from its logs; it then starts in limbo and repairs itself from the other "
        "replicas"
    )
    rebuild = data_dir_command(group, "rebuild-index", text, _rebuild_index)
    for parser in (sanity, rebuild):
        add_settings(parser)
    replicate.add_decommission(group)
    replicate.add_balance(group)
    _add_requests(group)


def _add_requests(group: Commands) -> None:
    collection = group_of(group, "gc", "garbage collection of a running bookie")
    text = "collect and compact nothing until it is resumed or the bookie starts again"
    _add_request(collection, "run", "collect and compact now", AdminOperation.GC_RUN)
    _add_request(collection, "suspend", text, AdminOperation.GC_SUSPEND)
    _add_request(collection, "resume", "collect and compact again", AdminOperation.GC_RESUME)
    text = "what was collected, compacted and returned to the disk"
    _add_request(collection, "status", text, AdminOperation.GC_STATUS)
    read_only = group_of(group, "read-only", "whether a running bookie takes new entries")
    text = "take no new entries, as with full disks, until it is switched off or starts again; reads and recoveries go on"
    _add_request(read_only, "on", text, AdminOperation.READ_ONLY_ON)
    _add_request(read_only, "off", "take new entries again, if the disks have space", AdminOperation.READ_ONLY_OFF)
    text = "have a running bookie read and verify everything it keeps, from now on"
    _add_request(group, "scrub", text, AdminOperation.SCRUB)
    text = "whether a running bookie takes adds, and if not, why"
    _add_request(group, "status", text, AdminOperation.BOOKIE_STATUS)
    limbo.add(group)


def _add_request(group: Commands, name: str, text: str, operation: AdminOperation) -> None:
    parser = command(group, name, text, partial(_request, operation))
    parser.add_argument("bookie_id", type=valid_bookie_id, metavar="BOOKIE_ID", help="as 'bk-spark bookie list' shows it")
    if operation in _WAITED:
        parser.add_argument("--wait", action="store_true", help="wait for its end, and then print what it did")


def _show_id(args: argparse.Namespace) -> None:
    with metadata_store(args, directories=Directories.of(Path(args.data_dir), BookieConfig())) as (store, znodes):
        print_record({"bookie_id": bookie_id_of(Path(args.data_dir), store, znodes)}, as_json=args.json)


def _sanity(args: argparse.Namespace) -> None:
    """Check a stopped bookie. Raises ConfigError after printing the findings if something is wrong."""
    config = bookie_config(args)
    directories = Directories.of(Path(args.data_dir), config)
    with locked(directories.roots, REAL_DISK), ProgressBar() as progress:
        identity = _examine(args, directories, config.client_config())
        findings = [*check_directories(identity), *check_storage(directories, identity.bookie_id, config, progress.count)]
        wrong = sum(bool(finding.problem) for finding in findings)
        losses = () if wrong else possible_losses(identity, REAL_DISK)
    records = [{"check": f.check, "place": f.place, "state": f.problem or f.note or "right"} for f in findings]
    if not wrong:
        start = f"in limbo: {'; '.join(losses)}" if losses else "serves everything at once"
        records.append({"check": "next start", "place": identity.bookie_id, "state": start})
    print_records(records, ["check", "place", "state"], as_json=args.json)
    if wrong:
        state = State(f"not sound by {wrong} of {len(findings)} checks")
        raise ConfigError(f"bookie {identity.bookie_id}", state, "each says above what is wrong")


def _examine(args: argparse.Namespace, directories: Directories, client: ClientConfig) -> Identity:
    if not args.metadata:
        return examine_alone(directories, REAL_DISK)
    with metadata_store(args, client, directories) as (store, znodes):
        return examine(directories, store, znodes, REAL_DISK)


def _rebuild_index(args: argparse.Namespace) -> None:
    """Rebuild the index of a stopped bookie. Print the damage that was skipped, then the totals.

    Needs all of the bookie's directories: the next start deletes every copy that the new index does not know of.
    """
    directories = bookie_directories(args)
    with locked(directories.roots, REAL_DISK):
        identity = examine_alone(directories, REAL_DISK)
        for mismatch in identity.mismatches:
            raise mismatch.error
        with ProgressBar() as progress:
            report = rebuild_index(directories, identity.bookie_id, REAL_DISK, progress.show)
    skipped = [
        {"skipped": str(damage.path), "offset": damage.offset, "end": damage.end, "problem": damage.problem}
        for damage in report.damages
    ]
    if skipped:
        print_records(skipped, ["skipped", "offset", "end", "problem"], as_json=args.json)
    totals = {"files": report.files, "rows": report.batches, "journal_records": report.journal_records}
    print_record({**totals, "skipped_places": len(skipped)}, as_json=args.json)
    say("the next start is in limbo until what may be missing was read from the other replicas")


_WAITED = {
    AdminOperation.GC_RUN: (AdminOperation.GC_STATUS, ""),
    AdminOperation.SCRUB: (AdminOperation.BOOKIE_STATUS, "scrub_"),
}
"""A request that begins a run, which ``--wait`` waits for → the request that reports on it, the prefix of its figures there."""


def _request(operation: AdminOperation, args: argparse.Namespace) -> None:
    """Ask the bookie ``args.bookie_id`` for ``operation`` and print its answer."""
    with bookkeeper(args) as client, ProgressBar() as bar:
        reply = _ask(client, args.bookie_id, operation)
        if operation in _WAITED and args.wait:
            reply = _await_end(client, args.bookie_id, _WAITED[operation], reply.figures, bar)
    figures = dict(sorted(reply.figures.items()))  # a bookie sends them in any order
    print_record({"bookie_id": args.bookie_id, "detail": reply.detail or None, **figures}, as_json=args.json)


def _ask(client: BookKeeper, bookie_id: str, operation: AdminOperation) -> AdministerReply:
    return accepted(bookie_id, client.administer_bookie(bookie_id, operation))


def _await_end(
    client: BookKeeper, bookie_id: str, waited: tuple[AdminOperation, str], before: Mapping[str, int], bar: ProgressBar
) -> AdministerReply:
    """The bookie's figures after the requested run. A run that was under way at the request ends before that one begins."""
    report, prefix = waited
    bookie = f"the garbage collection of bookie {bookie_id}"
    last_run = before["runs"] + 1 + before["is_running"]
    idle_since_s = time.monotonic()
    while True:
        reply = _ask(client, bookie_id, report)
        figures = {name.removeprefix(prefix): value for name, value in reply.figures.items()}
        if figures.get("runs", 0) >= last_run:  # a bookie that was started again has no figures yet
            return reply
        if figures.get("is_running"):
            idle_since_s = time.monotonic()
        elif figures.get("is_suspended"):
            raise ConfigError(bookie, State("suspended"), f"run 'bk-spark bookie gc resume {bookie_id}' first")
        elif time.monotonic() - idle_since_s > BEGIN_S:
            raise ConfigError(f"the run of {bookie}", State("not done"), "the bookie's log says why")
        if "logs_compacted" in figures:
            bar.count("entry logs compacted", figures["logs_compacted"])
        else:
            bar.count("batches", figures.get("rows_checked", 0))
        time.sleep(LOOK_S)
