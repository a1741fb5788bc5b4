"""What else a caller may have done with a log: one action of Flight each. Bodies and results are JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError
from bk_spark.gateway.flight.requests import AskedAction
from bk_spark.gateway.rights import Right
from bk_spark.log.log_handle import Log
from bk_spark.log.stored.values import LogVersion


@dataclass(frozen=True, slots=True)
class Action:
    """One that needs a right for the log that its body names."""

    right: Right
    text: str
    """What it does, and its body and results."""
    run: Callable[[BookKeeper, AskedAction], Iterator[dict[str, object]]]


def _create(client: BookKeeper, asked: AskedAction) -> Iterator[dict[str, object]]:
    log = client.open_log(asked.log, create=True)
    yield {"log": log.name, "version": log.snapshot().version}


def _delete(client: BookKeeper, asked: AskedAction) -> Iterator[dict[str, object]]:
    client.open_log(asked.log).delete()
    yield {"log": asked.log, "deleted": True}


def _truncate(client: BookKeeper, asked: AskedAction) -> Iterator[dict[str, object]]:
    assert asked.before is not None, "parse_action sees to that"
    yield _version(client.open_log(asked.log).truncate(asked.before))


def _versions(client: BookKeeper, asked: AskedAction) -> Iterator[dict[str, object]]:
    for version in client.open_log(asked.log).versions():
        yield _version(version)


def _show(client: BookKeeper, asked: AskedAction) -> Iterator[dict[str, object]]:
    log = client.open_log(asked.log)
    snapshot, retention = log.snapshot(), log.retention
    yield {
        "log": log.name,
        "version": snapshot.version,
        "time_ms": snapshot.time_ms,
        "content": None if snapshot.content is None else snapshot.content.value,
        "ledgers": _ledgers(log),
        "open_ledgers": len(snapshot.open_ledgers),
        "rows": sum(one.rows for one in snapshot.ledgers),
        "bytes": sum(one.length for one in snapshot.ledgers),
        "key": list(snapshot.lanes.columns),
        "lanes": snapshot.lanes.count,
        "has_tier": snapshot.tier is not None,
        "version_retention_s": retention.version_retention_s,
        "retention_s": retention.retention_s,
        "retention_bytes": retention.retention_bytes,
    }


def _compact(client: BookKeeper, asked: AskedAction) -> Iterator[dict[str, object]]:
    report = client.open_log(asked.log).compact_by_key()
    yield {
        "log": report.log,
        "version": report.version,
        "commits": report.commits,
        "removed_rows": report.removed.rows,
        "added_rows": report.added.rows,
    }


ACTIONS: Final[dict[str, Action]] = {
    "create": Action(Right.MANAGE, 'makes a log without rows, if there is none: {"log"}', _create),
    "delete": Action(Right.MANAGE, 'deletes a log and all its rows: {"log"}', _delete),
    "truncate": Action(
        Right.MANAGE, 'removes the ledgers that are wholly before a place: {"log", "before": [ledger, entry]}', _truncate
    ),
    "compact": Action(Right.MANAGE, 'keeps the newest row of each key: {"log"}', _compact),
    "versions": Action(Right.READ, 'every commit that can be read, a result each, oldest first: {"log"}', _versions),
    "show": Action(Right.READ, 'how a log stands, with its ledgers: {"log"}', _show),
}
HEALTH: Final = "health"
HEALTH_TEXT: Final = "whether the gateway serves and its cluster answers; needs an identity, no right and no body"


def action_of(name: str) -> Action:
    """Raises ConfigError."""
    if name not in ACTIONS:
        raise ConfigError("the action", name[:100], f"there is none of this name, there are {', '.join([*ACTIONS, HEALTH])}")
    return ACTIONS[name]


def packed(result: dict[str, object]) -> bytes:
    return json.dumps(result).encode()


def _version(version: LogVersion) -> dict[str, object]:
    return {
        "version": version.version,
        "time_ms": version.time_ms,
        "kind": version.kind.value,
        "rows": version.total.rows,
        "added_rows": version.added.rows,
        "removed_rows": version.removed.rows,
        "application": version.application,
    }


MOST_LEDGERS: Final = 1_000
"""Of one answer of ``show``, the first ones: a place to truncate at is among them, or another ``show`` follows."""


def _ledgers(log: Log) -> list[dict[str, object]]:
    listed = log.snapshot().ledgers[:MOST_LEDGERS]
    return [{"ledger": one.ledger_id, "entries": one.last_entry_id + 1, "rows": one.rows, "lane": one.lane} for one in listed]
