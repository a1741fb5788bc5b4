"""Secures a log: its ledgers are keyed from then on, so that bookies let nobody read them who cannot read their metadata.

One transaction makes the log's secret and says in its head that it is secured. A job that has looked for the secret before then
writes ledgers without keys, and its commit is refused. A leader's open ledger is listed already: it is ended.

A second call does what the first one left undone. Ref: DESIGN.md, "Who may do what".
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from bk_spark.entries.log_secret import SECRET_BYTES, encode_secret
from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.log.log_store import LogStore
from bk_spark.metadata.registration import list_bookies
from bk_spark.metadata.store import Create, SetValue, StoreChange, TransactionFailedError, find

_TRIES = 100
"""Each further try means that a commit to the log succeeded meanwhile."""


@dataclass(frozen=True, slots=True)
class SecuredLog:
    """What ``Log.secure`` found and did."""

    log: str
    was_secured: bool
    """Before the call."""
    ledgers: int
    """That the newest version lists."""
    ledgers_without_key: int
    """Those of them that were written before: bookies let anybody read them who is let in."""


def secure(logs: LogStore, name: str, uid: str, end_leader: Callable[[], object]) -> SecuredLog:
    """See ``Log.secure``. ``end_leader`` closes the ledgers that a leader has open: what it confirmed stays."""
    was_secured = logs.names.fresh_head(name, uid).is_secured
    if not was_secured:
        _check_bookies(logs)
        _check_passwords(logs, name)
        _mark(logs, name, uid)
    open_ids = [one.ledger_id for one in logs.names.fresh_head(name, uid).writer.open_ledgers]
    if any(one is not None and not one.is_keyed for one in logs.ledgers.find(open_ids)):
        end_leader()
    listed = _listed(logs, name)
    without = sum(one is not None and not one.is_keyed for one in logs.ledgers.find(listed))
    return SecuredLog(name, was_secured, len(listed), without)


def _check_bookies(logs: LogStore) -> None:
    apache = [one.bookie_id for one in list_bookies(logs.store, logs.znodes) if one.is_apache]
    if apache:
        remedy = "it is a bookie of Apache BookKeeper, which lets everybody read: only a cluster without one can secure a log"
        raise ConfigError("a bookie of the cluster", apache[0], remedy)


def _check_passwords(logs: LogStore, name: str) -> None:
    """A log's ledgers are read with one password, and keyed ones without any."""
    for found in logs.ledgers.find(_listed(logs, name)):
        if found is not None and not found.is_opened_by(b""):
            remedy = f"ledger {found.ledger_id} has a password, and a secured log has none: write the rows to a new log"
            raise ConfigError("the log to secure", name, remedy)


def _listed(logs: LogStore, name: str) -> list[int]:
    """The ledgers of the newest version."""
    snapshot = logs.reader.snapshot(name)
    return [one.ledger_id for one in snapshot.ledgers] + [one.ledger_id for one in snapshot.open_ledgers]


def _mark(logs: LogStore, name: str, uid: str) -> None:
    paths, store = logs.names.paths(uid), logs.store
    for _ in range(_TRIES):
        store.sync(paths.head)
        head, version = logs.names.stored_head(name, uid)
        if head.is_secured:
            return None
        changes: list[StoreChange] = [SetValue(paths.head, replace(head, is_secured=True).encode(), version)]
        if find(store, paths.secret) is None:
            changes.append(Create(paths.secret, encode_secret(secrets.token_bytes(SECRET_BYTES))))
        try:
            return store.transaction(changes)
        except TransactionFailedError:
            continue
    raise MetadataConflictError(f"log '{name}'", f"{_TRIES} commits came between: stop its writers for a moment, try again")
