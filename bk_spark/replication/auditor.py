"""The auditor's driver: stands for election, watches the bookies, starts audits when they are due, and reports what it sees.

One thread does all of this. It blocks only on the metadata store and on its own wake-up event. The check that reads all
replicas takes hours, so it runs on the client's event loop; the thread only starts it, cancels it, and records its end.

While the metadata store does not answer, the thread keeps trying. A lost session ends the term: the vote disappears with it,
another candidate is elected, and this one stands again with a fresh view. No work is lost, because a new auditor looks at all
bookies and ledgers itself, and a request for an audit stays in the store until it is fulfilled.

``threading`` and ``time``: this is a driver, with a thread of its own.

Ref: docs/rules.md, situations 78 and 79; docs/formats.md, "Znodes of re-replication".
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.metadata.registration import watch_bookies
from bk_spark.metadata.store import StoreError
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.auditor_znodes import AuditorElection, AuditorZnodes, AuditRequest, observe_bookies
from bk_spark.replication.ledger_audit import AllChecked, Audited, LedgerAudit, RackAudit
from bk_spark.replication.ledger_check import LedgerCheck
from bk_spark.replication.lost_bookies import LostBookies
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.telemetry.metrics import (
    AUDIT_S,
    AUDITS,
    IS_AUDITOR,
    LEDGERS_IN_FEW_RACKS,
    LOST_BOOKIES,
    UNDER_REPLICATED_LEDGERS,
)

POLL_S = 5.0
"""The longest pause between two steps: bounds the delay after a missed watch, and the age of the gauges."""

BACK_OFF_S = 1.0
"""The pause after the metadata store did not answer."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _RunningCheck:
    """A check of all replicas on the client's event loop."""

    future: Future[bool]
    began_s: float
    request: AuditRequest | None
    """The request that it fulfils; None for a periodic check."""


@dataclass(slots=True)
class _Term:
    """What the auditor knows during one term: from its election until it loses or gives up the office."""

    vote: int
    """The number of the elected vote (``AuditorElection.votes``)."""
    bookies: LostBookies
    audited_s: float
    """When the last audit of all ledgers' metadata ended, or the term began, by ``time.monotonic``."""
    racks: frozenset[str]
    """The racks that have had writable bookies ever since then. A further one may take copies of older ledgers."""
    in_few_racks: int = 0
    """Ledgers that could be in more racks, at the last audit."""
    has_moves_left: bool = False
    """Whether the last audit left some of them unmarked, and the one before helped."""
    marks: int = 0
    """Marked ledgers, when they were last counted."""
    last_audit: dict[str, object] = field(default_factory=dict)
    last_check: dict[str, object] = field(default_factory=dict)
    audited_request: AuditRequest | None = None
    """The last request for which all ledgers' metadata was audited."""
    check: _RunningCheck | None = None
    totals: AllChecked = field(default_factory=AllChecked)
    """The sums of the running check, or of a cancelled check that will be continued."""


class AuditorProcess:
    """One candidate for auditor, from ``start`` to ``stop``. ``auditor_id`` names it for people."""

    def __init__(
        self,
        context: ClientContext,
        config: AutoRecoveryConfig,
        *,
        marks: UnderReplication | None = None,
        auditor_id: str = "auditor",
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """``marks``: the process's UnderReplication, if it has one. ``on_failure``: called on its thread if a bug ends that."""
        store, znodes = context.store, context.znodes
        self._context = context
        self._config = config
        self._marks = marks or UnderReplication(store, znodes)
        self._election = AuditorElection(store, znodes, auditor_id)
        self._znodes = AuditorZnodes(store, znodes)
        self._audit = LedgerAudit(context, self._marks)
        self._check = LedgerCheck(context, config)
        self._auditor_id = auditor_id
        self._on_failure = on_failure
        self._term: _Term | None = None
        self._wake = threading.Event()
        self._stopping = False
        wake = self._wake.set
        self._unset_watches: list[Callable[[], object]] = [
            lambda: watch_bookies(store, znodes, wake),
            lambda: store.watch_children(znodes.auditor_election, wake),
            lambda: store.watch(znodes.audit_request, wake),
            lambda: store.watch(znodes.lost_bookie_delay, wake),
            lambda: self._marks.watch(wake),
        ]
        """Watches that are still to be set. Once set, a watch lasts until the store closes."""
        self._thread = threading.Thread(target=self._run, name="bk_spark auditor", daemon=True)

    @property
    def is_auditor(self) -> bool:
        """Whether it is the elected auditor, as far as it knows."""
        return self._term is not None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Cancel its work and give up the office, so that another candidate is elected at once. May be repeated."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                self._wake.wait(self._try_step())
            self._resign()
        except Exception:
            logger.exception("%s, as auditor or candidate, failed; please report this bug", self._auditor_id)
            self._end_term()
            self._on_failure()

    def _try_step(self) -> float:
        """``_step``, with expected errors logged."""
        try:
            return self._step()
        except MetadataUnavailableError as problem:
            logger.warning("the auditor waits: %s", problem)
        except (BookKeeperError, StoreError) as problem:
            logger.error("the auditor could not go on, and tries again: %r", problem)
        if self._term is not None:
            self._term.bookies.observe_nothing()
        return BACK_OFF_S

    def _step(self) -> float:
        """Do everything that is due. Returns the longest pause until the next step, in seconds."""
        while self._unset_watches:
            self._unset_watches[0]()
            self._unset_watches.pop(0)
        is_elected = self._election.is_elected()
        if self._term is not None and (not is_elected or self._term.vote != self._election.votes):
            self._end_term()
        if not is_elected:
            return POLL_S
        term = self._term or self._begin_term()
        term.marks = self._marks.count()
        self._observe_bookies(term)
        if self._marks.is_enabled():
            self._start_due_audits(term)
        else:
            self._cancel_check(term)
        self._report(term)
        due_ms = term.bookies.deadline_ms()
        return POLL_S if due_ms is None else min(POLL_S, max(0.0, (due_ms - _now_ms()) / 1000))

    def _start_due_audits(self, term: _Term) -> None:
        """Start the audits that are due or requested."""
        if self._znodes.is_audit_signalled():
            logger.info("an audit was asked for with Apache's tools")
            self._wait_no_longer(term)
        request = self._znodes.request()
        if request is not None and request != term.audited_request:
            logger.info("an audit was asked for")
            self._wait_no_longer(term)
            if not self._audit_metadata(term):
                return
            term.audited_request = request
            if not request.reads_replicas:
                self._fulfil(term, request)
        elif term.bookies.is_audit_due or time.monotonic() >= term.audited_s + self._audit_pause_s(term):
            self._audit_metadata(term)
        self._start_or_finish_check(term, request if request is not None and request.reads_replicas else None)

    def _audit_pause_s(self, term: _Term) -> float:
        """The next audit comes soon after a rack did, and when the copies have moved that the last one asked for.

        Not while bookies are lost or waited for: nothing would move.
        """
        racks = self._writable_racks()
        has_more = bool(racks - term.racks) or (term.has_moves_left and not term.marks)
        term.racks &= racks
        is_soon = has_more and self._is_calm(term)
        return (
            min(self._config.lost_bookie_grace_s, self._config.audit_interval_s) if is_soon else self._config.audit_interval_s
        )

    def _is_calm(self, term: _Term) -> bool:
        return not term.bookies.lost and not term.bookies.waiting(_now_ms())

    def _writable_racks(self) -> frozenset[str]:
        registered = self._context.submit(self._context.registered()).result()
        return frozenset(one.rack for one in registered if not one.read_only)

    def _wait_no_longer(self, term: _Term) -> None:
        """Look again first: a bookie that went just before the request was made may have been there at the last look."""
        self._observe_bookies(term)
        term.bookies.wait_no_longer()

    def _fulfil(self, term: _Term, request: AuditRequest) -> None:
        """Report first: whoever waits for the request to disappear reads the report then."""
        self._report(term)
        self._znodes.fulfil(request)

    def _begin_term(self) -> _Term:
        """Learn which bookies ledgers name, and take the office."""
        assert self._term is None
        named = self._audit.mark_lost(lambda: None if self._stopping else frozenset()).named
        bookies = LostBookies(int(self._config.lost_bookie_grace_s * 1000), named)
        term = _Term(self._election.votes, bookies, time.monotonic(), self._writable_racks())
        self._znodes = AuditorZnodes(self._context.store, self._context.znodes)
        self._znodes.start_check_interval()
        self._znodes.start_delay(self._config.lost_bookie_grace_s)
        self._term = term
        IS_AUDITOR.set(1)
        logger.info("%s is the auditor", self._auditor_id)
        return term

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            self._cancel_check(term)
            logger.info("%s is not the auditor any more", self._auditor_id)
        IS_AUDITOR.set(0)
        LOST_BOOKIES.set(0)
        UNDER_REPLICATED_LEDGERS.set(0)
        LEDGERS_IN_FEW_RACKS.set(0)

    def _resign(self) -> None:
        self._end_term()
        try:
            self._znodes.withdraw_report()
            self._election.withdraw()
        except BookKeeperError as problem:
            logger.info("the vote of %s goes with its session: %s", self._auditor_id, problem)

    def _observe_bookies(self, term: _Term) -> None:
        """Read the registrations, and update the gauges."""
        if self._marks.is_enabled():
            term.bookies.observe(observe_bookies(self._context.store, self._context.znodes, term.marks), _now_ms())
        else:
            term.bookies.start_over()
        UNDER_REPLICATED_LEDGERS.set(term.marks)
        LOST_BOOKIES.set(len(term.bookies.lost))

    def _audit_metadata(self, term: _Term) -> bool:
        """Mark the ledgers of lost bookies, and such as are in too few racks. Returns whether the audit is complete."""
        lost, began_s = set(term.bookies.lost), time.monotonic()
        racks, is_calm = self._writable_racks(), self._is_calm(term)
        rack_map = self._context.submit(self._context.rack_map()).result()
        if lost:
            logger.warning("lost: %s; all ledgers are looked at", ", ".join(sorted(lost)))
        rack_audit = RackAudit(rack_map, self._config.max_rack_moves if is_calm else 0)
        audited = self._audit.mark_lost(lambda: self._still_lost(term, lost), rack_audit)
        if audited.is_complete:
            term.bookies.note_audit(lost, audited.named)
            term.audited_s = time.monotonic()
            self._note_racks(term, audited, racks if is_calm else term.racks)
            names = ("ledgers", "marked", "unreadable", "in_few_racks", "to_move")
            found = {name: getattr(audited, name) for name in names}
            term.last_audit = self._record("bookies", began_s, found)
        return audited.is_complete

    def _note_racks(self, term: _Term, audited: Audited, racks: frozenset[str]) -> None:
        """Where moving does not help, because copies fail, the next audit is that of the interval."""
        helped = audited.in_few_racks < term.in_few_racks or not term.in_few_racks
        term.has_moves_left = audited.in_few_racks > audited.to_move > 0 and helped
        term.racks, term.in_few_racks = racks, audited.in_few_racks
        LEDGERS_IN_FEW_RACKS.set(audited.in_few_racks)

    def _still_lost(self, term: _Term, lost: set[str]) -> frozenset[str] | None:
        """Look again, and remove from ``lost`` who came back. Returns the rest; None if this auditor must not go on marking.

        A bookie that came back and goes again needs another audit, as some of its ledgers were not marked in this one.
        """
        if self._stopping or not self._election.is_elected() or term.vote != self._election.votes:
            return None
        if not self._marks.is_enabled():
            return None
        self._observe_bookies(term)
        lost.intersection_update(term.bookies.lost)
        return frozenset(lost)

    def _start_or_finish_check(self, term: _Term, request: AuditRequest | None) -> None:
        """Record the end of a check that is done; else start one if it is due or requested, and none runs."""
        if term.check is not None and term.check.future.done():
            self._finish_check(term, term.check)
            self._wake.set()  # step again at once: a request may be unfulfilled
        elif term.check is None and (request is not None or self._znodes.is_check_due(self._config.ledger_check_interval_s)):
            logger.info("the replicas of all ledgers above %d are read", term.totals.after)
            began_s = time.monotonic()
            future = self._context.submit(self._audit.check_all(self._check, lambda: self._lost_in(term), term.totals))
            term.check = _RunningCheck(future, began_s, request)
            future.add_done_callback(lambda _: self._wake.set())

    def _lost_in(self, term: _Term) -> frozenset[str] | None:
        """The lost bookies for a running check; None ends it, once its term is over."""
        return term.bookies.lost if self._term is term and not self._stopping else None

    def _finish_check(self, term: _Term, check: _RunningCheck) -> None:
        assert check.future.done(), "the thread waits for no check"
        term.check = None
        if not check.future.result():
            return
        totals, term.totals = term.totals, AllChecked()
        term.last_check = self._record("ledgers", check.began_s, totals.to_json())
        self._znodes.note_check()
        if check.request is not None:
            self._fulfil(term, check.request)

    def _cancel_check(self, term: _Term) -> None:
        if term.check is not None:
            term.check.future.cancel()
            term.check = None

    def _record(self, kind: str, began_s: float, found: Mapping[str, object]) -> dict[str, object]:
        """Count and log a complete audit. Returns its entry in the report."""
        took_s = time.monotonic() - began_s
        AUDITS.labels(kind).inc()
        AUDIT_S.labels(kind).observe(took_s)
        logger.info("audit of %s: %s", kind, json.dumps(found))
        return {**found, "took_s": round(took_s, 3), "ended_ms": self._context.wall_clock_ms()}

    def _report(self, term: _Term) -> None:
        now_ms, waiting = self._context.wall_clock_ms(), term.bookies.waiting(_now_ms())
        # ``waiting`` is rounded up to seconds: the report must not change because two clocks were read a moment apart.
        self._znodes.report(
            {
                "auditor": self._auditor_id,
                "lost": sorted(term.bookies.lost),
                "unaudited": sorted(term.bookies.unaudited),
                "waiting": {bookie: -(-(now_ms + left_ms) // 1000) * 1000 for bookie, left_ms in waiting.items()},
                "is_checking": term.check is not None,
                "last_audit": term.last_audit,
                "last_check": term.last_check,
            }
        )


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
