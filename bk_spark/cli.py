"""The ``bk-spark`` command.

Exit codes: 0 done; 1 failed, with one line on stderr; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence

from bk_spark.commands import bookies, cluster, doctor, ledgers, logs
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError
from bk_spark.version import VERSION

Handler = Callable[[argparse.Namespace], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives back the exit code."""
    args = build_parser().parse_args(arguments)
    handler: Handler = args.handler
    try:
        handler(args)
    except BookKeeperError as problem:
        print(f"bk-spark: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bk-spark",
        description="Durable ledgers and logs for Spark, kept by bookies.",
        epilog="The cluster is named by --metadata zk://host:port/ledgers or by the environment variable BK_SPARK_METADATA.",
    )
    parser.add_argument("--version", action="version", version=f"bk-spark {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_cluster(commands)
    _add_local(commands)
    _add_bookie(commands)
    _add_ledger(commands)
    _add_log(commands)
    _command(commands, "doctor", "check this machine and the cluster, and say what to do", doctor.run)
    return parser


Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _command(commands: Commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    """One command, with the options that all have."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)  # type: ignore[attr-defined]
    parser.add_argument(
        "--metadata", metavar="URI", default=os.environ.get("BK_SPARK_METADATA"), help="the cluster: zk://host:port[,…]/ledgers"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value a line")
    parser.set_defaults(handler=handler)
    return parser


def _group(commands: Commands, name: str, text: str) -> Commands:  # type: ignore[valid-type]
    group = commands.add_parser(name, help=text, description=text)  # type: ignore[attr-defined]
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)  # type: ignore[no-any-return]


def _add_cluster(commands: Commands) -> None:  # type: ignore[valid-type]
    group = _group(commands, "cluster", "the cluster's root in ZooKeeper")
    _command(group, "init", "make the root what bookies and clients expect; harmless where it is", cluster.init)
    _command(group, "show", "instance id, layout and number of bookies", cluster.show)


def _add_local(commands: Commands) -> None:  # type: ignore[valid-type]
    local = _command(commands, "local", "run a local cluster in the foreground: one ZooKeeper, some bookies", cluster.local)
    local.add_argument("--bookies", type=int, default=3, metavar="N", help="how many bookies (default %(default)s)")
    local.add_argument("--data-dir", metavar="D", help="keep the data here and find it again (default: a temporary place)")


def _add_bookie(commands: Commands) -> None:  # type: ignore[valid-type]
    group = _group(commands, "bookie", "bookies: the servers that keep the entries")
    _command(group, "list", "the cluster's bookies, writable and read-only, with free space", bookies.list_)
    for name, text, handler in (
        ("format", "prepare an empty directory for a new bookie; prints its id", bookies.format_),
        ("start", "run one bookie in the foreground", bookies.start),
        ("id", "print the id of the bookie whose directory this is", bookies.show_id),
    ):
        parser = _command(group, name, text, handler)
        parser.add_argument("--data-dir", metavar="D", required=True, help="the bookie's directory")
        if name != "id":
            parser.add_argument("--host", default="127.0.0.1", help="the address that clients use (default %(default)s)")
            parser.add_argument("--port", type=int, default=0, help="the port; 0 takes a free one (default %(default)s)")
        if name == "start":
            _add_bookie_config(parser)


def _add_bookie_config(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings", "sizes in bytes, times in seconds")
    for field in dataclasses.fields(BookieConfig):
        flag = "--" + field.name.replace("_", "-")
        kind = type(field.default)
        metavar = "PATH" if kind is str else "N"
        group.add_argument(flag, dest=field.name, type=kind, default=field.default, metavar=metavar, help="default %(default)s")


def _add_ledger(commands: Commands) -> None:  # type: ignore[valid-type]
    group = _group(commands, "ledger", "ledgers")
    _command(group, "list", "all ledgers", ledgers.list_)
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
        parser = _command(group, name, text, handler)
        parser.add_argument("ledger_id", type=int, metavar="ID")
        if name == "delete":
            parser.add_argument("--force", action="store_true", help="also a ledger that belongs to a log")
        if name == "read":
            parser.add_argument("--first", type=int, default=0, help="first entry (default %(default)s)")
            parser.add_argument("--last", type=int, help="last entry, inclusive (default: the last that can be read)")
            parser.add_argument("--recover", action="store_true", help="recover the ledger first, if it is open")
        if name in ("read", "recover"):
            parser.add_argument("--password", default="", help="the ledger's password (default: none)")


def _add_log(commands: Commands) -> None:  # type: ignore[valid-type]
    group = _group(commands, "log", "logs: named, ordered lists of ledgers")
    _command(group, "list", "all logs", logs.list_)
    for name, text, handler in (
        ("show", "one log's versions, schema and ledgers", logs.show),
        ("read", "one log's rows or entries", logs.read),
        ("delete", "delete one log and all its ledgers for good", logs.delete),
    ):
        parser = _command(group, name, text, handler)
        parser.add_argument("name", metavar="NAME")
        if name == "read":
            parser.add_argument("--limit", type=int, default=100, metavar="N", help="at most N rows (default %(default)s)")
            parser.add_argument("--password", default="", help="the password of its ledgers (default: none)")


if __name__ == "__main__":
    sys.exit(main())
