"""``bk-spark token``: tokens, with which programs call a gateway."""

from __future__ import annotations

import argparse
import secrets
from datetime import UTC, datetime

from bk_spark.commands.access.change import changed, now_ms, operator
from bk_spark.commands.arguments import Commands, command, count, group_of
from bk_spark.commands.connect import metadata_store
from bk_spark.commands.output import Record, print_line, print_record, print_records, say
from bk_spark.errors import ConfigError
from bk_spark.gateway.access_rules import AccessContent, creation, revocation
from bk_spark.gateway.held_access import HOLD_S
from bk_spark.gateway.stored_access import StoredAccess
from bk_spark.gateway.tokens import StoredToken, check_token_name, new_token

DAY_MS = 24 * 3600 * 1000
MAX_DAYS = 36_500
"""A hundred years: who wants more wants --never-ends."""

_COLUMNS = ["name", "id", "state", "created", "ends", "made_by", "grants"]


def add(commands: Commands) -> None:
    group = group_of(commands, "token", "tokens, with which programs call a gateway")
    text = "make a token and print it, this once: only a hash of it is stored. Without grants it may do nothing"
    create = command(group, "create", text, _create)
    _add_name(create)
    ends = create.add_mutually_exclusive_group(required=True)
    text = "it ends N days from now, by the clock of this machine and those of the gateways"
    ends.add_argument("--ends-in-days", type=_days, metavar="N", help=text)
    text = "it lives until it is revoked: whoever finds a copy of it in some years may use it"
    ends.add_argument("--never-ends", action="store_true", help=text)
    command(group, "list", "all tokens: whether they live, until when, who made them, and how many grants they have", _list)
    text = f"end a token: gateways refuse its calls, and end its streams, within a second as a rule and {HOLD_S:g} s at most"
    _add_name(command(group, "revoke", text, _revoke))


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token_name", type=_name, metavar="NAME", help="the token's name; grants name it as token:NAME")


def _name(text: str) -> str:
    try:
        check_token_name(text)
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(f"{text!r:.300} is no name of a token: {problem.remedy}") from None
    return text


def _days(text: str) -> int:
    days = count(text)
    if not 1 <= days <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"{text} is no number of days from 1 to {MAX_DAYS}: --never-ends is for ever")
    return days


def _create(args: argparse.Namespace) -> None:
    token, created_ms = new_token(secrets.token_bytes), now_ms()
    ends_ms = None if args.never_ends else created_ms + args.ends_in_days * DAY_MS
    stored = StoredToken(token.token_id, args.token_name, token.digest, created_ms, ends_ms, operator())
    look = (
        f"'bk-spark token list' shows whether token '{stored.name}' was made; nobody has seen it, so revoke it "
        "and make another one"
    )
    with metadata_store(args) as (store, znodes):
        done = changed(StoredAccess(store, znodes), lambda content: creation(content, stored), look)
    for old in done.change.revoked:
        say(f"the token of this name that ended on {_time(old.ends_ms)} (id {old.token_id}) is removed")
    _say_of_grants(done.content, stored)
    if args.json:
        print_record({"token": token.text, **_record(stored, done.content, as_json=True)}, as_json=True)
        return
    say("this is the token. It is printed this once, and stored nowhere: keep it as a password")
    print_line(token.text)


def _say_of_grants(content: AccessContent, stored: StoredToken) -> None:
    found = content.grants_of(stored.identity)
    if not found:
        say(f"it may do nothing yet: 'bk-spark grant add token:{stored.name} --logs PATTERN --right read' gives it a right")
        return
    logs = ", ".join(dict.fromkeys(grant.logs for grant in found))
    say(f"it has {len(found)} grants that {stored.identity} had before: {logs[:1000]}")


def _list(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        content = StoredAccess(store, znodes).read()
    tokens = sorted(content.tokens.values(), key=lambda token: (token.name, token.created_ms))
    print_records([_record(token, content, as_json=args.json) for token in tokens], _COLUMNS, as_json=args.json)


def _revoke(args: argparse.Namespace) -> None:
    look = f"'bk-spark token list' shows whether token '{args.token_name}' is there still: revoke it again"
    with metadata_store(args) as (store, znodes):
        done = changed(StoredAccess(store, znodes), lambda content: revocation(content, args.token_name), look)
    for token in done.change.revoked:
        print_record({**_record(token, done.content, as_json=args.json), "state": "revoked"}, as_json=args.json)
        left = len(done.content.grants_of(token.identity))
        if left:
            say(
                f"{left} grants of {token.identity} stay, and are those of the next token of this name: "
                f"'bk-spark grant remove token:{token.name} --all' removes them"
            )


def _record(token: StoredToken, content: AccessContent, *, as_json: bool) -> Record:
    record: dict[str, object] = {
        "name": token.name,
        "id": token.token_id,
        "state": "ended" if token.has_ended(now_ms()) else "lives",
    }
    if as_json:
        record |= {"created_ms": token.created_ms, "ends_ms": token.ends_ms}
    else:
        record |= {"created": _time(token.created_ms), "ends": _time(token.ends_ms)}
    return {**record, "made_by": token.made_by, "grants": len(content.grants_of(token.identity))}


def _time(at_ms: int | None) -> str:
    return "never" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
