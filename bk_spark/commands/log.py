"""``bk-spark log``: what a log is, and its deletion. ``log_rows.py`` reads and appends, ``log_changes.py`` is for operators."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands import log_changes, log_rows
from bk_spark.commands.arguments import Commands, command, count, group_of
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.log_changes import log_command
from bk_spark.commands.log_compaction import described
from bk_spark.commands.output import Record, print_json, print_line, print_record, print_records, readable, say
from bk_spark.commands.program.question import add_yes, check_wanted
from bk_spark.errors import BookKeeperError, ConfigError, MetadataAccessError, NoSuchLogError
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.values import CommittedLedger, Head, LogVersion, OpenLedger, Retention
from bk_spark.log.stream.cursors import Cursor
from bk_spark.log.stream.follow import LogFollower
from bk_spark.log.stream.order import FAIL
from bk_spark.log.tier.standing import TierStandings

_COMMITS = ["version", "time", "kind", "rows", "added", "removed", "application"]
_CURSORS = ["cursor", "lag_rows", "lag_bytes", "oldest_unread", "version", "ledger_id", "entry_id", "updated"]


def add(commands: Commands) -> None:
    group = group_of(commands, "log", "logs: named, ordered lists of ledgers")
    command(group, "list", "all logs", _list)
    show = log_command(group, "show", "one log's state, commits, ledgers, and the streams that read it", _show)
    text = "at most N commits and N ledgers, the last ones (default %(default)s)"
    show.add_argument("--limit", type=count, default=20, metavar="N", help=text)
    log_rows.add(group)
    text = "delete one log and all its ledgers for good; on a terminal it asks first"
    delete = log_command(group, "delete", text, _delete)
    add_yes(delete)
    delete.add_argument("--drop-table", action="store_true", help="drop the table of its tier, too, with all its files")
    log_changes.add(group)
    log_changes.add_orphans(commands)


def _list(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        records = []
        for name in client.list_logs():
            try:
                head = client.logs.names.head(name, client.logs.names.uid(name))
            except NoSuchLogError:
                continue  # it was deleted between the two calls
            records.append({"log": name, **_summary(head, args.json)})
        print_records(records, ["log", "content", "version", "ledgers", "open", "rows", "size"], as_json=args.json)


def _show(args: argparse.Namespace) -> None:
    """A log's state, then its newest commits, its last ledgers, and the streams that read it."""
    with bookkeeper(args) as client:
        snapshot = client.logs.reader.snapshot(args.name)
        head = client.logs.names.head(args.name, snapshot.uid)
        record = {"log": args.name, "uid": snapshot.uid, **_summary(head, args.json), **_state(head, snapshot, args.json)}
        if head.tier is not None:
            record |= _tier(client, args.name, snapshot.uid, head, args.json)
        first = max(head.oldest_record, 1, snapshot.version - args.limit + 1)
        versions = client.logs.reader.versions(args.name, snapshot.uid, first, snapshot.version)
        shown = list(versions)
        commits = [_commit(version) for version in shown]
        transactions = _unless_refused(lambda: _transactions(client, shown, args.json))
        listed: list[CommittedLedger | OpenLedger] = [*snapshot.ledgers, *snapshot.open_ledgers]
        ledgers = [_ledger(ledger) for ledger in listed[max(len(listed) - args.limit, 0) :]]
        follower = LogFollower(client.logs.reader, args.name, snapshot.uid, FAIL, client.existing_ledgers)
        cursors = _unless_refused(
            lambda: [_cursor(cursor, head, follower, args.json) for cursor in client.logs.cursors.all(args.name, snapshot.uid)]
        )
    if args.json:
        print_json({**record, "commits": commits, "transactions": transactions, "in_ledgers": ledgers, "cursors": cursors})
        return
    print_record(record, as_json=False)
    _section("newest commits", commits, [*_COMMITS, *(["transaction"] if transactions else [])])
    _section(
        "transactions, and the version that each made in each log", transactions or [], ["transaction", "application", "logs"]
    )
    of_lanes = ["lane"] if head.lanes.columns else []
    _section("last ledgers", ledgers, ["ledger_id", *of_lanes, "state", "entries", "rows", "length"])
    _section(
        "streams that read it",
        cursors or [],
        _CURSORS,
    )
    if head.version - head.oldest_version > len(commits) or len(snapshot.ledgers) > len(ledgers):
        say(f"the last {args.limit} of commits and ledgers are shown: --limit N shows more")


def _delete(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        total = _total(client, args.name)
        table = _table(client, args.name)
        if table is not None and not args.drop_table:
            say(f"the table of its tier, {table}, stays: --drop-table drops it, too")
        check_wanted(args, "log", args.name if table is None or not args.drop_table else f"{args.name} and its table {table}")
        if args.drop_table and total["rows"] is not None:
            client.open_log(args.name).delete(drop_table=True)
        else:
            if args.drop_table:
                say(f"a deletion of log '{args.name}' was begun before: a table of its tier that is there still stays")
            client.logs.deleter.delete(args.name)
    of_table = {} if table is None else {"table": table, "table_dropped": args.drop_table}
    print_record({"log": args.name, "deleted": True, **total, **of_table}, as_json=args.json)


def _table(client: BookKeeper, name: str) -> str | None:
    """That of the log's tier."""
    try:
        uid = client.logs.names.uid(name)
        has_tier = client.logs.names.head(name, uid).tier is not None
        return client.logs.reader.tier.settings(name, uid).table if has_tier else None
    except NoSuchLogError:
        return None  # a deletion was begun before


def _total(client: BookKeeper, name: str) -> dict[str, int | None]:
    """What the log held: None where a deletion was begun before."""
    try:
        head = client.logs.names.head(name, client.logs.names.uid(name))
    except BookKeeperError:
        return {"ledgers": None, "rows": None}
    return {"ledgers": head.total.ledgers + len(head.writer.open_ledgers), "rows": head.total.rows}


def _unless_refused(read: Callable[[], list[Record]]) -> list[Record] | None:
    """None, with a line that says why, to who reads the log directly: members alone see other logs and who reads this one."""
    try:
        return read()
    except MetadataAccessError as refused:
        say(f"not shown: {refused}")
        return None


def _section(title: str, records: Sequence[Record], columns: Sequence[str]) -> None:
    if records:
        print_line(f"\n{title}:")
        print_records(records, columns, as_json=False)


def _summary(head: Head, as_json: bool) -> dict[str, object]:
    return {
        "content": None if head.content is None else head.content.value,
        "version": head.version,
        "ledgers": head.total.ledgers,
        "open": len(head.writer.open_ledgers),
        "rows": head.total.rows,
        "size": head.total.length if as_json else readable(head.total.length),
    }


def _state(head: Head, snapshot: LogSnapshot, as_json: bool) -> dict[str, object]:
    schema = None if snapshot.schema_json is None else json.loads(snapshot.schema_json)
    return {
        "committed": _time(snapshot.time_ms),
        **({"partition_key": head.lanes.columns, "lanes": head.lanes.count} if as_json else {"lanes": str(head.lanes)}),
        "schema": schema if as_json else _columns(schema),
        "first_row": head.first_row,
        "end_row": head.end_row,
        "oldest_version": head.oldest_version,
        "epoch": head.writer.epoch,
        "open_ledgers": [ledger.ledger_id for ledger in head.writer.open_ledgers],
        **(asdict(head.retention) if as_json else {"keeps": _retention(head.retention)}),
        **described(head.compaction),
        "secured": head.is_secured,
    }


def _tier(client: BookKeeper, name: str, uid: str, head: Head, as_json: bool) -> Record:
    """Where the tier lies, how much of the log's newest version is in it, what waits, and what is on bookies no more."""
    settings = client.logs.reader.tier.settings(name, uid)
    found, size = TierStandings(client.logs).of(name, uid, head), int if as_json else readable
    return {
        "tier": f"table {settings.table} at {settings.location}",
        "tiered_ledgers": found.tiered.ledgers,
        "tiered_rows": found.tiered.rows,
        "tiered_bytes": size(found.tiered.length),
        "released_ledgers": found.released.ledgers,
        "released_bytes": size(found.released.length),
        "tier_lag_rows": found.waiting.rows,
        "tier_lag_bytes": size(found.waiting.length),
        "tier_waits_since": None if found.since_ms is None else _time(found.since_ms),
    }


def _retention(retention: Retention) -> str:
    age = "for ever" if retention.retention_s is None else f"{retention.retention_s} s"
    size = "" if retention.retention_bytes is None else f", the last {readable(retention.retention_bytes)} at least"
    return f"old versions {retention.version_retention_s} s, data {age}{size}"


def _commit(version: LogVersion) -> Record:
    made = version.transaction
    return {
        "version": version.version,
        "time": _time(version.time_ms),
        "kind": version.kind.value,
        "rows": version.added.rows + sum(ledger.rows for ledger in version.closed),
        "added": version.added.ledgers + (version.opened is not None),
        "removed": version.removed.ledgers,
        "application": _application(version.application),
        "transaction": None if made is None else made.transaction_id,
    }


def _transactions(client: BookKeeper, versions: Sequence[LogVersion], as_json: bool) -> list[Record]:
    """Those that made some of the versions. A log that was deleted since is shown by its id."""
    made = [version.transaction for version in versions if version.transaction is not None]
    heads = {uid: client.logs.names.head_of(uid) for one in made for uid in (change.uid for change in one.changes)}
    names = {uid: uid if head is None else head.name for uid, head in heads.items()}
    found: list[Record] = []
    for one in made:
        logs = {names[change.uid]: change.version for change in one.changes}
        text = ", ".join(f"{name} {version}" for name, version in sorted(logs.items()))
        record = {"transaction": one.transaction_id, "application": _application(one.application)}
        found.append({**record, "logs": logs if as_json else text})
    return found


def _application(given: tuple[str, int] | None) -> str | None:
    return None if given is None else f"{given[0]}:{given[1]}"


def _ledger(ledger: CommittedLedger | OpenLedger) -> Record:
    if isinstance(ledger, OpenLedger):
        return {"ledger_id": ledger.ledger_id, "lane": 0, "state": "open", "entries": None, "rows": None, "length": None}
    return {
        "ledger_id": ledger.ledger_id,
        "lane": ledger.lane,
        "state": "closed",
        "entries": ledger.last_entry_id + 1,
        "rows": ledger.rows,
        "length": ledger.length,
    }


def _cursor(published: Cursor, head: Head, follower: LogFollower, as_json: bool) -> Record:
    """The cursor, with the row number that its position has now: the stream published the one that it knew then."""
    try:
        cursor = replace(published, row=follower.row_number(published.position, head))
    except ConfigError:
        cursor = published  # its version's record was vacuumed
    unread = follower.unread(cursor.position, head)
    nbytes = None if unread is None else unread.nbytes
    return {
        "cursor": cursor.name,
        "lag_rows": cursor.lag(head),
        "lag_bytes": nbytes if as_json or nbytes is None else readable(nbytes),
        "oldest_unread": None if unread is None or unread.since_ms is None else _time(unread.since_ms),
        "row": cursor.row,
        "version": cursor.position.version,
        "ledger_id": cursor.position.ledger_id,
        "entry_id": cursor.position.entry_id,
        "updated": _time(cursor.time_ms),
    }


def _time(time_ms: int) -> str:
    """Milliseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _columns(schema: dict[str, list[dict[str, object]]] | None) -> list[str]:
    columns = [] if schema is None else [(field["name"], field["type"]) for field in schema["fields"]]
    return [f"{name}: {kind.get('type', kind) if isinstance(kind, dict) else kind}" for name, kind in columns]
