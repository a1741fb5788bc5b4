"""``bk-spark cluster`` and ``bk-spark local``."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from bk_spark.commands.connect import metadata_store
from bk_spark.commands.output import print_record, say
from bk_spark.local_cluster import LocalCluster
from bk_spark.registration import check_layout, initialise_cluster, instance_id, list_bookies


def init(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        initialise_cluster(store, znodes)
        print_record({"metadata": args.metadata, "instance_id": instance_id(store, znodes)}, as_json=args.json)


def show(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        check_layout(store, znodes)
        bookies = list_bookies(store, znodes)
        record = {
            "metadata": args.metadata,
            "instance_id": instance_id(store, znodes),
            "layout": store.get(znodes.layout).value.decode().replace("\n", " "),
            "writable_bookies": sum(not bookie.read_only for bookie in bookies),
            "read_only_bookies": sum(bookie.read_only for bookie in bookies),
        }
        print_record(record, as_json=args.json)


def local(args: argparse.Namespace) -> None:
    """Run a local cluster until SIGINT or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    data_dir = Path(args.data_dir) if args.data_dir else None
    with LocalCluster(bookies=args.bookies, data_dir=data_dir) as cluster:
        record = {"metadata": cluster.metadata_uri, "bookies": [bookie.bookie_id for bookie in cluster.bookies]}
        print_record(record, as_json=args.json)
        say(f"ready; in another terminal: export BK_SPARK_METADATA={cluster.metadata_uri}   (Ctrl-C here stops it)")
        stopped.wait()
