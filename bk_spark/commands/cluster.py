"""``bk-spark cluster`` and ``bk-spark local``."""

from __future__ import annotations

import argparse
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands.arguments import Commands, add_log_option, command, directory, group_of, ledger_id, positive_count
from bk_spark.commands.connect import bookkeeper, metadata_store, store_and_root, zookeeper_auth
from bk_spark.commands.output import print_record, say
from bk_spark.commands.program.process import StopSignal
from bk_spark.config import TLS_NAMES
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, MAX_BOOKIES, LocalCluster
from bk_spark.local.copying import accept_copy, copy_cluster
from bk_spark.local.repair import Repair
from bk_spark.local.security import command_options
from bk_spark.metadata.ledger_ids import next_ledger_id, raise_ledger_ids
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.registration import initialise_cluster, instance_id, intended_root, list_bookies
from bk_spark.metadata.store import BadVersionError, NoNodeError, find_children
from bk_spark.metadata.zookeeper_members import members, protect
from bk_spark.telemetry.logging_setup import set_up_logging
from bk_spark.wire.messages import HIGHEST_LEDGER_ID, AdminOperation

LOOK_S = 0.5
"""Between two looks for processes that have ended."""


def add(commands: Commands) -> None:
    group = group_of(commands, "cluster", "the cluster's root in ZooKeeper")
    text = "make the root what bookies and clients expect; harmless where it is"
    init = command(group, "init", text, _init)
    text = "how ledgers are laid out, for good (default: hierarchical, or as it is); flat is for some ten thousand ledgers"
    init.add_argument("--layout", choices=[layout.value for layout in LedgerLayout], help=text)
    text = "give everything in the root to the cluster's members alone: to the identity of this command, and to the given ones"
    protection = command(group, "protect", text, _protect)
    text = "another identity as ZooKeeper writes it: x509:SUBJECT, sasl:USER, digest:USER:HASH; may be given several times"
    protection.add_argument("--member", action="append", metavar="IDENTITY", help=text)
    command(group, "show", "instance id, layout, members and number of bookies", _show)
    text = "after the metadata store went back to an older copy: have new ledger ids above all that bookies hold; see its page"
    raise_ids = command(group, "raise-ledger-ids", text, _raise_ledger_ids)
    text = (
        "the highest ledger id of the bookies that do not answer ('bk-spark inspect index --data-dir D' shows it of a "
        "bookie that was stopped; one that was killed may hold higher ones in its journal: start it instead)"
    )
    raise_ids.add_argument("--held", type=ledger_id, metavar="ID", help=text)
    _add_local(commands)


def _add_local(commands: Commands) -> None:
    local = command(commands, "local", "run a local cluster in the foreground: one ZooKeeper, some bookies", _local)
    text = f"how many bookies, 1 to {MAX_BOOKIES} (default %(default)s)"
    local.add_argument("--bookies", type=_bookies, default=3, metavar="N", help=text)
    local.add_argument(
        "--data-dir", type=directory, metavar="D", help="keep the data here and find it again (default: a temporary place)"
    )
    add_log_option(local)
    text = "with TLS: an authority and certificates are made in the data directory"
    local.add_argument("--tls", action="store_true", help=text)
    text = "without the bookies, for repairs that need ZooKeeper, such as 'bk-spark cookie fix BOOKIE_ID --data-dir D'"
    local.add_argument("--zookeeper-only", action="store_true", help=text)
    group = local.add_subparsers(title="commands", metavar="COMMAND", required=False)
    text = "copy the directory of a local cluster or of embedded:DIR that nobody uses: a cluster of its own with the same rows"
    copy = command(group, "copy", text, _copy)
    copy.add_argument("source", metavar="FROM", help="the directory of the cluster")
    copy.add_argument("target", metavar="TO", help="a directory that does not exist yet")
    text = "start a copy that was made while the original was in use, although confirmed rows may be missing in it"
    accept = command(group, "accept-copy", text, _accept_copy)
    accept.add_argument("directory", metavar="DIR", help="the directory of the copy")


def _bookies(text: str) -> int:
    """How many bookies a local cluster has. Nobody can write to one without any."""
    number = positive_count(text)
    if number > MAX_BOOKIES:
        raise argparse.ArgumentTypeError(f"{number} is too many for one machine: {MAX_BOOKIES} at most")
    return number


def _init(args: argparse.Namespace) -> None:
    with store_and_root(args) as (store, root):
        znodes = intended_root(store, root, LedgerLayout(args.layout) if args.layout else None)
        initialise_cluster(store, znodes)
        record = {"metadata": args.metadata, "instance_id": instance_id(store, znodes), "layout": znodes.layout.value}
        print_record(record, as_json=args.json)


def _show(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        bookies = list_bookies(store, znodes)
        record = {
            "metadata": args.metadata,
            "instance_id": instance_id(store, znodes),
            "layout": znodes.layout.value,
            "layout_value": znodes.layout_value.decode().replace("\n", " "),
            "members": members(store, znodes.root),
            "writable_bookies": sum(not bookie.read_only for bookie in bookies),
            "read_only_bookies": sum(bookie.read_only for bookie in bookies),
        }
        print_record(record, as_json=args.json)


def _protect(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        changed = protect(store, znodes.root, args.member or [])
        print_record({"members": members(store, znodes.root), "changed": changed}, as_json=args.json)


def _raise_ledger_ids(args: argparse.Namespace) -> None:
    """Ask every bookie for the highest ledger id that it holds, and raise the counter above all of them.

    Raises ConfigError, before anything is changed, if bookies do not answer and ``--held`` does not speak for them.
    """
    with bookkeeper(args) as client:
        store, znodes = client.metadata_store, client.znodes
        store.sync(znodes.root)
        names = find_children(store, znodes.ids_above)
        marks = dict(zip(names, store.get_many([znodes.ids_above_of(name) for name in names]), strict=True))
        bookies = sorted({*find_children(store, znodes.cookies), *(one.bookie_id for one in client.list_bookies())})
        held = {bookie_id: _highest_ledger_id(client, bookie_id) for bookie_id in bookies}
        silent = [bookie_id for bookie_id, highest in held.items() if highest is None]
        if silent and args.held is None:
            remedy = (
                "start them, or give with --held the highest ledger id that they hold ('bk-spark inspect index --data-dir D' "
                "shows it of a bookie that was stopped, not killed), -1 of bookies that were never started: "
                "'bk-spark inspect mark --data-dir D' shows boot 0 of these"
            )
            raise ConfigError(f"the answer of bookies {', '.join(silent)}", None, remedy)
        highest = max([-1 if args.held is None else args.held, *(one for one in held.values() if one is not None)])
        before = next_ledger_id(store, znodes)
        after = raise_ledger_ids(store, znodes, highest)
        for bookie_id, mark in marks.items():
            with suppress(NoNodeError, BadVersionError):  # a mark that is newer than the answers stays
                if mark is not None:
                    store.delete(znodes.ids_above_of(bookie_id), mark.version)
    record = {"highest_held": highest, "next_id_before": before, "next_id": after}
    counts = {"bookies_asked": len(bookies) - len(silent), "bookies_silent": len(silent), "bookies_released": len(marks)}
    print_record({**record, **counts}, as_json=args.json)


def _highest_ledger_id(client: BookKeeper, bookie_id: str) -> int | None:
    """None if the bookie does not answer."""
    try:
        reply = client.administer_bookie(bookie_id, AdminOperation.BOOKIE_STATUS)
    except BookKeeperError as problem:
        say(f"bookie {bookie_id} does not answer: {problem}")
        return None
    return reply.figures.get(HIGHEST_LEDGER_ID)


def _local(args: argparse.Namespace) -> None:
    """Run a local cluster until SIGINT or SIGTERM. What ends meanwhile is started again, and said on stderr."""
    set_up_logging(args.log_json)
    # The wait for the cluster's own ZooKeeper would log warnings that look like trouble.
    logging.getLogger("bk_spark.metadata.zookeeper").setLevel(logging.ERROR)
    stopped = StopSignal()
    data_dir = Path(args.data_dir) if args.data_dir else None
    config = replace(DEFAULT_BOOKIE_CONFIG, zookeeper_auth=zookeeper_auth(args))
    start_bookies = not args.zookeeper_only
    with LocalCluster(args.bookies, data_dir, bookie_config=config, tls=args.tls, start_bookies=start_bookies) as cluster:
        _introduce(cluster, as_json=args.json)
        repair = Repair(cluster)
        while not stopped.wait(LOOK_S):
            if start_bookies:
                repair()
            if cluster.is_gone:
                cluster.abandon()
                say(f"the directory {cluster.data_dir} was removed: the cluster is killed")
                return


def _introduce(cluster: LocalCluster, *, as_json: bool) -> None:
    serving = [bookie.bookie_id for bookie in cluster.bookies if bookie.pid is not None]
    record = {"metadata": cluster.metadata_uri, "bookies": serving}
    client = cluster.client_config
    files = {name: getattr(client, name) for name in TLS_NAMES if getattr(client, name)}
    print_record({**record, **files}, as_json=as_json)
    say(f"ready; in another terminal: export BK_SPARK_METADATA={cluster.metadata_uri}   (Ctrl-C here stops it)")
    if files:
        say(f"commands there take {' '.join(command_options(client))}, Spark the options tlsCa, tlsCertificate and tlsKey")


def _copy(args: argparse.Namespace) -> None:
    copy_cluster(Path(args.source), Path(args.target))
    print_record({"copied": args.source, "to": args.target}, as_json=args.json)


def _accept_copy(args: argparse.Namespace) -> None:
    if not accept_copy(Path(args.directory)):
        reason = "nothing to do: it is no copy that was made while the original was in use"
        print_record({"unchanged": args.directory, "reason": reason}, as_json=args.json)
        return
    print_record({"accepted": args.directory, "consequence": "confirmed rows may be missing in it"}, as_json=args.json)
