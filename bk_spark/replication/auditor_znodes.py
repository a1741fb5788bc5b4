"""The auditor's znodes: votes of the election, requests for audits, the auditor's report, and the time of the last check.

An operator's **request** stays until an auditor, whoever that is then, has fulfilled it. It is removed at the version that was
read before the audit began, so a request that is made during an audit causes another audit. The **report** is ephemeral JSON
for people and the dashboard; no program decides by it. **Apache's tools** ask for an audit in another way: they write the delay
after which Apache's auditors take a bookie for lost, with the value that it has. Only that it is written counts here; the delay
is a setting of each of our auditors. The **time of the last check** of all replicas is Apache BookKeeper's
znode: it keeps the interval between checks although auditors come and go.

``time``: the check's interval is days long and counts across auditors, so it goes by the wall clock.

Ref: docs/formats.md, "Znodes of re-replication".
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from bk_spark.errors import CorruptionError, MetadataConflictError
from bk_spark.metadata.protobuf_text import from_text, to_text
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Versioned,
    find,
    find_children,
)
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.under_replication_pb2 import AuditorVoteFormat, CheckAllLedgersFormat
from bk_spark.replication.lost_bookies import Observation

BOOKIES = b"bookies"
REPLICAS = b"replicas"

REPORT_VERSION = 1

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9:._-]")
_TOKEN = re.compile(r"-[0-9a-f]{32}$")

_ATTEMPTS = 20
"""How often ``request_audit`` tries again because a request was made or fulfilled at the same time."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """An operator's request for an audit."""

    reads_replicas: bool
    """True: check all replicas too. False: audit only all ledgers' metadata."""
    version: int
    modified_ms: int


class AuditorZnodes:
    """What the auditor reads and writes. All methods raise MetadataUnavailableError, and may then be repeated."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._reported = b""
        self._delay: Versioned | None = None

    def request(self) -> AuditRequest | None:
        found = self._store.get_many([self._znodes.audit_request])[0]
        return None if found is None else AuditRequest(found.value == REPLICAS, found.version, found.modified_ms)

    def fulfil(self, request: AuditRequest) -> None:
        """Remove the request, unless it was made again since it was read."""
        with contextlib.suppress(NoNodeError, BadVersionError):
            self._store.delete(self._znodes.audit_request, request.version)

    def start_delay(self, grace_s: float) -> None:
        """Make the delay if there is none, since Apache's tools do nothing without it, and take it as seen."""
        with contextlib.suppress(NodeExistsError):
            self._store.create(self._znodes.lost_bookie_delay, b"%d" % grace_s, make_parents=True)
        self._delay = find(self._store, self._znodes.lost_bookie_delay)

    def is_audit_signalled(self) -> bool:
        """Whether the delay was written since the last look, with the value that it had, or with 0.

        Another value is a new delay for Apache's auditors, and asks for nothing.
        """
        before, self._delay = self._delay, find(self._store, self._znodes.lost_bookie_delay)
        if self._delay is None or (before is not None and self._delay.version == before.version):
            return False
        return self._delay.value == b"0" or (before is not None and self._delay.value == before.value)

    def report(self, seen: Mapping[str, object]) -> None:
        """Publish what the auditor sees, if it changed."""
        value = json.dumps({"version": REPORT_VERSION, **seen}).encode()
        if value == self._reported:
            return
        try:
            self._store.create(self._znodes.auditor_report, value, ephemeral=True, make_parents=True)
        except NodeExistsError:
            # This session made it: an earlier auditor's report disappeared before its vote did.
            self._overwrite(self._znodes.auditor_report, value)
        self._reported = value

    def withdraw_report(self) -> None:
        """Remove the report. Call this before the vote is withdrawn."""
        if self._reported:
            found = find(self._store, self._znodes.auditor_report)
            if found is not None and found.value == self._reported:  # otherwise another auditor has reported since
                with contextlib.suppress(NoNodeError, BadVersionError):
                    self._store.delete(self._znodes.auditor_report, found.version)
            self._reported = b""

    def start_check_interval(self) -> None:
        """In a cluster that was never checked, count the interval from now."""
        with contextlib.suppress(NodeExistsError):
            self._store.create(self._znodes.ledger_check_time, _encoded_now(), make_parents=True)

    def is_check_due(self, interval_s: float) -> bool:
        """Whether the last check is ``interval_s`` ago, or its time is missing, malformed, or over a minute in the future."""
        found = self._store.get_many([self._znodes.ledger_check_time])[0]
        try:
            checked_ms = None if found is None else CheckAllLedgersFormat.FromString(found.value).checkAllLedgersCTime
        except DecodeError:
            return True
        now_ms = time.time() * 1000
        return checked_ms is None or not now_ms - interval_s * 1000 < checked_ms <= now_ms + 60_000

    def note_check(self) -> None:
        """Record that a check is complete now."""
        self._overwrite(self._znodes.ledger_check_time, _encoded_now())

    def _overwrite(self, path: str, value: bytes) -> None:
        with contextlib.suppress(NoNodeError, BadVersionError):
            self._store.set(path, value, self._store.get(path).version)


def observe_bookies(store: MetadataStore, znodes: Znodes, marks: int) -> Observation:
    """Which bookies are registered now. Registrations are not decoded: the names alone count."""
    store.sync(znodes.available)
    writable = set(store.children(znodes.available)) - {znodes.read_only.rsplit("/", 1)[1]}
    registered = frozenset(writable.union(store.children(znodes.read_only)))
    return Observation(registered, frozenset(store.children(znodes.cookies)), marks)


def request_audit(store: MetadataStore, znodes: Znodes, *, reads_replicas: bool) -> None:
    """Ask for an audit. The auditor begins it at once; if there is none, the next auditor does.

    A request that is already there is repeated, and may be extended to all replicas, but never reduced.
    """
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
    """Whether a request for an audit is not fulfilled yet."""
    return AuditorZnodes(store, znodes).request() is not None


def auditor_report(store: MetadataStore, znodes: Znodes) -> dict[str, Any] | None:
    """The auditor's report; None if there is no auditor, or it has not reported yet."""
    found = store.get_many([znodes.auditor_report])[0]
    try:
        report = None if found is None else json.loads(found.value)
    except ValueError:
        return None
    return report if isinstance(report, dict) and report.get("version") == REPORT_VERSION else None


def _encoded_now() -> bytes:
    return CheckAllLedgersFormat(checkAllLedgersCTime=int(time.time() * 1000)).SerializeToString(deterministic=True)


class AuditorElection:
    """One candidate for auditor. The candidate with the oldest vote is elected.

    A vote is an ephemeral sequential znode: it disappears with its maker's session, and the next oldest vote wins. Its value
    holds a random token, by which a candidate recognises its own vote even if the answer to its creation was lost. Name and
    token together have only the characters of a bookie id: Apache's tools ask for the auditor's before they trigger an audit.

    Two candidates may both believe that they are elected, for a moment: one that was suspended until its session had expired
    believes it until it asks again. That is harmless. An auditor only reads ledgers and marks them. Marks are idempotent and
    grow by compare-and-set, so two auditors together mark what each would mark alone; a needless mark costs a worker one
    look, which finds all copies in place. An auditor asks before each page of marks, so it stops soon.

    All methods raise MetadataUnavailableError, and may then be repeated.

    Ref: Apache BookKeeper's ZkLedgerAuditorManager; situation 78; docs/formats.md.
    """

    def __init__(self, store: MetadataStore, znodes: Znodes, auditor_id: str) -> None:
        self._store = store
        self._znodes = znodes
        self.votes = 0
        """How many votes it has made. A term ends with its vote, even if the candidate's next vote is elected at once."""
        name = _NOT_IN_IDS.sub("_", auditor_id)
        self._value = to_text(AuditorVoteFormat(bookieId=f"{name}-{uuid.uuid4().hex}"))
        self._vote = ""
        """The path of its vote, once known."""

    def is_elected(self) -> bool:
        """Whether this candidate has the oldest vote. It votes first, if it has no vote or lost it with its session.

        All candidates ask all the time, so one that knows its own vote reads no other.
        """
        self._store.sync(self._znodes.root)
        paths = _vote_paths(self._store, self._znodes)
        if self._vote not in paths or not self._is_own(self._vote):
            paths = self._find_or_vote()
        return paths[:1] == [self._vote]

    def _is_own(self, path: str) -> bool:
        """Names are used again once the directory of votes was deleted and made anew: only the value tells."""
        found = find(self._store, path)
        return found is not None and found.value == self._value

    def _find_or_vote(self) -> list[str]:
        """Learn the path of its vote. Returns the paths of all votes, the oldest first."""
        votes = _votes(self._store, self._znodes)
        if self._value not in votes.values():
            self._store.ensure_path(self._znodes.auditor_election)
            self.votes += 1
            self._store.create_sequential(self._znodes.auditor_vote_prefix, self._value, ephemeral=True)
            votes = _votes(self._store, self._znodes)
        self._vote = next((path for path, value in votes.items() if value == self._value), "")
        return list(votes)

    def withdraw(self) -> None:
        """Delete the vote, so that another candidate is elected at once."""
        for path, value in _votes(self._store, self._znodes).items():
            if value == self._value:
                with contextlib.suppress(NoNodeError):
                    self._store.delete(path, ANY_VERSION)


def current_auditor(store: MetadataStore, znodes: Znodes) -> str | None:
    """The id of the elected auditor; None without candidates."""
    return next(iter(candidates(store, znodes)), None)


def candidates(store: MetadataStore, znodes: Znodes) -> list[str]:
    """The ids of all candidates, the auditor first."""
    return [_auditor_id(value) for value in _votes(store, znodes).values()]


def _votes(store: MetadataStore, znodes: Znodes) -> dict[str, bytes]:
    """Path → value of each vote, the oldest vote first."""
    paths = _vote_paths(store, znodes)
    return {path: found.value for path, found in zip(paths, store.get_many(paths), strict=True) if found is not None}


def _vote_paths(store: MetadataStore, znodes: Znodes) -> list[str]:
    """Of all votes, the oldest first."""
    paths = [f"{znodes.auditor_election}/{name}" for name in find_children(store, znodes.auditor_election)]
    return sorted(path for path in paths if path.startswith(znodes.auditor_vote_prefix))


def _auditor_id(vote: bytes) -> str:
    """The candidate's id without its token; the whole value if it does not have a vote's format."""
    try:
        return _TOKEN.sub("", from_text(vote, AuditorVoteFormat(), "a vote").bookieId)
    except CorruptionError:
        return vote.decode(errors="replace")
