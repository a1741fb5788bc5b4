"""How commands are declared: the options that all have, and groups of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from bk_spark.config import ZOOKEEPER_AUTH_VARIABLE

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Handler = Callable[[argparse.Namespace], None]


MAX_ERROR_CHARACTERS = 1_000
"""Of a wrong usage's sentence, which repeats what was typed: a screenful."""


class Parser(argparse.ArgumentParser):
    """Subparsers are made of the same class."""

    def error(self, message: str) -> NoReturn:
        cut = message if len(message) <= MAX_ERROR_CHARACTERS else f"{message[:MAX_ERROR_CHARACTERS]}…"
        super().error(cut)


def command(commands: Commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:
    """One command, with the options that all have."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--metadata", metavar="URI", default=os.environ.get("BK_SPARK_METADATA"), help="the cluster: zk://host:port[,…]/ledgers"
    )
    add_security(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON value a line")
    parser.set_defaults(handler=handler)
    return parser


def add_security(parser: argparse.ArgumentParser) -> None:
    """No secret is an argument: everybody on a machine sees those of every process."""
    group = parser.add_argument_group("security", "PEM files for TLS with bookies; who this is to ZooKeeper")
    group.add_argument("--tls-ca", metavar="FILE", help="authorities that sign the certificates of the other side; for TLS")
    group.add_argument("--tls-certificate", metavar="FILE", help="this side's certificate, with its chain")
    group.add_argument("--tls-key", metavar="FILE", help="the certificate's private key, without a passphrase")
    group.add_argument(
        "--zookeeper-auth-file",
        metavar="FILE",
        help=f"a file with scheme:credential, such as digest:user:password (or the variable {ZOOKEEPER_AUTH_VARIABLE})",
    )


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """For commands that run for long: their handlers call ``set_up_logging(args.log_json)``."""
    parser.add_argument("--log-json", action="store_true", help="write the log, on stderr, as one JSON object a line")


def group_of(commands: Commands, name: str, text: str) -> Commands:
    """Commands below one name."""
    parser = commands.add_parser(name, help=text, description=text)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
