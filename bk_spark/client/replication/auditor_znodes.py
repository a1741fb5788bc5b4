"""What auditors leave in the metadata store for one another and for people: requests, a report, the time of the last check.

An operator's **request** for an audit stands until it was fulfilled, by whoever is the auditor then: it is removed at the
version that was read before the audit began, so one that is made meanwhile is fulfilled by another audit. The **report** is
ephemeral, JSON, for people and the dashboard alone: no program decides by it. The **time of the last check** of all replicas is
Apache BookKeeper's znode: checks keep their interval although auditors come and go.

``time``: the check's interval is of days, and counts by the clock on the wall over all auditors.

Ref: docs/formats.md, "Znodes of re-replication".
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from bk_spark.client.replication.lost_bookies import Sight
from bk_spark.errors import CorruptionError, MetadataConflictError
from bk_spark.metadata.protobuf_text import from_text, to_text
from bk_spark.metadata.store import BadVersionError, MetadataStore, NodeExistsError, NoNodeError
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.under_replication_pb2 import AuditorVoteFormat, CheckAllLedgersFormat

BOOKIES = b"bookies"
REPLICAS = b"replicas"

REPORT_VERSION = 1

_ATTEMPTS = 20
"""How often a request is made anew because another one came, or was fulfilled, at the same time."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """An audit that somebody asked for."""

    reads_replicas: bool
    """With the check of all replicas; else the look at all ledgers' metadata alone."""
    version: int
    modified_ms: int


class AuditorZnodes:
    """The auditor's side. All raise MetadataUnavailableError, and may then be repeated."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._reported = b""

    def request(self) -> AuditRequest | None:
        found = self._store.get_many([self._znodes.audit_request])[0]
        return None if found is None else AuditRequest(found.value == REPLICAS, found.version, found.modified_ms)

    def fulfil(self, request: AuditRequest) -> None:
        """What was asked for before the audit began is done."""
        with contextlib.suppress(NoNodeError, BadVersionError):
            self._store.delete(self._znodes.audit_request, request.version)

    def report(self, seen: Mapping[str, object]) -> None:
        """Say what the auditor sees, if that is news."""
        value = json.dumps({"version": REPORT_VERSION, **seen}).encode()
        if value == self._reported:
            return
        path = self._znodes.auditor_report
        try:
            self._store.create(path, value, ephemeral=True, make_parents=True)
        except NodeExistsError:
            # Its owner is this session: that of an earlier auditor went before its vote did.
            with contextlib.suppress(NoNodeError, BadVersionError):
                self._store.set(path, value, self._store.get(path).version)
        self._reported = value

    def withdraw_report(self) -> None:
        """Before the vote is withdrawn."""
        if self._reported:
            with contextlib.suppress(NoNodeError):
                self._store.delete(self._znodes.auditor_report)
            self._reported = b""

    def keep_check_time(self) -> None:
        """In a cluster without a check the interval begins now."""
        with contextlib.suppress(NodeExistsError):
            self._store.create(self._znodes.ledger_check_time, _encoded_now(), make_parents=True)

    def is_check_due(self, interval_s: float) -> bool:
        """Whether the last check ended that long ago; also where that cannot be told."""
        checked_ms = self._checked_ms()
        return checked_ms is None or time.time() * 1000 >= checked_ms + interval_s * 1000

    def note_check(self) -> None:
        """A check is complete."""
        path = self._znodes.ledger_check_time
        with contextlib.suppress(NoNodeError, BadVersionError):
            self._store.set(path, _encoded_now(), self._store.get(path).version)

    def _checked_ms(self) -> int | None:
        """None if there was none, or if what stands there is no time, or one to come: then a check is due."""
        found = self._store.get_many([self._znodes.ledger_check_time])[0]
        try:
            checked_ms = None if found is None else CheckAllLedgersFormat.FromString(found.value).checkAllLedgersCTime
        except DecodeError:
            return None
        return None if checked_ms is None or checked_ms > time.time() * 1000 + 60_000 else checked_ms


def sight(store: MetadataStore, znodes: Znodes, marks: int) -> Sight:
    """Which bookies are registered now. Only the names count: whoever holds one is there."""
    store.sync(znodes.available)
    writable = set(store.children(znodes.available)) - {znodes.read_only.rsplit("/", 1)[1]}
    return Sight(frozenset(writable.union(store.children(znodes.read_only))), frozenset(store.children(znodes.cookies)), marks)


def request_audit(store: MetadataStore, znodes: Znodes, *, reads_replicas: bool) -> None:
    """Ask for an audit: the auditor begins it at once, a later one if there is none now. One that waits is only extended."""
    store.ensure_path(znodes.under_replication)
    for _ in range(_ATTEMPTS):
        found = store.get_many([znodes.audit_request])[0]
        value = REPLICAS if reads_replicas or (found is not None and found.value == REPLICAS) else BOOKIES
        with contextlib.suppress(NodeExistsError, NoNodeError, BadVersionError):
            if found is None:
                store.create(znodes.audit_request, value)
            else:
                store.set(znodes.audit_request, value, found.version)
            return
    raise MetadataConflictError(znodes.audit_request, f"{_ATTEMPTS} attempts to ask for an audit lost")


def is_requested(store: MetadataStore, znodes: Znodes) -> bool:
    """Whether an audit that was asked for is not fulfilled yet."""
    return store.get_many([znodes.audit_request])[0] is not None


def auditor_report(store: MetadataStore, znodes: Znodes) -> dict[str, Any] | None:
    """What the auditor sees; None if there is none, or it has not said so yet."""
    found = store.get_many([znodes.auditor_report])[0]
    try:
        report = None if found is None else json.loads(found.value)
    except ValueError:
        return None
    return report if isinstance(report, dict) and report.get("version") == REPORT_VERSION else None


def _encoded_now() -> bytes:
    return CheckAllLedgersFormat(checkAllLedgersCTime=int(time.time() * 1000)).SerializeToString(deterministic=True)


# --- Who is the auditor: of all that stand for election, the one with the oldest vote
#
# A vote is an ephemeral sequential znode, so it goes with the session of who made it, and the next oldest one takes over. A
# vote is known by a random token in its value: one that was made without its maker learning of it is its maker's all the
# same.
#
# Two may believe themselves elected for a moment: one that was suspended until after its session expired, until it asks
# again. It does no harm. All that an auditor does is to mark ledgers, and to read; marks are idempotent and grow by compare-
# and-set, so both together mark what each would have; and a mark too many costs one look of a worker, which finds all copies
# there. It asks before each page of marks, so it soon stops.
#
# Ref: Apache BookKeeper's ZkLedgerAuditorManager; situation 78; docs/formats.md.


class AuditorElection:
    """One candidate. All raise MetadataUnavailableError, and may then be repeated."""

    def __init__(self, store: MetadataStore, znodes: Znodes, auditor_id: str) -> None:
        self._store = store
        self._znodes = znodes
        self.votes = 0
        """How often it voted: an office ends with its vote, also if the next vote is elected at once."""
        self._value = to_text(AuditorVoteFormat(bookieId=f"{auditor_id} #{uuid.uuid4().hex}"))

    def is_elected(self) -> bool:
        """Whether this candidate has the oldest vote now; it votes if it has none, or lost it with its session."""
        self._store.sync(self._znodes.root)
        votes = _votes(self._store, self._znodes)
        if self._value not in votes.values():
            self._store.ensure_path(self._znodes.auditor_election)
            self.votes += 1
            self._store.create_sequential(self._znodes.auditor_vote_prefix, self._value, ephemeral=True)
            votes = _votes(self._store, self._znodes)
        return next(iter(votes.values()), None) == self._value

    def withdraw(self) -> None:
        """Take back the vote, so that another one is elected at once."""
        for path, value in _votes(self._store, self._znodes).items():
            if value == self._value:
                with contextlib.suppress(NoNodeError):
                    self._store.delete(path)


def current_auditor(store: MetadataStore, znodes: Znodes) -> str | None:
    """The id of the elected auditor; None if nobody stands for election."""
    value = next(iter(_votes(store, znodes).values()), None)
    return None if value is None else _decoded(value)


def candidates(store: MetadataStore, znodes: Znodes) -> list[str]:
    """The ids of all that stand for election, the auditor first."""
    return [_decoded(value) for value in _votes(store, znodes).values()]


def _votes(store: MetadataStore, znodes: Znodes) -> dict[str, bytes]:
    """Paths and values, the oldest vote first."""
    prefix = znodes.auditor_vote_prefix.rsplit("/", 1)[1]
    try:
        names = [name for name in store.children(znodes.auditor_election) if name.startswith(prefix)]
    except NoNodeError:
        return {}
    paths = [f"{znodes.auditor_election}/{name}" for name in sorted(names)]
    return {path: found.value for path, found in zip(paths, store.get_many(paths), strict=True) if found is not None}


def _decoded(value: bytes) -> str:
    """The candidate's id without its token; the value as it stands if it is no vote of this form."""
    try:
        return from_text(value, AuditorVoteFormat(), "a vote").bookieId.split(" #")[0]
    except CorruptionError:
        return value.decode(errors="replace")
