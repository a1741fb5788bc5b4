"""How the commands change tokens and grants, and what they print of them."""

from __future__ import annotations

import argparse
import getpass
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

from bk_spark.commands.output import Record, printable
from bk_spark.errors import ConfigError, MetadataUnavailableError
from bk_spark.gateway.access_records import AccessChange
from bk_spark.gateway.access_rules import AccessContent
from bk_spark.gateway.rights import CallerIdentity, Grant, Right, check_pattern, parse_identity, parse_rights
from bk_spark.gateway.stored_access import Decide, StoredAccess

GRANT_COLUMNS = ["identity", "logs", "rights"]


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change did, and what there is after it."""

    change: AccessChange
    content: AccessContent


def changed(access: StoredAccess, decide: Decide, look: str) -> Changed:
    """Make the change. ``look``: what to do where it is not known whether it was made, for the error."""
    try:
        change = access.change(decide, change_id=secrets.token_hex(8), by=operator(), at_ms=now_ms())
        return Changed(change, access.read())
    except MetadataUnavailableError as problem:
        raise MetadataUnavailableError(problem.uri, problem.problem, look) from problem


def operator() -> str:
    """Who runs this command: a note in lists and audit logs, which proves nothing."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no name for the process's number
        user = "unknown"
    return printable(f"{user}@{socket.gethostname()}")[:200]


def now_ms() -> int:
    return int(time.time() * 1000)


def identity(text: str) -> CallerIdentity:
    """``certificate:NAME`` or ``token:NAME``, as a type of argparse."""
    try:
        return parse_identity(text)
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(f"{text!r:.300} is no identity: {problem.remedy}") from None


def pattern(text: str) -> str:
    """A pattern of logs, as a type of argparse."""
    try:
        check_pattern(text)
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(f"{text!r:.300} is no pattern of logs: {problem.remedy}") from None
    return text


def rights(text: str) -> tuple[Right, ...]:
    """``read,append``, as a type of argparse."""
    try:
        return parse_rights(text)
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(f"{problem.value!r:.300} is no right: {problem.remedy}") from None


def grant_records(grants: Iterable[Grant], *, as_json: bool) -> list[Record]:
    """One record for each identity and pattern, with all their rights, sorted."""
    found: dict[tuple[str, str], list[str]] = {}
    for grant in sorted(grants, key=lambda one: one.order):
        found.setdefault((str(grant.identity), grant.logs), []).append(grant.right.value)
    return [
        {"identity": name, "logs": logs, "rights": words if as_json else ",".join(words)}
        for (name, logs), words in found.items()
    ]
