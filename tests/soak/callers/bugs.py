"""Deliberate bugs of a gateway, one for each kind of difference that a history must find."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from bk_spark.gateway import service
from bk_spark.gateway.calls import actions, appends, reads
from bk_spark.gateway.calls.appends import WholeStream
from bk_spark.gateway.calls.reads import PlannedRead
from bk_spark.gateway.granted_access import GrantedAccess
from bk_spark.gateway.held_access import Held, HeldAccess
from bk_spark.gateway.rights import CallerIdentity, Right, Rights
from bk_spark.gateway.stored_access import StoredAccess

_appended, _append, _planned, _parts = appends._appended, service.append, reads.planned_read, PlannedRead._parts
_allows, _check, _looked, _read_all = Rights.allows, GrantedAccess.check, HeldAccess._looked, StoredAccess.read
_truncate, _listed = actions._truncate, service.listed_logs


def _without_application(client: Any, rows: Any, asked: Any) -> Any:
    return _appended(client, rows, replace(asked, application=None))


def _merging(client: Any, rows: Any, asked: Any) -> Any:
    return _appended(client, rows, replace(asked, merge_schema=True))


def _told_the_newest_version(client: Any, call: Any, messages: Any, asked: Any) -> bytes:
    answer = json.loads(_append(client, call, messages, asked))
    return json.dumps({**answer, "version": client.open_log(asked.log).snapshot().version}).encode()


def _never_already(client: Any, call: Any, messages: Any, asked: Any) -> bytes:
    return json.dumps({**json.loads(_append(client, call, messages, asked)), "already": False}).encode()


def _planned_with(**changes: Any) -> Callable[..., PlannedRead]:
    return lambda log, asked: _planned(log, replace(asked, **changes))


def _of_all_rows(log: Any, asked: Any) -> PlannedRead:
    return _planned(log, replace(asked, rows=replace(asked.rows, where=None)))


def _of_all_columns(log: Any, asked: Any) -> PlannedRead:
    return _planned(log, replace(asked, rows=replace(asked.rows, columns=None)))


def _without_the_last_part(self: PlannedRead) -> Any:
    parts = _parts(self)
    return parts[:-1] if len(parts) > 1 else parts


def _append_reads(self: Rights, identity: CallerIdentity, right: Right, log: str) -> bool:
    return _allows(self, identity, right, log) or (right is Right.READ and _allows(self, identity, Right.APPEND, log))


def _checked_but_for_creations(self: GrantedAccess, identity: Any, right: Any, log: str, peer: str = "") -> None:
    if right is not Right.MANAGE:
        _check(self, identity, right, log, peer)


def _with_the_first_grants(self: HeldAccess, before: Held | None) -> Held:
    looked = _looked(self, before)
    return looked if before is None or not before.content.grants else replace(looked, rights=before.rights)


def _tokens_never_end(self: StoredAccess) -> Any:
    content = _read_all(self)
    known = {**getattr(self, "_ever", {}), **content.tokens}
    vars(self)["_ever"] = known
    return replace(content, tokens=known)


def _one_ledger_too_few(client: Any, asked: Any) -> Any:
    ids = [one.ledger_id for one in client.open_log(asked.log).ledgers()]
    place = max(0, ids.index(asked.before.ledger_id) - 1)
    return _truncate(client, replace(asked, before=replace(asked.before, ledger_id=ids[place])))


def _not_deleted(client: Any, asked: Any) -> Iterator[dict[str, object]]:
    client.open_log(asked.log)
    yield {"log": asked.log, "deleted": True}


def _lists_all(client: Any, asked: Any, may_see: Any, locations: Any) -> Any:
    return _listed(client, asked, lambda name: True, locations)


def _action(name: str, run: Any) -> tuple[Any, str, Any]:
    return actions, "ACTIONS", {**actions.ACTIONS, name: replace(actions.ACTIONS[name], run=run)}


BUGS: dict[str, tuple[Any, str, Any]] = {
    "the application of an append is forgotten": (appends, "_appended", _without_application),
    "an application of one caller is that of all": (appends, "own_application", lambda identity, application: application),
    "columns are merged unasked": (appends, "_appended", _merging),
    "a repeated append is told another version": (service, "append", _told_the_newest_version),
    "a repeated append is not told so": (service, "append", _never_already),
    "an append that was cut off is committed": (WholeStream, "_check_end", lambda self: None),
    "a read is of the newest version": (reads, "planned_read", _planned_with(version=None)),
    "a read begins at the beginning": (reads, "planned_read", _planned_with(start=None)),
    "a read ends at the end": (reads, "planned_read", _planned_with(end=None)),
    "a read takes a log that was made anew": (reads, "planned_read", _planned_with(uid=None)),
    "a condition is not looked at": (reads, "planned_read", _of_all_rows),
    "columns are not chosen": (reads, "planned_read", _of_all_columns),
    "the last part of a read has no ticket": (PlannedRead, "_parts", _without_the_last_part),
    "whoever may append may read": (Rights, "allows", _append_reads),
    "nobody asks for the right to manage": (GrantedAccess, "check", _checked_but_for_creations),
    "a grant is not noticed, nor its removal": (HeldAccess, "_looked", _with_the_first_grants),
    "a revoked token lives on": (StoredAccess, "read", _tokens_never_end),
    "every log is listed": (service, "listed_logs", _lists_all),
    "a truncation stops too early": _action("truncate", _one_ledger_too_few),
    "a deletion does nothing": _action("delete", _not_deleted),
}


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """With the deliberate bug of that name; with none for ""."""
    if not bug:
        yield
        return
    with mock.patch.object(*BUGS[bug]):
        yield
