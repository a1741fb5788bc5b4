"""The driver of the auditor: stands for election, watches the bookies, audits when it is time, and says what it sees.

One thread does all of that, and waits for nothing but the metadata store and its own wake-up. The check that reads all replicas
takes hours: it runs on the client's event loop, and the thread only begins it, ends it, and notes that it is done.

While the metadata store is away the thread goes on trying. If the session is lost, so is the office: the vote is gone, another
candidate is elected, and this one stands again with a fresh view. What was under way is not lost: a new auditor looks at all
bookies and ledgers itself, and a request for an audit stands in the store until it is fulfilled.

``threading`` and ``time``: this is a driver, on no thread of its caller.

Ref: docs/rules.md, situations 78 and 79; docs/formats.md, "Znodes of re-replication".
"""

from __future__ import annotations

import functools
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.replication.auditor_znodes import AuditorElection, AuditorZnodes, AuditRequest, sight
from bk_spark.client.replication.ledger_audit import AllChecked, Audited, LedgerAudit
from bk_spark.client.replication.ledger_check import LedgerCheck
from bk_spark.client.replication.lost_bookies import LostBookies
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.metadata.registration import watch_bookies
from bk_spark.metadata.store import MetadataStore, StoreError
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.telemetry.metrics import AUDIT_S, AUDITS, IS_AUDITOR, LOST_BOOKIES, UNDER_REPLICATED_LEDGERS

POLL_S = 5.0
"""How often it looks without having been woken: bounds what a watch that was missed costs, and the age of the gauges."""

BACK_OFF_S = 1.0
"""After the metadata store did not answer."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Office:
    """What is known from one election to the end of the office."""

    vote: int
    """The vote that was elected (``AuditorElection.votes``)."""
    bookies: LostBookies
    audited_s: float
    """When all ledgers' metadata was last looked at, by ``time.monotonic``."""
    marks: int = 0
    """Marked ledgers, when they were last counted."""
    last_audit: dict[str, object] = field(default_factory=dict)
    last_check: dict[str, object] = field(default_factory=dict)
    request: AuditRequest | None = None
    """The last one for which all ledgers' metadata was looked at."""
    check: Future[bool] | None = None
    """The check of all replicas that is under way."""
    check_began_s: float = 0.0
    check_request: AuditRequest | None = None
    """The request that it fulfils."""
    totals: AllChecked = field(default_factory=AllChecked)
    """What it found, or one that was cut off and goes on."""


class AuditorProcess:
    """One candidate for auditor, from ``start`` to ``stop``. ``auditor_id`` is how people tell it from others.

    ``on_failure`` is called, on its thread, if the thread ends by a failure of its own.
    """

    def __init__(
        self,
        store: MetadataStore,
        znodes: Znodes,
        context: ClientContext,
        config: AutoRecoveryConfig,
        *,
        marks: UnderReplication | None = None,
        auditor_id: str = "auditor",
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """``marks``: the process's one UnderReplication, where it has one."""
        self._context = context
        self._config = config
        self._marks = marks or UnderReplication(store, znodes)
        self._election = AuditorElection(store, znodes, auditor_id)
        self._znodes = AuditorZnodes(store, znodes)
        self._audit = LedgerAudit(context, self._marks)
        self._check = LedgerCheck(context, config)
        self._auditor_id = auditor_id
        self._on_failure = on_failure
        self._office: _Office | None = None
        self._wake = threading.Event()
        self._stopping = False
        wake = self._wake.set
        self._unwatched: list[Callable[[], object]] = [
            lambda: watch_bookies(store, znodes, wake),
            lambda: store.watch_children(znodes.auditor_election, wake),
            lambda: store.watch(znodes.audit_request, wake),
            lambda: self._marks.watch(wake),
        ]
        """Watches that could not be set yet. Each lasts until the store closes."""
        self._thread = threading.Thread(target=self._run, name="bk_spark auditor", daemon=True)

    @property
    def is_auditor(self) -> bool:
        """Whether it holds the office, as far as it knows."""
        return self._office is not None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End what it does, and give the office up, so that another candidate is elected at once. May be repeated."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    # --- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                self._wake.wait(self._tried())
            self._leave()
        except Exception:
            logger.exception("%s, as auditor or candidate, failed; please report this bug", self._auditor_id)
            self._retire()
            self._on_failure()

    def _tried(self) -> float:
        """One look; how long to wait for the next one at most."""
        try:
            return self._step()
        except MetadataUnavailableError as problem:
            logger.warning("the auditor waits: %s", problem)
        except (BookKeeperError, StoreError) as problem:
            logger.error("the auditor could not go on, and tries again: %r", problem)
        if self._office is not None:
            self._office.bookies.observe_nothing()
        return BACK_OFF_S

    def _step(self) -> float:
        while self._unwatched:
            self._unwatched[0]()
            self._unwatched.pop(0)
        is_elected = self._election.is_elected()
        if self._office is not None and (not is_elected or self._office.vote != self._election.votes):
            self._retire()
        if not is_elected:
            return POLL_S
        office = self._office or self._take_office()
        office.marks = self._marks.count()
        self._look(office)
        if self._marks.is_enabled():
            self._work(office)
        else:
            self._end_check(office)
        self._tell(office)
        due_ms = office.bookies.deadline_ms()
        return POLL_S if due_ms is None else min(POLL_S, max(0.0, (due_ms - _now_ms()) / 1000))

    def _work(self, office: _Office) -> None:
        request = self._znodes.request()
        if request is not None and request != office.request:
            logger.info("an audit was asked for")
            office.bookies.wait_no_longer()
            if not self._audit_bookies(office):
                return
            office.request = request
            if not request.reads_replicas:
                self._tell(office)
                self._znodes.fulfil(request)
        elif office.bookies.is_audit_due or time.monotonic() >= office.audited_s + self._config.audit_interval_s:
            self._audit_bookies(office)
        self._keep_check(office, request if request is not None and request.reads_replicas else None)

    # --- the office

    def _take_office(self) -> _Office:
        """Learn which bookies there should be."""
        office = _Office(self._election.votes, LostBookies(int(self._config.lost_bookie_grace_s * 1000)), time.monotonic())
        office.bookies.expect(self._audit.mark_lost(lambda: None if self._stopping else frozenset()).named)
        self._znodes = AuditorZnodes(self._context.store, self._context.znodes)
        self._znodes.keep_check_time()
        self._office = office
        IS_AUDITOR.set(1)
        logger.info("%s is the auditor", self._auditor_id)
        return office

    def _retire(self) -> None:
        office, self._office = self._office, None
        if office is not None:
            self._end_check(office)
            logger.info("%s is not the auditor any more", self._auditor_id)
        IS_AUDITOR.set(0)
        LOST_BOOKIES.set(0)
        UNDER_REPLICATED_LEDGERS.set(0)

    def _leave(self) -> None:
        self._retire()
        try:
            self._znodes.withdraw_report()
            self._election.withdraw()
        except BookKeeperError as problem:
            logger.info("the vote of %s goes with its session: %s", self._auditor_id, problem)

    # --- bookies

    def _look(self, office: _Office) -> None:
        if self._marks.is_enabled():
            office.bookies.observe(sight(self._context.store, self._context.znodes, office.marks), _now_ms())
        else:
            office.bookies.forget_times()
        UNDER_REPLICATED_LEDGERS.set(office.marks)
        LOST_BOOKIES.set(len(office.bookies.lost))

    def _audit_bookies(self, office: _Office) -> bool:
        """Mark the ledgers of lost bookies. Whether all were looked at."""
        lost, began_s = office.bookies.lost, time.monotonic()
        throughout = set(lost)
        """Of one that came back and went again meanwhile some ledgers were not marked: it needs another audit."""

        def still_lost() -> frozenset[str] | None:
            now_lost = self._still_lost(office, lost)
            throughout.intersection_update(now_lost or ())
            return now_lost

        if lost:
            logger.warning("lost: %s; all ledgers are looked at", ", ".join(sorted(lost)))
        audited = self._audit.mark_lost(still_lost)
        if audited.is_complete:
            office.bookies.audited(throughout, audited.named)
            office.audited_s = time.monotonic()
            office.last_audit = self._audited("bookies", began_s, _described(audited))
        return audited.is_complete

    def _still_lost(self, office: _Office, lost: frozenset[str]) -> frozenset[str] | None:
        if self._stopping or not self._election.is_elected() or office.vote != self._election.votes:
            return None
        if not self._marks.is_enabled():
            return None
        self._look(office)
        return office.bookies.lost & lost

    # --- replicas

    def _keep_check(self, office: _Office, request: AuditRequest | None) -> None:
        """Begin the check of all replicas when it is due or asked for; note that it is done."""
        if office.check is not None and office.check.done():
            self._note_check(office, office.check)
            self._wake.set()  # another look, for the request may be fulfilled now
        elif office.check is None and (request is not None or self._znodes.is_check_due(self._config.ledger_check_interval_s)):
            logger.info("the replicas of all ledgers above %d are read", office.totals.after)
            office.check_request, office.check_began_s = request, time.monotonic()
            lost = functools.partial(self._lost_to_check, office)
            office.check = self._context.submit(self._audit.check_all(self._check, lost, office.totals))
            office.check.add_done_callback(lambda _: self._wake.set())

    def _lost_to_check(self, office: _Office) -> frozenset[str] | None:
        return office.bookies.lost if self._office is office and not self._stopping else None

    def _note_check(self, office: _Office, check: Future[bool]) -> None:
        office.check = None
        if not check.result():
            return
        totals, office.totals = office.totals, AllChecked()
        office.last_check = self._audited("ledgers", office.check_began_s, totals.to_json())
        self._znodes.note_check()
        if office.check_request is not None:
            self._tell(office)
            self._znodes.fulfil(office.check_request)

    def _end_check(self, office: _Office) -> None:
        if office.check is not None:
            office.check.cancel()
            office.check = None

    # --- what people see

    def _audited(self, kind: str, began_s: float, found: dict[str, object]) -> dict[str, object]:
        took_s = time.monotonic() - began_s
        AUDITS.labels(kind).inc()
        AUDIT_S.labels(kind).observe(took_s)
        logger.info("audit of %s: %s", kind, json.dumps(found))
        return {**found, "took_s": round(took_s, 3), "ended_ms": _wall_ms()}

    def _tell(self, office: _Office) -> None:
        waiting = office.bookies.waiting(_now_ms())
        self._znodes.report(
            {
                "auditor": self._auditor_id,
                "lost": sorted(office.bookies.lost),
                "waiting": {bookie: _round_up(_wall_ms() + left) for bookie, left in waiting.items()},
                "is_checking": office.check is not None,
                "last_audit": office.last_audit,
                "last_check": office.last_check,
            }
        )


def _described(audited: Audited) -> dict[str, object]:
    return {"ledgers": audited.ledgers, "marked": audited.marked, "unreadable": audited.unreadable}


def _round_up(ms: int) -> int:
    """To a whole second, so that a report does not change because two clocks were read a moment apart."""
    return -(-ms // 1000) * 1000


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _wall_ms() -> int:
    return int(time.time() * 1000)
