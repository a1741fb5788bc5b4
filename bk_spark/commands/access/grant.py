"""``bk-spark grant``: rights of tokens and certificates for logs, which gateways enforce."""

from __future__ import annotations

import argparse

from bk_spark.commands.access.change import GRANT_COLUMNS, changed, grant_records, identity, now_ms, pattern, rights
from bk_spark.commands.arguments import Commands, command, group_of, log_name
from bk_spark.commands.connect import metadata_store
from bk_spark.commands.output import print_record, print_records, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.gateway.access_rules import MOST_AT_ONCE, AccessContent, granting, removal
from bk_spark.gateway.rights import TOKEN, CallerIdentity, Grant, Right, matches
from bk_spark.gateway.stored_access import Decide, StoredAccess
from bk_spark.log.stored.names import LogNames

_IDENTITY = "token:NAME, or certificate:NAME for the common name of a client's certificate"
_PATTERN = "the name of a log, or how names begin and a *, such as 'shop.*'; '*' is every log"
_RIGHT = "read, append or manage, or several with commas between; none includes another"
_LOOK = "'bk-spark grant list' shows whether it was made: run this again, it does what is missing"


def add(commands: Commands) -> None:
    group = group_of(commands, "grant", "what tokens and certificates may do with logs through a gateway")
    add_ = command(group, "add", "give an identity rights for logs; what it has stays", _add)
    add_.add_argument("identity", type=identity, metavar="IDENTITY", help=_IDENTITY)
    add_.add_argument("--logs", type=pattern, required=True, metavar="PATTERN", help=_PATTERN)
    add_.add_argument("--right", type=rights, required=True, metavar="RIGHT", help=_RIGHT)
    list_ = command(group, "list", "all grants, or those of one identity, or for one log", _list)
    list_.add_argument("identity", type=identity, metavar="IDENTITY", nargs="?", help=f"only its grants: {_IDENTITY}")
    list_.add_argument("--log", type=log_name, metavar="NAME", help="only grants whose patterns cover the log of this name")
    text = "take rights away: gateways refuse what they allowed, and end its streams, as when a token is revoked"
    remove = command(group, "remove", text, _remove)
    remove.add_argument("identity", type=identity, metavar="IDENTITY", help=_IDENTITY)
    text = f"the pattern as it was granted, letter by letter: {_PATTERN}"
    remove.add_argument("--logs", type=pattern, metavar="PATTERN", help=text)
    text = f"{_RIGHT} (default: all that the identity has for the pattern)"
    remove.add_argument("--right", type=rights, default=tuple(Right), metavar="RIGHT", help=text)
    remove.add_argument("--all", action="store_true", help="whatever the pattern")


def _add(args: argparse.Namespace) -> None:
    wanted = [Grant(args.identity, args.logs, right) for right in args.right]
    with metadata_store(args) as (store, znodes):
        done = changed(StoredAccess(store, znodes), lambda content: granting(content, wanted), _LOOK)
        covered = sum(matches(args.logs, name) for name in LogNames(store, znodes).all())
    granted = [grant.right.value for grant in done.change.granted]
    record = {
        "identity": str(args.identity),
        "logs": args.logs,
        "granted": granted,
        "had_before": [grant.right.value for grant in wanted if grant.right.value not in granted],
        "logs_now": covered,
    }
    print_record(record, as_json=args.json)
    if not covered:
        say(f"no log is there now that '{args.logs}' covers")
    if not _is_there(done.content, args.identity):
        say(f"there is no {args.identity} now: 'bk-spark token create {args.identity.name} --ends-in-days 90' makes it")


def _is_there(content: AccessContent, identity: CallerIdentity) -> bool:
    """Whether somebody may call as this identity; of certificates nobody here knows."""
    living = [token for token in content.named(identity.name) if not token.has_ended(now_ms())]
    return identity.kind != TOKEN or bool(living)


def _list(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        content = StoredAccess(store, znodes).read()
    grants = content.grants.values() if args.identity is None else content.grants_of(args.identity)
    shown = [one for one in grants if args.log is None or matches(one.logs, args.log)]
    print_records(grant_records(shown, as_json=args.json), GRANT_COLUMNS, as_json=args.json)


def _remove(args: argparse.Namespace) -> None:
    if (args.logs is None) != args.all:
        raise UsageError("give --logs PATTERN, or --all")
    with metadata_store(args) as (store, znodes):
        access = StoredAccess(store, znodes)
        done = changed(access, _removal(args), _LOOK)
        removed = [*done.change.removed]
        while len(done.change.removed) == MOST_AT_ONCE:
            done = changed(access, _removal(args, begun=True), _LOOK)
            removed += done.change.removed
    print_records(grant_records(removed, as_json=args.json), GRANT_COLUMNS, as_json=args.json)
    left = len(done.content.grants_of(args.identity))
    say(f"{len(removed)} grants of {args.identity} were removed, {left} are left")


def _removal(args: argparse.Namespace, *, begun: bool = False) -> Decide:
    return lambda content: removal(content, args.identity, args.logs, args.right, begun=begun)
