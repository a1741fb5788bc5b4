"""Decommissioning a bookie: every ledger that names it gets others in its place, then it leaves the cluster for good.

The bookie may be dead, read-only or alive. While it is alive

* it is registered as read-only by this process, too, so that no client chooses it for anything new; that registration is
  ephemeral: if this process ends, the bookie is what it was before;
* what it holds is copied, also from the bookie itself. Open ledgers are left to their writers, who would have to be fenced;
  but where the ack quorum is 1 the bookie may hold the only copy of what was confirmed, so those are fenced and closed;
* then the operator is asked to stop it, and waited for. Writers that live then replace it themselves, and what is still
  open after ``open_fragment_grace_s`` is fenced, closed and copied.

It ends once a listing of all ledgers, begun after the bookie was gone, finds none that names it; then its cookie is removed.
Nothing but the ledgers' metadata says how far it came: killed at any time, it is simply run again. Replication workers may work
on the same ledgers at the same time: the ledgers' locks keep them apart.

``time``: the operator and other workers are waited for.

Ref: Apache BookKeeper's "bookie decommission"; situation 85.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.progress import Progress
from bk_spark.client.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.client.replication.rereplicator import ReplicationLimits, Rereplicator
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import no_cookie, remove_cookie
from bk_spark.metadata.store import NodeExistsError, NoNodeError

PAGE_LEDGERS = 1_000
"""Ledgers whose metadata is held, and that are copied, at a time; of all that named the bookie the ids alone are kept."""

STOP_TIMEOUT_S = 600.0
"""How long the operator is waited for, once the bookie may be stopped."""

PAUSE_S = 0.5
"""Between two looks at what is waited for."""

MAX_IDLE_PASSES = 3
"""Passes over all ledgers that failed and made none whole, before it is given up: bookies that restart are back by then."""

LOCK_PATIENCE_S = 600.0
"""How long other workers that hold the last ledgers' locks are waited for, without a ledger being made whole meanwhile."""


@dataclass(frozen=True, slots=True)
class DecommissionReport:
    """What was done by this run."""

    bookie_id: str
    ledgers: int
    """That named the bookie, and do not any more."""
    entries: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class DecommissionOptions:
    """How fast copies are made (as a replication worker does it), and how long the operator is waited for."""

    recovery: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    stop_timeout_s: float = STOP_TIMEOUT_S


def decommission(
    client: BookKeeper,
    bookie_id: str,
    progress: Progress,
    options: DecommissionOptions | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> DecommissionReport:
    """Relieve the bookie of everything, and remove its cookie. Waits, for as long as there is something to copy.

    ``progress`` is told the ledgers done, and found so far; ``say`` what the operator is to do. Raises ConfigError if there
    is no such bookie, if ledgers cannot be made whole without it (too few other bookies, no readable copy), or if it was not
    stopped in time; MetadataUnavailableError. What was done by then stays done.
    """
    return _Decommissioning(client, bookie_id, progress, options or DecommissionOptions(), say).run()


class _Decommissioning:
    def __init__(
        self,
        client: BookKeeper,
        bookie_id: str,
        progress: Progress,
        options: DecommissionOptions,
        say: Callable[[str], None],
    ) -> None:
        self._store = client.metadata_store
        self._znodes = client.znodes
        self._ledgers = LedgerStore(self._store, self._znodes)
        limits = ReplicationLimits.of(client.config, options.recovery)
        owner = f"decommissioning of {bookie_id}"
        self._rereplicator = Rereplicator(client.context, self._ledgers, limits, owner=owner)
        self._bookie_id = bookie_id
        self._progress = progress
        self._stop_timeout_s = options.stop_timeout_s
        self._say = say
        self._read_only_ms: int | None = None
        """When this process registered the bookie as read-only, by the store's clock."""
        self._found: set[int] = set()
        self._done: set[int] = set()
        self._entries = self._nbytes = 0

    def run(self) -> DecommissionReport:
        self._cookie_version()
        try:
            cookie_version = self._copy_all()
        finally:
            self._withdraw()
        remove_cookie(self._store, self._znodes, self._bookie_id, cookie_version)
        return DecommissionReport(self._bookie_id, len(self._done), self._entries, self._nbytes)

    def _copy_all(self) -> int:
        """Pass after pass over all ledgers, until one that began without the bookie finds nothing. Gives back the version that
        its cookie had before: a bookie that was started since may be named by newer ledgers.
        """
        idle, progress_s = 0, time.monotonic()
        while True:
            cookie_version = self._cookie_version()
            is_alive, done_before = self._keep_out(), len(self._done)
            result = self._pass(is_alive)
            if not result.was_named and not is_alive:
                return cookie_version
            if is_alive and result.is_done_but_for_writers:
                self._await_stop()
                idle, progress_s = 0, time.monotonic()
                continue
            if len(self._done) > done_before or result.worst is None:
                idle, progress_s = 0, time.monotonic()
                continue
            idle += _gravity(result.worst) == _FAILED
            if idle == MAX_IDLE_PASSES or time.monotonic() > progress_s + LOCK_PATIENCE_S:
                remedy = f"{result.worst.problem} (then run this again: it goes on where it stopped)"
                raise ConfigError(f"bookie {self._bookie_id}", f"still named by {result.left} ledgers", remedy)
            time.sleep(PAUSE_S)

    def _pass(self, is_alive: bool) -> _Pass:
        """Copy what names the bookie."""
        result = _Pass()
        for named in self._named():
            result.was_named = True
            for one in self._copied(named, is_alive):
                result.add(one)
        return result

    def _named(self) -> Iterator[list[LedgerMetadata]]:
        """Those of each page that name the bookie. Raises CorruptionError for metadata that cannot be read."""
        self._store.sync(self._znodes.root)
        for page in ledger_pages(self._store, self._znodes, page=PAGE_LEDGERS):
            named = [one for one in self._ledgers.existing(page) if any(self._bookie_id in f.ensemble for f in one.fragments)]
            self._found |= {one.ledger_id for one in named}
            if named:
                yield named

    def _copied(self, named: list[LedgerMetadata], is_alive: bool) -> list[RereplicatedLedger]:
        """Those that still name it."""
        only_here = [one.ledger_id for one in named if one.ack_quorum == 1 or not is_alive]
        others = [one.ledger_id for one in named if one.ack_quorum > 1 and is_alive]
        leaving = {self._bookie_id}
        left = self._rereplicator.rereplicate_many(only_here, leaving, self._note)
        return left + self._rereplicator.rereplicate_many(others, leaving, self._note, fence=False)

    def _note(self, one: RereplicatedLedger) -> None:
        self._entries += one.entries
        self._nbytes += one.nbytes
        if one.is_whole:
            self._done.add(one.ledger_id)
        self._progress("ledgers copied", len(self._done), len(self._found))

    # --- the bookie itself

    def _cookie_version(self) -> int:
        """Each start of the bookie raises it. What is read later is not older than this."""
        path = self._znodes.cookie(self._bookie_id)
        self._store.sync(path)
        found = self._store.get_many([path])[0]
        if found is None:
            raise no_cookie(self._bookie_id, self._store)
        return found.version

    def _keep_out(self) -> bool:
        """Keep the bookie out of new ensembles. Whether it is alive."""
        writable, read_only = (self._znodes.registration(self._bookie_id, read_only=kind) for kind in (False, True))
        found, marked = self._store.get_many([writable, read_only])
        if found is None:
            return marked is not None and marked.modified_ms != self._read_only_ms
        if marked is None:
            with suppress(NodeExistsError):
                self._store.create(read_only, found.value, ephemeral=True)
                self._read_only_ms = self._store.get(read_only).modified_ms
        return True

    def _withdraw(self) -> None:
        """The registration that this process made goes; where the store does not answer, with the session."""
        path = self._znodes.registration(self._bookie_id, read_only=True)
        with suppress(NoNodeError, BookKeeperError):
            if self._read_only_ms is not None and self._store.get(path).modified_ms == self._read_only_ms:
                self._store.delete(path)

    def _await_stop(self) -> None:
        self._say(f"everything that can be copied while bookie {self._bookie_id} runs is copied: stop it now")
        deadline_s = time.monotonic() + self._stop_timeout_s
        while self._keep_out():
            if time.monotonic() >= deadline_s:
                remedy = "stop it, and run this again: it goes on where it stopped"
                raise ConfigError(f"bookie {self._bookie_id}", f"running after {self._stop_timeout_s:g} s", remedy)
            time.sleep(PAUSE_S)


@dataclass(slots=True)
class _Pass:
    """What one pass over all ledgers found, and left."""

    was_named: bool = False
    left: int = 0
    """Ledgers that still name the bookie."""
    worst: RereplicatedLedger | None = None
    """One of them: with a problem if there is one, else locked, else open."""

    @property
    def is_done_but_for_writers(self) -> bool:
        return self.worst is None or _gravity(self.worst) == _OPEN

    def add(self, one: RereplicatedLedger) -> None:
        self.left += 1
        if self.worst is None or _gravity(one) > _gravity(self.worst):
            self.worst = one


_OPEN, _LOCKED, _FAILED = range(3)


def _gravity(one: RereplicatedLedger) -> int:
    if one.open_fragment is not None:
        return _OPEN
    return _LOCKED if one.is_locked else _FAILED
