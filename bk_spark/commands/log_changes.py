"""``bk-spark log recover|truncate|compact|vacuum|set`` and ``bk-spark orphans``: what an operator changes of logs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands import log_compaction
from bk_spark.commands.arguments import (
    Commands,
    Handler,
    command,
    count,
    group_of,
    key_value,
    log_name,
    log_position,
    or_none,
    size_bytes,
)
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_record, print_records, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.errors import ConfigError
from bk_spark.log.cleanup.orphans import OLDER_THAN_S, Orphan
from bk_spark.log.direct_readers import change_direct_readers, direct_readers
from bk_spark.log.log_handle import Log, LogPosition
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import LogVersion

RETENTION = {
    "version_retention_s": (count, "old versions, and ledgers that only they list, stay N seconds (at first 604800, 7 days)"),
    "retention_s": (or_none(count), "rows older than N seconds are truncated, by whole ledgers; none: they stay (at first)"),
    "retention_bytes": (
        or_none(size_bytes),
        "the oldest ledgers are truncated while N bytes of payload stay without them; none: no limit (at first)",
    ),
}
"""Fields of Retention that ``log set`` changes → the type and the help of their options."""

TIER: dict[str, tuple[Callable[[str], object], str, str]] = {
    "location": (
        str,
        "URL",
        "give the log a tier: where its table's files lie, such as s3://bucket/orders or file:///data/orders",
    ),
    "table": (str, "NAME", "the table's namespace and name, such as shop.orders"),
    "catalog": (key_value, "KEY=VALUE", "a property of the table's catalog, as pyiceberg has it; may be given several times"),
    "partition": (str, "HOW", "a partition of the table, such as days(at) or bucket(16, customer); may be given several times"),
    "tier_after_s": (count, "N", "tier serve tiers rows N seconds after their commit (at first 900)"),
    "tier_after_bytes": (
        or_none(size_bytes),
        "N",
        "or once N bytes of payload wait; none: however many (at first)",
    ),
    "keep_on_bookies_s": (count, "N", "ledgers stay on bookies N seconds after they were tiered (at first 86400)"),
    "keep_on_bookies_bytes": (
        or_none(size_bytes),
        "N",
        "or shorter: the oldest leave while more than N bytes of tiered ledgers stay; none: no limit (at first)",
    ),
}
"""Fields of Tier that ``log set`` changes → the type, the name of the value, and the help of their options."""


def log_command(group: Commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:
    parser = command(group, name, text, handler)
    parser.add_argument("name", type=log_name, metavar="NAME", help="the log")
    return parser


def add(group: Commands) -> None:
    text = (
        "fence and close the ledgers that a writer (log.open_writer) left open, so that readers see all that it confirmed; "
        "a writer that is still there confirms nothing more"
    )
    log_command(group, "recover", text, _recover)
    text = "remove the oldest ledgers of one log; they stay readable by version (versionAsOf) until a vacuum deletes them"
    truncate = log_command(group, "truncate", text, _truncate)
    text = "what is wholly before this place goes, by whole ledgers; the last ledger always stays"
    truncate.add_argument("--before", type=log_position, required=True, metavar="LEDGER[:ENTRY]", help=text)
    text = (
        "give the ledgers that are written from now on keys, so that bookies let nobody read them who is no member of the "
        "cluster; it cannot be taken back, and ledgers that are there already stay as they are"
    )
    log_command(group, "secure", text, _secure)
    text = "identities of ZooKeeper that read a secured log and are no members of the cluster; without options, list them"
    readers = log_command(group, "readers", text, _readers)
    text = "let it read: x509:SUBJECT, sasl:USER or digest:USER:HASH, as ZooKeeper writes it; may come again (default: nobody)"
    readers.add_argument("--add", action="append", default=[], metavar="IDENTITY", help=text)
    text = "let it read no longer, and close the open ledger of a continuous writer; it may have kept keys (default: nobody)"
    readers.add_argument("--remove", action="append", default=[], metavar="IDENTITY", help=text)
    log_compaction.add(group)
    text = (
        "give back space: truncate what the log's retention lets go, delete ledgers that no version lists which is still kept. "
        "The bookies' disks follow with their next garbage collection (bk-spark bookie gc run)"
    )
    vacuum = command(group, "vacuum", text, _vacuum)
    vacuum.add_argument("name", type=log_name, metavar="NAME", nargs="?", help="the log")
    vacuum.add_argument("--all", action="store_true", help="every log")
    text = "what a vacuum keeps of one log, and where its tier lies; what is not given stays as it is"
    set_ = log_command(group, "set", text, _set)
    for name, (kind, text) in RETENTION.items():
        set_.add_argument(_option(name), type=kind, default=argparse.SUPPRESS, metavar="N", help=text)
    for name, (parse, metavar, text) in TIER.items():
        option, dest = _tier_option(name), f"tier:{name}"
        action = "append" if name in ("catalog", "partition") else "store"
        set_.add_argument(option, dest=dest, action=action, type=parse, default=argparse.SUPPRESS, metavar=metavar, help=text)
    log_compaction.add_settings(set_)


def add_orphans(commands: Commands) -> None:
    group = group_of(commands, "orphans", "what writes that failed or were killed have left behind; no reader ever saw it")
    for name, text, handler in (
        ("list", "what a sweep would remove; changes nothing", _list_orphans),
        ("sweep", "remove it; writes that are running are told by their signs of life and stay", _sweep_orphans),
    ):
        parser = command(group, name, text, handler)
        text = "only what nobody has touched for N seconds (default %(default)s, a day); below 3600 stop all writers first"
        parser.add_argument("--older-than-s", type=count, default=OLDER_THAN_S, metavar="N", help=text)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _tier_option(name: str) -> str:
    return _option(name if name.startswith("tier") else f"tier_{name}")


def _recover(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        version = client.open_log(args.name).recover()
    if version is None:
        say(f"there is nothing to do: no ledger of log '{args.name}' is open")
    closed = () if version is None else version.closed
    record = {
        "log": args.name,
        "closed_ledgers": [ledger.ledger_id for ledger in closed],
        "rows": sum(ledger.rows for ledger in closed),
    }
    print_record(record, as_json=args.json)


def _secure(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        found = client.open_log(args.name).secure()
    if found.was_secured:
        say(f"log '{args.name}' was secured before")
    if found.ledgers_without_key:
        say(
            f"{found.ledgers_without_key} of its {found.ledgers} ledgers were written before, and have no key: everybody reads "
            f"them whom bookies let in. 'bk-spark log compact {args.name}' writes them anew, and a vacuum deletes them later"
        )
    print_record(asdict(found), as_json=args.json)


def _readers(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        if args.add or args.remove:
            found = change_direct_readers(client.metadata_store, client.logs, args.name, args.add, args.remove)
            if args.remove:  # the key of a leader's open ledger may be known to whoever read the log
                client.open_log(args.name).recover()
        else:
            found = direct_readers(client.logs, args.name)
    print_record(asdict(found), as_json=args.json)
    if args.remove:
        say(
            f"whoever read log '{args.name}' may have kept keys of ledgers that were there, and reads these from bookies until "
            "they are deleted; later ledgers have other keys. A continuous writer is displaced: its program opens a new one"
        )


def _truncate(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        log = client.open_log(args.name)
        before = log.snapshot().version
        version = _truncated(log, args.before)
    has_removed = version.version > before and version.removed.ledgers > 0
    if not has_removed:
        say(f"there is nothing to do: no ledger of log '{args.name}' lies before that")
    record = {
        "log": args.name,
        "version": version.version,
        "removed_ledgers": version.removed.ledgers if has_removed else 0,
        "removed_rows": version.removed.rows if has_removed else 0,
        "rows": version.total.rows,
    }
    print_record(record, as_json=args.json)


def _truncated(log: Log, before: LogPosition) -> LogVersion:
    try:
        return log.truncate(before)
    except ConfigError as problem:
        if problem.what != "before":
            raise
        raise ConfigError("--before", f"{before.ledger_id}:{before.entry_id}", problem.remedy) from None


def _vacuum(args: argparse.Namespace) -> None:
    if (args.name is None) != args.all:
        raise UsageError("give the name of one log, or --all")
    with bookkeeper(args) as client, ProgressBar() as progress:
        names = client.list_logs() if args.all else [args.name]
        reports = [asdict(client.vacuum_log(name, progress.show)) for name in names]
    columns = ["log", "oldest_version", "truncated_ledgers", "deleted_ledgers", "deleted_records"]
    print_records(reports, columns, as_json=args.json)


def _set(args: argparse.Namespace) -> None:
    given = {name: getattr(args, name) for name in RETENTION if hasattr(args, name)}
    tier = {name: getattr(args, f"tier:{name}") for name in TIER if hasattr(args, f"tier:{name}")}
    compaction = log_compaction.given_settings(args)
    if not given and not tier and not compaction:
        known = (*map(_option, RETENTION), *map(_tier_option, TIER), "--compaction", *log_compaction.SETTINGS)
        raise UsageError("give at least one of " + ", ".join(known))
    with bookkeeper(args) as client:
        uid = client.logs.names.uid(args.name)
        if tier:
            _set_tier(client, args.name, tier)
        if compaction:
            log_compaction.change_settings(client.open_log(args.name), compaction)
        head = client.logs.names.change_head(
            args.name, uid, lambda head: replace(head, retention=replace(head.retention, **given))
        )
        settings = client.logs.reader.tier.settings(args.name, uid) if head.tier else None
    record = {} if settings is None else {f"tier_{name.removeprefix('tier_')}": one for name, one in asdict(settings).items()}
    record |= log_compaction.described(head.compaction)
    print_record({"log": args.name, **asdict(head.retention), **record}, as_json=args.json)


def _set_tier(client: BookKeeper, name: str, given: dict[str, Any]) -> None:
    log = client.open_log(name)
    if "catalog" in given:
        given["catalog"] = dict(given["catalog"])
    if client.logs.names.head(name, log.uid).tier is not None:
        from bk_spark.lake.tier_log import set_tier  # with what reads and writes Parquet

        seen = client.logs.reader.tier.settings(name, log.uid)
        set_tier(client.log_opener(name, log.uid), replace(seen, **given), seen)
        return
    lacking = [_tier_option(one) for one in ("location", "table") if one not in given]
    if lacking:
        raise UsageError(f"log '{name}' has no tier yet: give {' and '.join(lacking)}, too")
    log.set_tier(Tier(**given))


def _list_orphans(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar() as progress:
        orphans = list(client.find_orphans(args.older_than_s, progress.show))
    _print_orphans(args, orphans)


def _sweep_orphans(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar() as progress:
        orphans = list(client.sweep_orphans(args.older_than_s, progress.show))
    _print_orphans(args, orphans)
    say(f"{len(orphans)} orphans were removed, with {sum(len(orphan.ledgers) for orphan in orphans)} ledgers")


def _print_orphans(args: argparse.Namespace, orphans: Iterable[Orphan]) -> None:
    records = [
        {
            "kind": orphan.kind.value,
            "log": orphan.log,
            "uid": orphan.uid,
            "job": orphan.job_id,
            "age_s": orphan.age_s,
            "ledgers": len(orphan.ledgers),
            "ledger_ids": list(orphan.ledgers),
        }
        for orphan in orphans
    ]
    print_records(records, ["kind", "log", "uid", "job", "age_s", "ledgers"], as_json=args.json)
