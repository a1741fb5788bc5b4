"""``bk-spark log truncate|compact|vacuum|set|recover``: what an operator does to a log."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, replace

from bk_spark.client.log.stored.values import LogVersion
from bk_spark.commands.connect import bookkeeper, client_config, metadata_uri, spark_options
from bk_spark.commands.output import ProgressBar, print_record, print_records, readable, say

RETENTION = ("version_retention_s", "retention_s", "retention_bytes")
"""Arguments of ``log set``: fields of Retention, there only where they were given."""


def truncate(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        log = client.open_log(args.name)
        before = log.snapshot().version
        version = log.truncate(args.before)
    _print_change(args, version, version.removed.ledgers if version.version > before else 0)


def compact(args: argparse.Namespace) -> None:
    """Runs a Spark of its own; from a program that has one, ``bk_spark.compact_log(spark, uri, name)`` is the same."""
    from bk_spark.datasource.jobs.compact_log import compact_log, session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    uri = metadata_uri(args)
    with bookkeeper(args) as client:
        client.logs.reader.snapshot(args.name)  # what is wrong shows before Spark starts, which takes seconds
    options = spark_options(client_config(args)) | ({"password": args.password} if args.password else {})
    with session(args.master, show_progress=sys.stderr.isatty()) as spark:
        report = compact_log(spark, uri, args.name, target_bytes=args.target_bytes, options=options)
    if not report.commits:
        say(f"there is nothing to do: log '{args.name}' has no two neighbouring ledgers that are small")
    record = {
        "log": report.log,
        "version": report.version,
        "commits": report.commits,
        "removed_ledgers": report.removed.ledgers,
        "added_ledgers": report.added.ledgers,
        "rows": report.added.rows,
        "removed_bytes": report.removed.length,
        "added_bytes": report.added.length,
    }
    print_record(record if args.json else _readable(record), as_json=args.json)


def vacuum(args: argparse.Namespace) -> None:
    if (args.name is None) != args.all:
        args.parser.error("give the name of one log, or --all")
    with bookkeeper(args) as client, ProgressBar() as progress:
        names = client.list_logs() if args.all else [args.name]
        reports = [asdict(client.vacuum_log(name, progress.show)) for name in names]
    columns = ["log", "oldest_version", "truncated_ledgers", "deleted_ledgers", "deleted_records"]
    print_records(reports, columns, as_json=args.json)


def set_(args: argparse.Namespace) -> None:
    given = {name: getattr(args, name) for name in RETENTION if hasattr(args, name)}
    if not given:
        args.parser.error("give at least one of " + ", ".join("--" + name.replace("_", "-") for name in RETENTION))
    with bookkeeper(args) as client:
        uid = client.logs.names.uid(args.name)
        head = client.logs.names.change_head(
            args.name, uid, lambda head: replace(head, retention=replace(head.retention, **given))
        )
    print_record({"log": args.name, **asdict(head.retention)}, as_json=args.json)


def recover(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        version = client.open_log(args.name).recover()
    if version is None:
        say(f"there is nothing to do: no ledger of log '{args.name}' is open")
    closed = [] if version is None else [one.ledger_id for one in version.closed]
    rows = 0 if version is None else sum(one.rows for one in version.closed)
    print_record({"log": args.name, "closed_ledgers": closed, "rows": rows}, as_json=args.json)


def _print_change(args: argparse.Namespace, version: LogVersion, removed: int) -> None:
    if not removed:
        say(f"there is nothing to do: no ledger of log '{args.name}' lies before that")
    record = {
        "log": args.name,
        "version": version.version,
        "removed_ledgers": removed,
        "removed_rows": version.removed.rows if removed else 0,
        "rows": version.total.rows,
    }
    print_record(record, as_json=args.json)


def _readable(record: dict[str, object]) -> dict[str, object]:
    return {
        key: readable(value) if key.endswith("_bytes") and isinstance(value, int) else value for key, value in record.items()
    }
