"""How commands and their options are declared, and what the values of options may look like.

A value that does not parse is wrong usage: exit code 2.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import TypeAlias

from bk_spark.config import BOOKIE_AUTH_VARIABLE, MAX_SETTING, ZOOKEEPER_AUTH_VARIABLE
from bk_spark.datasource.passwords import password_in_file
from bk_spark.datasource.sizes import size
from bk_spark.errors import ConfigError
from bk_spark.host_port import is_any_address, parse_host
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.stored.names import check_log_name
from bk_spark.metadata.ledger_layout import MAX_LEDGER_ID
from bk_spark.metadata.znodes import is_bookie_id

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Handler = Callable[[argparse.Namespace], None]

_parse_size = size(0, 2**62)

OF_A_LOG = "the password of its ledgers"


def group_of(commands: Commands, name: str, text: str) -> Commands:
    """Commands below one name."""
    parser = commands.add_parser(name, help=text, description=text)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def command(commands: Commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:
    """One command, with the options that every command has."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--metadata",
        metavar="URI",
        default=os.environ.get("BK_SPARK_METADATA"),
        help="the cluster: zk://host:port[,...]/ledgers[?tls=true]",
    )
    add_security(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON value a line")
    parser.set_defaults(handler=handler, parser=parser)
    return parser


def add_security(parser: argparse.ArgumentParser) -> None:
    """No option takes a secret: every user of a machine sees the arguments of every process."""
    group = parser.add_argument_group("security", "PEM files for TLS; who this is to ZooKeeper and to bookies")
    group.add_argument("--tls-ca", metavar="FILE", help="authorities that sign the certificates of the other side; for TLS")
    group.add_argument("--tls-certificate", metavar="FILE", help="this side's certificate, with its chain")
    group.add_argument("--tls-key", metavar="FILE", help="the certificate's private key, without a passphrase")
    group.add_argument(
        "--zookeeper-auth-file",
        metavar="FILE",
        help=f"a file with x509, digest:USER:PASSWORD or sasl:USER:PASSWORD (or the variable {ZOOKEEPER_AUTH_VARIABLE})",
    )
    group.add_argument(
        "--bookie-auth-file",
        metavar="FILE",
        help=f"a file with sasl:user:password, for Apache's bookies that ask for SASL (or the variable {BOOKIE_AUTH_VARIABLE})",
    )


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """For commands that run for long: their handlers call ``set_up_logging(args.log_json)``."""
    parser.add_argument("--log-json", action="store_true", help="write the log, on stderr, as one JSON object a line")


def add_password(parser: argparse.ArgumentParser, whose: str) -> None:
    """``--password`` or ``--password-file``; ``whose`` names what it belongs to."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--password", type=plain_text, default="", help=f"{whose} (default: none); other users of this machine can see it"
    )
    either.add_argument("--password-file", metavar="FILE", help="a file whose first line is the password")


def password(args: argparse.Namespace) -> bytes:
    """The password given, empty without one. Warns of a file that other users can read. Raises ConfigError."""
    name = args.password_file
    if name is None:
        return str(args.password).encode()
    return password_in_file("--password-file", name)


def count(text: str) -> int:
    """A whole number, 0 or more, in plain digits."""
    if not re.fullmatch(r"[0-9]{1,30}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def key_value(text: str) -> tuple[str, str]:
    """``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE")
    return key, value


def whole_number(text: str) -> int:
    """A whole number in plain digits, with a sign or without."""
    if not re.fullmatch(r"[-+]?[0-9]{1,30}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, such as 60")
    return int(text)


def number(text: str) -> float:
    """A number, such as ``0.5``."""
    if not re.fullmatch(r"[-+]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})(e[-+]?[0-9]{1,2})?", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, such as 60 or 0.5")
    return float(text)


def plain_text(text: str) -> str:
    """Text that is UTF-8 where the encoding of the locale, such as that of ``LC_ALL=C``, cannot read it."""
    if not any("\ud800" <= one <= "\udfff" for one in text):
        return text
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no text: it is neither UTF-8 nor in the locale's encoding") from None


def log_name(text: str) -> str:
    """What may be the name of a log."""
    name = plain_text(text)
    try:
        check_log_name(name)
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(f"{name!r} is no name of a log: {problem.remedy}") from None
    return name


def ledger_id(text: str) -> int:
    """The id of a ledger, from 0 to MAX_LEDGER_ID."""
    found = count(text)
    if found > MAX_LEDGER_ID:
        raise argparse.ArgumentTypeError(f"{found} is no ledger id: the highest is {MAX_LEDGER_ID}")
    return found


def positive_count(text: str) -> int:
    """A whole number, 1 or more."""
    found = count(text)
    if not found:
        raise argparse.ArgumentTypeError("it must be 1 at least")
    return found


def positive_number(text: str) -> float:
    """A number above 0, such as ``0.5``."""
    try:
        found = number(text)
    except argparse.ArgumentTypeError:
        found = 0.0
    if not 0 < found <= MAX_SETTING:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return found


def host(text: str) -> str:
    """A host name or address, of IPv6 with brackets or without."""
    try:
        return parse_host(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def client_host(text: str) -> str:
    """A host name or address that clients can connect to."""
    found = host(text)
    if is_any_address(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no address that clients can connect to: name one of this machine's")
    return found


def port(text: str) -> int:
    """A TCP port, or 0 for a free one."""
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, a whole number from 0 to 65535")
    return int(text)


def directory(text: str) -> str:
    """The name of a directory, which may not exist. A word that looks like an option is none, nor is an empty variable."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a directory")
    if text.startswith("-"):
        raise argparse.ArgumentTypeError(f"{text!r} looks like an option: a directory of this name is './{text}'")
    return text


def size_bytes(text: str) -> int:
    """A number of bytes, or a size such as ``128m``."""
    try:
        return _parse_size("", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 65536, 64m or 10g") from None


def positive_size_bytes(text: str) -> int:
    """As ``size_bytes``, and not 0."""
    size = size_bytes(text)
    if not size:
        raise argparse.ArgumentTypeError("it must be 1 byte at least")
    return size


def or_none(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    """What ``parse`` takes, or the word ``none``."""
    return lambda text: None if text == "none" else parse(text)


def valid_bookie_id(text: str) -> str:
    """What may be the id of a bookie."""
    if not is_bookie_id(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of a bookie, such as host:3181-0a1b2c3d")
    return text


def log_position(text: str) -> LogPosition:
    """``LEDGER`` or ``LEDGER:ENTRY``."""
    ledger, _, entry = text.partition(":")
    try:
        return LogPosition(ledger_id(ledger), ledger_id(entry or "0"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a ledger id, such as 7, nor LEDGER:ENTRY, such as 7:100"
        ) from None


def application(text: str) -> tuple[str, int]:
    """``loader:7``: an application's id, which may have colons, and a version."""
    name, _, version = text.rpartition(":")
    if not name or not re.fullmatch(r"[0-9]{1,30}", version):
        raise argparse.ArgumentTypeError(f"{text!r} is not ID:VERSION, such as loader:7")
    return plain_text(name), int(version)


def setting_help(config: type, name: str, default: str) -> str:
    """The help of one setting's option."""
    return f"{setting_texts(config)[name]} (default {default})"


@cache
def setting_texts(config: type) -> dict[str, str]:
    """The first sentence of the text below each field of a settings class, on one line, ready for argparse.

    So the help and the class's documentation are one text.
    """
    [defined] = ast.parse(inspect.getsource(config)).body
    assert isinstance(defined, ast.ClassDef)
    found = {}
    for field, below in pairwise(defined.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = _first_sentence(ast.literal_eval(below.value)).replace("%", "%%")
    return found


def _first_sentence(text: str) -> str:
    joined = " ".join(text.replace("``", "").split())
    first = re.split(r"(?<=[a-z0-9)])\. ", joined)[0].rstrip(".")
    word = first.split()[0]
    return first[0].lower() + first[1:] if word == word.capitalize() else first
