"""The ``bk-spark`` command.

Exit codes: 0 done; 1 failed, with one line on stderr; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from bk_spark.client.log.cleanup.compaction_plan import TARGET_BYTES
from bk_spark.client.log.cleanup.orphans import OLDER_THAN_S
from bk_spark.commands import (
    administration,
    autorecovery,
    bench,
    bookies,
    cluster,
    cookies,
    dashboard,
    decommission,
    doctor,
    inspect,
    ledgers,
    log_changes,
    log_show,
    logs,
    orphans,
    rebuild_index,
    replicate,
    sanity,
)
from bk_spark.commands.arguments import count, log_position, or_none, port, positive_size_bytes, size_bytes
from bk_spark.commands.parsers import Commands, Handler, Parser, add_log_option, command, group_of
from bk_spark.commands.settings import add_settings
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.version import VERSION
from bk_spark.wire.messages import AdminOperation

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives back the exit code."""
    args = build_parser().parse_args(arguments)
    handler: Handler = args.handler
    try:
        handler(args)
    except BookKeeperError as problem:
        if getattr(args, "log_json", False):
            logger.error("%s", problem)
        else:
            print(f"bk-spark: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="bk-spark",
        description="Durable ledgers and logs for Spark, kept by bookies.",
        epilog="The cluster is named by --metadata zk://host:port/ledgers or by the environment variable BK_SPARK_METADATA.",
    )
    parser.add_argument("--version", action="version", version=f"bk-spark {VERSION}")
    commands: Commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_cluster(commands)
    _add_local(commands)
    _add_bookie(commands)
    _add_inspect(commands)
    _add_cookie(commands)
    _add_ledger(commands)
    _add_log(commands)
    _add_orphans(commands)
    replicate.add(commands)
    bench.add(commands)
    dashboard.add(commands)
    autorecovery.add(commands)
    command(commands, "doctor", "check this machine and the cluster, and say what to do", doctor.run)
    return parser


def _add_cluster(commands: Commands) -> None:
    group = group_of(commands, "cluster", "the cluster's root in ZooKeeper")
    text = "make the root what bookies and clients expect; harmless where it is"
    init = command(group, "init", text, cluster.init)
    init.add_argument(
        "--layout",
        choices=[layout.value for layout in LedgerLayout],
        help="how ledgers are laid out, for good (default: hierarchical, or as it is); flat is for some ten thousand ledgers",
    )
    command(group, "show", "instance id, layout and number of bookies", cluster.show)


def _add_local(commands: Commands) -> None:
    local = command(commands, "local", "run a local cluster in the foreground: one ZooKeeper, some bookies", cluster.local)
    local.add_argument("--bookies", type=int, default=3, metavar="N", help="how many bookies (default %(default)s)")
    local.add_argument("--data-dir", metavar="D", help="keep the data here and find it again (default: a temporary place)")
    add_log_option(local)
    local.add_argument(
        "--tls", action="store_true", help="with TLS: an authority and certificates are made in the data directory"
    )


def _add_bookie(commands: Commands) -> None:
    group = group_of(commands, "bookie", "bookies: the servers that keep the entries")
    command(group, "list", "the cluster's bookies, writable and read-only, with free space", bookies.list_)
    for name, text, handler in (
        ("format", "prepare an empty directory for a new bookie; prints its id", bookies.format_),
        ("start", "run one bookie in the foreground", bookies.start),
        ("id", "print the id of the bookie whose directory this is", bookies.show_id),
        (
            "sanity",
            "check the directories, cookies, index and logs of a stopped bookie, with --metadata also the store's side; "
            "changes nothing",
            sanity.run,
        ),
        (
            "rebuild-index",
            "make the index of a stopped bookie anew from its logs; it then starts in limbo and repairs itself from the other "
            "replicas",
            rebuild_index.run,
        ),
    ):
        parser = command(group, name, text, handler)
        parser.add_argument("--data-dir", metavar="D", required=True, help="the bookie's directory")
        if name == "start":
            add_log_option(parser)
        if name in ("format", "start"):
            parser.add_argument("--host", default="127.0.0.1", help="the address that clients use (default %(default)s)")
            parser.add_argument("--port", type=port, default=0, help="the port; 0 takes a free one (default %(default)s)")
        if name != "id":
            add_settings(parser)
    decommission.add(group)
    _add_administration(group)


def _add_administration(group: Commands) -> None:
    """What is asked of a running bookie."""
    collection = group_of(group, "gc", "garbage collection of a running bookie")
    for commands, name, text, operation in (
        (collection, "run", "collect and compact now", AdminOperation.GC_RUN),
        (
            collection,
            "suspend",
            "collect and compact nothing until it is resumed or the bookie starts again",
            AdminOperation.GC_SUSPEND,
        ),
        (collection, "resume", "collect and compact again", AdminOperation.GC_RESUME),
        (collection, "status", "what was collected, compacted and returned to the disk", AdminOperation.GC_STATUS),
        (group, "scrub", "have a running bookie read and verify everything it keeps, from now on", AdminOperation.SCRUB),
        (group, "status", "whether a running bookie takes adds, and if not, why", AdminOperation.BOOKIE_STATUS),
    ):
        parser = command(commands, name, text, administration.asks(operation))
        parser.add_argument("bookie_id", metavar="BOOKIE_ID", help="as 'bk-spark bookie list' shows it")
        if administration.can_wait(operation):
            parser.add_argument("--wait", action="store_true", help="wait for its end, and then print what it did")


def _add_inspect(commands: Commands) -> None:
    group = group_of(commands, "inspect", "what the files of a bookie hold, also while it runs; changes nothing")
    for name, text, handler in (
        ("journal", "journal files: headers, damage, and what their records add up to", inspect.journal),
        ("entry-log", "entry log files: headers, damage, and what their records add up to", inspect.entry_log),
        ("index", "the index: limbo, entry logs with live bytes, ledgers, and whether its tallies fit", inspect.index),
        ("mark", "boot numbers, generation, and the LastLogMark", inspect.mark),
    ):
        parser = command(group, name, text, handler)
        parser.add_argument("--data-dir", metavar="D", required=True, help="the bookie's directory")
        if name in ("journal", "entry-log"):
            parser.add_argument("--file", type=int, metavar="ID", help="only the file of this id")
            parser.add_argument("--records", action="store_true", help="also each record")
        if name == "entry-log":
            parser.add_argument("--ledgers", action="store_true", help="also the live bytes of each ledger in each file")
        if name == "index":
            parser.add_argument("--ledger", type=int, metavar="ID", help="only this ledger, with its rows")
            parser.add_argument("--limit", type=int, default=100, metavar="N", help="at most N ledgers (default %(default)s)")
            parser.add_argument("--verify", action="store_true", help="hold every row against the tallies")
        add_settings(parser)


def _add_cookie(commands: Commands) -> None:
    group = group_of(commands, "cookie", "cookies: which directories are which bookie's")
    for name, text, handler in (
        ("show", "what the metadata store knows of a bookie; with --data-dir also what its directories say", cookies.show),
        (
            "fix",
            "give a bookie that has lost a disk the directories named here, empty ones in the place of lost ones: "
            "it then starts in limbo and repairs itself from the other replicas",
            cookies.fix,
        ),
        (
            "delete",
            "remove a bookie that is not running from the cluster: its directories then start no more, "
            "and what no other bookie holds cannot be read",
            cookies.delete,
        ),
    ):
        parser = command(group, name, text, handler)
        parser.add_argument("bookie_id", metavar="BOOKIE_ID", help="as 'bk-spark bookie id' prints it")
        if name != "delete":
            parser.add_argument("--data-dir", metavar="D", required=name == "fix", help="the bookie's directory")
            add_settings(parser)


def _add_ledger(commands: Commands) -> None:
    group = group_of(commands, "ledger", "ledgers")
    listing = command(group, "list", "all ledgers, ascending; printed as they are found", ledgers.list_)
    listing.add_argument("--first", type=count, default=0, metavar="ID", help="ledgers from this id on (default %(default)s)")
    listing.add_argument("--limit", type=count, metavar="N", help="at most N ledgers (default: all)")
    for name, text, handler in (
        ("show", "one ledger's metadata", ledgers.show),
        ("read", "one ledger's entries", ledgers.read),
        (
            "recover",
            "fence one ledger, whose writer then confirms nothing more, and close it after its last entry",
            ledgers.recover,
        ),
        ("delete", "delete one ledger for good", ledgers.delete),
    ):
        parser = command(group, name, text, handler)
        parser.add_argument("ledger_id", type=int, metavar="ID", help="the ledger, as 'bk-spark ledger list' shows it")
        if name == "delete":
            parser.add_argument("--force", action="store_true", help="also a ledger that belongs to a log")
        if name == "read":
            parser.add_argument("--first", type=int, default=0, metavar="N", help="first entry (default %(default)s)")
            parser.add_argument(
                "--last", type=int, metavar="N", help="last entry, inclusive (default: the last that can be read)"
            )
            parser.add_argument("--recover", action="store_true", help="recover the ledger first, if it is open")
        if name in ("read", "recover"):
            parser.add_argument("--password", default="", help="the ledger's password (default: none)")


def _add_log(commands: Commands) -> None:
    group = group_of(commands, "log", "logs: named, ordered lists of ledgers")
    command(group, "list", "all logs", log_show.list_)
    show = _log_command(group, "show", "one log's state, commits, ledgers, and the streams that read it", log_show.show)
    show.add_argument(
        "--limit",
        type=count,
        default=20,
        metavar="N",
        help="at most N commits and N ledgers, the last ones (default %(default)s)",
    )
    read = _log_command(group, "read", "one log's rows or entries", logs.read)
    read.add_argument("--limit", type=int, default=100, metavar="N", help="at most N rows (default %(default)s)")
    read.add_argument("--password", default="", help="the password of its ledgers (default: none)")
    _log_command(group, "delete", "delete one log and all its ledgers for good", logs.delete)
    text = (
        "fence and close the ledgers that a writer (log.open_writer) left open, so that readers see all that it confirmed; "
        "a writer that is still there confirms nothing more"
    )
    _log_command(group, "recover", text, log_changes.recover)
    _add_log_space(group)


def _log_command(group: Commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:
    parser = command(group, name, text, handler)
    parser.add_argument("name", metavar="NAME", help="the log")
    return parser


def _add_log_space(group: Commands) -> None:
    """What is kept of a log, and in which form."""
    text = "remove the oldest ledgers of one log; they stay readable by version (versionAsOf) until a vacuum deletes them"
    truncate = _log_command(group, "truncate", text, log_changes.truncate)
    truncate.add_argument(
        "--before",
        type=log_position,
        required=True,
        metavar="LEDGER[:ENTRY]",
        help="what is wholly before this place goes, by whole ledgers; the last ledger always stays",
    )
    text = (
        "rewrite many small ledgers of one log into few large ones, as a Spark job on this machine: the same rows in the same "
        "order, put in place at once; the old ledgers stay readable by version until a vacuum deletes them"
    )
    compact = _log_command(group, "compact", text, log_changes.compact)
    compact.add_argument("--master", default="local[*]", metavar="URL", help="where Spark runs the job (default %(default)s)")
    compact.add_argument(
        "--target-bytes",
        type=positive_size_bytes,
        default=TARGET_BYTES,
        metavar="N",
        help="merge neighbours up to this size; what has half of it stays (default %(default)s, also as 128m)",
    )
    compact.add_argument("--password", default="", help="the password of its ledgers (default: none)")
    text = (
        "give back space: truncate what the log's retention lets go, delete ledgers that no version lists which is still kept. "
        "The bookies' disks follow with their next garbage collection (bk-spark bookie gc run)"
    )
    vacuum = command(group, "vacuum", text, log_changes.vacuum)
    vacuum.add_argument("name", metavar="NAME", nargs="?", help="the log")
    vacuum.add_argument("--all", action="store_true", help="every log")
    vacuum.set_defaults(parser=vacuum)
    _add_log_set(group)


def _add_log_set(group: Commands) -> None:
    text = "what a vacuum keeps of one log; what is not given stays as it is"
    parser = _log_command(group, "set", text, log_changes.set_)
    for name, kind, text in (
        (
            "--version-retention-s",
            count,
            "old versions, and ledgers that only they list, stay N seconds (at first 604800, 7 days)",
        ),
        (
            "--retention-s",
            or_none(count),
            "rows older than N seconds are truncated, by whole ledgers; none: they stay (at first)",
        ),
        (
            "--retention-bytes",
            or_none(size_bytes),
            "the oldest ledgers are truncated while N bytes of payload stay without them; none: no limit (at first)",
        ),
    ):
        parser.add_argument(name, type=kind, default=argparse.SUPPRESS, metavar="N", help=text)
    parser.set_defaults(parser=parser)


def _add_orphans(commands: Commands) -> None:
    group = group_of(commands, "orphans", "what writes that failed or were killed have left behind; no reader ever saw it")
    for name, text, handler in (
        ("list", "what a sweep would remove; changes nothing", orphans.list_),
        ("sweep", "remove it; writes that are running are told by their signs of life and stay", orphans.sweep),
    ):
        parser = command(group, name, text, handler)
        parser.add_argument(
            "--older-than-s",
            type=count,
            default=OLDER_THAN_S,
            metavar="N",
            help="only what nobody has touched for N seconds (default %(default)s, a day); below 3600 stop all writers first",
        )


if __name__ == "__main__":
    sys.exit(main())
