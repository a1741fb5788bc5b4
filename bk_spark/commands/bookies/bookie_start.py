"""``bk-spark bookie format`` and ``start``: a new bookie, and its process.

Apart from the other commands of bookies, since a process that starts imports nothing that only those need.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie import format_bookie
from bk_spark.bookie.process.run_bookie import BookiePlace, run_bookie
from bk_spark.commands.arguments import Commands, add_log_option, client_host, group_of, port
from bk_spark.commands.connect import metadata_store
from bk_spark.commands.output import print_record
from bk_spark.commands.settings import add_settings, bookie_config, data_dir_command
from bk_spark.replication.peers import ClusterPeers
from bk_spark.telemetry.logging_setup import set_up_audit_log, set_up_logging


def add(commands: Commands) -> Commands:
    """The group of the commands of bookies, with these two in it."""
    group = group_of(commands, "bookie", "bookies: the servers that keep the entries")
    format_ = data_dir_command(group, "format", "prepare an empty directory for a new bookie; prints its id", _format)
    start = data_dir_command(group, "start", "run one bookie in the foreground", _start)
    add_log_option(start)
    for parser in (format_, start):
        text = "the address that clients use (default %(default)s)"
        parser.add_argument("--host", type=client_host, default="127.0.0.1", help=text)
        parser.add_argument("--port", type=port, default=0, help="the port; 0 takes a free one (default %(default)s)")
        add_settings(parser)
    return group


def _format(args: argparse.Namespace) -> None:
    config = bookie_config(args)
    directories = Directories.of(Path(args.data_dir), config)
    with metadata_store(args, config.client_config(), directories) as (store, znodes):
        bookie_id = format_bookie(directories, store, znodes, f"{args.host}:{args.port}")
        print_record({"bookie_id": bookie_id, "data_dir": args.data_dir}, as_json=args.json)


def _start(args: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    set_up_logging(args.log_json)
    config = bookie_config(args)
    if config.audit_log:
        set_up_audit_log(config.audit_log, args.log_json)
    client = config.client_config()
    directories = Directories.of(Path(args.data_dir), config)
    with metadata_store(args, client, directories) as (store, znodes), ClusterPeers(store, znodes, client) as peers:
        run_bookie(BookiePlace(Path(args.data_dir), args.host, args.port), store, znodes, config, peers=peers)
