"""``bk-spark log compact``, and the settings of ``bk-spark log set`` that say how a log is compacted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from bk_spark.commands.arguments import (
    OF_A_LOG,
    Commands,
    add_password,
    command,
    count,
    log_name,
    password,
    positive_size_bytes,
)
from bk_spark.commands.connect import bookkeeper, client_config, metadata_uri, spark_options
from bk_spark.commands.output import ProgressBar, print_record, readable, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.datasource.passwords import as_option
from bk_spark.log.cleanup.compaction_plan import TARGET_BYTES, CompactionReport
from bk_spark.log.log_handle import Log, change_compaction, key_compactor
from bk_spark.log.stored.by_key.settings import KeyCompaction

KEY, NONE = "key", "none"

SETTINGS: dict[str, tuple[str, Callable[[str], object], str, str]] = {
    "--deleted-by": (
        "deleted_by",
        lambda text: None if text == NONE else text,
        "COLUMN",
        "a row with true in this boolean column removes its key; none: no row does (at first)",
    ),
    "--min-compaction-age-s": ("min_age_s", count, "N", "rows younger than N seconds stay, all of them (at first 0)"),
    "--tombstones-kept-s": (
        "tombstones_kept_s",
        count,
        "N",
        "a row that removes its key stays N seconds from its commit on (at first 86400, a day)",
    ),
}
"""Options of ``log set`` and ``log compact`` → field of KeyCompaction, type, name of the value, and help."""


def add(group: Commands) -> None:
    text = (
        "rewrite many small ledgers of one log into few large ones, as a Spark job on this machine: the same rows in the same "
        "order, put in place at once; the old ledgers stay readable by version until a vacuum deletes them. With --by-key only "
        "the newest row of each key stays"
    )
    compact = command(group, "compact", text, _compact)
    compact.add_argument("name", type=log_name, metavar="NAME", help="the log")
    text = "where Spark runs the job (local[*]; with --by-key none: this process does it, unless this is given)"
    compact.add_argument("--master", metavar="URL", help=text)
    text = f"merge neighbours up to this size; what has half of it stays ({TARGET_BYTES}, also as 128m); not with --by-key"
    compact.add_argument("--target-bytes", type=positive_size_bytes, metavar="N", help=text)
    text = "keep the newest row of each key alone, of a log with keys; without it a log does so for which log set has set it"
    compact.add_argument("--by-key", action="store_true", help=text)
    _add(compact, "this time: ")
    add_password(compact, OF_A_LOG)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options of ``log set``."""
    text = "key: log compact keeps the newest row of each key alone, of a log with keys; none: it keeps every row (at first)"
    parser.add_argument("--compaction", choices=(KEY, NONE), default=argparse.SUPPRESS, help=text)
    _add(parser, "with --compaction key: ")


def given_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What was given of the options of ``log set``."""
    kind = {"compaction": args.compaction} if hasattr(args, "compaction") else {}
    return kind | _given(args)


def change_settings(log: Log, given: dict[str, Any]) -> None:
    """What is not given stays as it is. Raises UsageError for settings of a compaction that is not set."""
    kind = given.pop("compaction", None)

    def changed(seen: KeyCompaction | None) -> KeyCompaction | None:
        if kind == KEY or (kind is None and seen is not None):
            return replace(seen or KeyCompaction(), **given)
        if given:
            raise UsageError(f"{', '.join(_options_of(given))} say how a log is compacted by key: give --compaction key, too")
        return None

    change_compaction(log, changed)


def described(compaction: KeyCompaction | None) -> dict[str, object]:
    """For ``log set`` and ``log show``: nothing of a log that keeps every row."""
    if compaction is None:
        return {}
    fields = asdict(compaction)
    return {"compaction": KEY, **{_field(option): fields[name] for option, (name, *_) in SETTINGS.items()}}


def _add(parser: argparse.ArgumentParser, begin: str) -> None:
    for option, (field, parse, metavar, text) in SETTINGS.items():
        dest = f"compaction:{field}"
        parser.add_argument(option, dest=dest, type=parse, default=argparse.SUPPRESS, metavar=metavar, help=begin + text)


def _given(args: argparse.Namespace) -> dict[str, Any]:
    fields = [field for field, *_ in SETTINGS.values()]
    return {field: getattr(args, f"compaction:{field}") for field in fields if hasattr(args, f"compaction:{field}")}


def _options_of(given: dict[str, Any]) -> list[str]:
    return [option for option, (field, *_) in SETTINGS.items() if field in given]


def _field(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _compact(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        log = client.open_log(args.name, password=password(args))
        log.snapshot()  # fail before Spark starts, which takes seconds
        given, seen = _given(args), log.compaction
        if given and not (args.by_key or seen):
            raise UsageError(f"{', '.join(_options_of(given))} say how a log is compacted by key: give --by-key, too")
        wanted = replace(seen or KeyCompaction(), **given) if args.by_key or seen else None
        if wanted is not None and args.target_bytes is not None:
            raise UsageError("--target-bytes is for compactions that keep every row: leave it out")
        if wanted is not None and args.master is None:
            with ProgressBar() as progress:
                report = key_compactor(log, progress=progress.show).run(wanted)
            _tell(args, report, "no key has an older row that may go")
            return
    report = _with_spark(args, wanted)
    nothing = "no two neighbouring ledgers are small" if wanted is None else "no key has an older row that may go"
    _tell(args, report, nothing)


def _with_spark(args: argparse.Namespace, wanted: KeyCompaction | None) -> CompactionReport:
    """Run a Spark session of its own; ``bk_spark.compact_log(spark, uri, name)`` takes an existing one."""
    from bk_spark.datasource.jobs.compact_log import compact_log
    from bk_spark.datasource.jobs.spark_job import session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    uri, given = metadata_uri(args), password(args)
    options = spark_options(client_config(args)) | ({"password": as_option(given)} if given else {})
    with session(args.master or "local[*]", show_progress=sys.stderr.isatty()) as spark:
        target_bytes, by_key = args.target_bytes or TARGET_BYTES, wanted or False
        return compact_log(spark, uri, args.name, target_bytes=target_bytes, by_key=by_key, options=options)


def _tell(args: argparse.Namespace, report: CompactionReport, nothing: str) -> None:
    if not report.commits:
        say(f"there is nothing to do in log '{report.log}': {nothing}")
    size = int if args.json else readable
    record = {
        "log": report.log,
        "version": report.version,
        "commits": report.commits,
        "removed_ledgers": report.removed.ledgers,
        "added_ledgers": report.added.ledgers,
        "rows": report.added.rows,
        **({} if report.removed.rows == report.added.rows else {"removed_rows": report.removed.rows - report.added.rows}),
        "removed_bytes": size(report.removed.length),
        "added_bytes": size(report.added.length),
    }
    print_record(record, as_json=args.json)
