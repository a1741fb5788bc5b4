"""``bk-spark tier``: copies the rows of logs to their tables, and gives the bookies their space back."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
from functools import partial

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands.arguments import (
    OF_A_LOG,
    Commands,
    add_log_option,
    add_password,
    command,
    group_of,
    host,
    log_name,
    password,
    port,
    positive_number,
)
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, Record, print_records, printable, readable, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.program.process import StopSignal
from bk_spark.errors import BookKeeperError
from bk_spark.telemetry.http_endpoint import HttpEndpoint, Response, Route, text_response
from bk_spark.telemetry.logging_setup import set_up_logging
from bk_spark.telemetry.metrics import CLIENT, TIER
from bk_spark.telemetry.registry import CONTENT_TYPE, asked, render

INTERVAL_S = 30.0
"""Of ``tier_after_s``, 900 by default, a thirtieth; a look costs a few small reads for each log."""

_ROUTES: dict[str, Route] = {
    "/metrics": lambda _: Response(200, CONTENT_TYPE, render(TIER, CLIENT)),
    "/health": lambda _: text_response(200, "alive"),
}

_COLUMNS = ["log", "tiered_ledgers", "tiered_rows", "tiered_bytes", "released_ledgers", "waiting_ledgers"]


def add(commands: Commands) -> None:
    group = group_of(commands, "tier", "logs whose closed ledgers move into an Iceberg table")
    text = (
        "copy the rows of closed ledgers to the log's table, and delete those ledgers from bookies that have been in it for as "
        "long as its settings say; may be killed, and run by several at once"
    )
    run = command(group, "run", text, _run)
    run.add_argument("name", type=log_name, metavar="NAME", nargs="?", help="the log")
    run.add_argument("--all", action="store_true", help="every log that has a tier")
    add_password(run, OF_A_LOG)
    text = "tier every log that has a tier, as its settings say, until SIGTERM; several such processes share the logs"
    serve = command(group, "serve", text, _serve)
    serve.add_argument("--name", metavar="NAME", help="who this is, in the metadata store (default: host name and process)")
    text = "how often to look at all logs (default %(default)s)"
    serve.add_argument("--interval-s", type=positive_number, default=INTERVAL_S, metavar="N", help=text)
    text = "where to serve /metrics and /health; 0: nowhere (default %(default)s)"
    serve.add_argument("--http-port", type=port, default=0, metavar="P", help=text)
    text = "where --http-port listens (default %(default)s)"
    serve.add_argument("--http-host", type=host, default="127.0.0.1", metavar="HOST", help=text)
    add_log_option(serve)
    add_password(serve, OF_A_LOG)


def _run(args: argparse.Namespace) -> None:
    if (args.name is None) != args.all:
        raise UsageError("give the name of one log, or --all")
    failed: list[BookKeeperError] = []
    records: list[Record] = []
    with bookkeeper(args) as client:
        for name in _tiered(client) if args.all else [args.name]:
            try:
                records.append(_tier(client, name, args))
            except BookKeeperError as problem:
                if not args.all:
                    raise
                say(f"log '{name}' was not tiered: {problem}")
                failed.append(problem)
    print_records(records, _COLUMNS, as_json=args.json)
    if failed:
        raise failed[0]


def _serve(args: argparse.Namespace) -> None:
    from bk_spark.lake.serve import TierServer  # with what reads and writes Parquet
    from bk_spark.lake.watch import TierWatch

    set_up_logging(args.log_json)
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)  # it tells of each look at a table
    until, given = StopSignal(), password(args)
    with bookkeeper(args) as client, contextlib.ExitStack() as undo:
        name = args.name or f"{socket.gethostname()}:{os.getpid()}"
        watch = TierWatch(client.logs, args.interval_s)
        if args.http_port:
            undo.enter_context(watch)
            undo.enter_context(asked(TIER, watch.figures))
            undo.enter_context(HttpEndpoint(args.http_host, args.http_port, _ROUTES))
        opener_of = partial(client.log_opener, password=given)
        TierServer(client.logs, name, opener_of, watch.tried).serve(until, args.interval_s)


def _tiered(client: BookKeeper) -> list[str]:
    logs = client.logs
    return [name for name, uid in logs.names.find_many(client.list_logs()).items() if logs.names.head(name, uid).tier]


def _tier(client: BookKeeper, name: str, args: argparse.Namespace) -> Record:
    with ProgressBar() as progress:

        def show(what: str, done: int, total: int) -> None:
            progress.show(f"{printable(name)}: {what}", done, total)

        report = client.tier_log(name, password(args), show)
    size = int if args.json else readable
    return {
        "log": name,
        "tiered_ledgers": report.tiered.ledgers,
        "tiered_rows": report.tiered.rows,
        "tiered_bytes": size(report.tiered.length),
        "released_ledgers": report.released.ledgers,
        "waiting_ledgers": report.waiting,
    }
