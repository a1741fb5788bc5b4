"""``bk-spark dashboard``."""

from __future__ import annotations

import argparse
import signal
import threading

from bk_spark.commands.arguments import port
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import print_record, say
from bk_spark.commands.parsers import Commands, add_log_option, command
from bk_spark.dashboard.server import Dashboard
from bk_spark.telemetry.logging_setup import set_up_logging

DEFAULT_PORT = 8180
"""Not a bookie's (3181), Spark's (4040, 8080) or ZooKeeper's (2181)."""

ABOUT = (
    "Serve the cluster as a web page: bookies, space, ledgers and logs with their fragments drawn, under-replication, live "
    "rates. The page changes nothing. Whoever reaches the address sees names, sizes and places of everything, though no "
    "entries and no passwords, and is not asked who they are. So it listens on this machine alone unless --host says "
    "otherwise; for others, put it behind a proxy that checks them, or let them come by 'ssh -L'. Rates need bookies that "
    "were started with --http-port."
)


def add(commands: Commands) -> None:
    parser = command(commands, "dashboard", "serve the cluster as a web page, which changes nothing", run)
    parser.description = ABOUT
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at; 0.0.0.0 shows the cluster to all who reach this machine (default %(default)s)",
    )
    parser.add_argument(
        "--port", type=port, default=DEFAULT_PORT, metavar="P", help="the port; 0 takes a free one (default %(default)s)"
    )
    add_log_option(parser)


def run(args: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    set_up_logging(args.log_json)
    with bookkeeper(args) as client, Dashboard(client, args.host, args.port) as dashboard:
        print_record({"url": dashboard.url}, as_json=args.json)
        say("open it in a browser   (Ctrl-C here stops it)")
        stopped.wait()
