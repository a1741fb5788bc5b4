"""``bk-spark bookie``."""

from __future__ import annotations

import argparse
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie import bookie_id_of, format_bookie
from bk_spark.bookie.process.run_bookie import BookiePlace, run_bookie
from bk_spark.client.replication.peers import ClusterPeers
from bk_spark.commands.connect import bookkeeper, metadata_store
from bk_spark.commands.output import print_record, print_records, readable
from bk_spark.commands.settings import bookie_config
from bk_spark.telemetry.logging_setup import set_up_logging


def format_(args: argparse.Namespace) -> None:
    config = bookie_config(args)
    with metadata_store(args, config.client_config()) as (store, znodes):
        directories = Directories.of(Path(args.data_dir), config)
        bookie_id = format_bookie(directories, store, znodes, f"{args.host}:{args.port}")
        print_record({"bookie_id": bookie_id, "data_dir": args.data_dir}, as_json=args.json)


def start(args: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    set_up_logging(args.log_json)
    config = bookie_config(args)
    client = config.client_config()
    with metadata_store(args, client) as (store, znodes), ClusterPeers(store, znodes, client) as peers:
        run_bookie(BookiePlace(Path(args.data_dir), args.host, args.port), store, znodes, config, peers=peers)


def show_id(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        print_record({"bookie_id": bookie_id_of(Path(args.data_dir), store, znodes)}, as_json=args.json)


def list_(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        records = []
        for bookie in client.list_bookies():
            description = client.describe_bookie(bookie.bookie_id)
            free = description.free_bytes if description else None
            records.append(
                {
                    "bookie_id": bookie.bookie_id,
                    "address": f"{bookie.address.host}:{bookie.address.port}",
                    "rack": bookie.rack,
                    "mode": "read-only" if bookie.read_only else "writable",
                    "http": bookie.http,
                    "free": None if free is None else free if args.json else readable(free),
                    "answers": description is not None,
                }
            )
        print_records(records, ["bookie_id", "address", "rack", "mode", "http", "free", "answers"], as_json=args.json)
