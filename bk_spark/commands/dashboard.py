"""``bk-spark dashboard``."""

from __future__ import annotations

import argparse

from bk_spark.commands.arguments import Commands, add_log_option, command, host, port
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import print_record, say
from bk_spark.commands.program.process import StopSignal
from bk_spark.dashboard.server import Dashboard
from bk_spark.telemetry.logging_setup import set_up_logging

DEFAULT_PORT = 8180
"""Not a bookie's (3181), Spark's (4040, 8080) or ZooKeeper's (2181)."""

ABOUT = (
    "Serve the cluster as a web page: bookies, space, ledgers and logs with their fragments drawn, under-replication, live "
    "rates. The page changes nothing. Whoever reaches the address sees names, sizes and places of everything, though no "
    "entries and no passwords, and is not asked who they are. So it listens on this machine alone unless --host says "
    "otherwise; for others, put it behind a proxy that checks them, or let them come by 'ssh -L'. Rates need bookies that "
    "were started with --http-port. Requests under other host names than those of --host and --allow-host are refused, so that "
    "no page of another site can read this one."
)


def add(commands: Commands) -> None:
    parser = command(commands, "dashboard", "serve the cluster as a web page, which changes nothing", _run)
    parser.description = ABOUT
    text = "the address to listen at; 0.0.0.0 shows the cluster to all who reach this machine (default %(default)s)"
    parser.add_argument("--host", type=host, default="127.0.0.1", help=text)
    text = "the port; 0 takes a free one (default %(default)s)"
    parser.add_argument("--port", type=port, default=DEFAULT_PORT, metavar="P", help=text)
    text = "a further host name under which browsers ask for the page, such as that of a proxy; may be given several times"
    parser.add_argument("--allow-host", action="append", metavar="NAME", help=text)
    add_log_option(parser)


def _run(args: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    stopped = StopSignal()
    set_up_logging(args.log_json)
    with bookkeeper(args) as client, Dashboard(client, args.host, args.port, args.allow_host or ()) as dashboard:
        print_record({"url": dashboard.url}, as_json=args.json)
        say("open it in a browser   (Ctrl-C here stops it)")
        stopped.wait()
