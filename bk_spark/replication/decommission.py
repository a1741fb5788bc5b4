"""Decommissions a bookie: replaces it in every ledger that names it, and then removes it from the cluster for good.

The bookie may be dead, read-only or alive. While it is alive

* this process registers it as read-only too, so that no client chooses it for anything new. That registration is ephemeral: if
  this process ends, the bookie is what it was before;
* its ledgers are re-replicated, also from the bookie itself. Open ledgers are left to their writers, since to re-replicate them
  would mean to fence them. But with an ack quorum of 1 the bookie may hold the only copy of a confirmed entry: such ledgers are
  fenced and closed;
* the operator is then asked to stop the bookie, and waited for. Live writers replace it themselves. Ledgers that are still open
  after ``open_fragment_grace_s`` are fenced, closed and re-replicated.

If ledgers cannot be made whole, because every other copy is lost or there are too few bookies, each is named with its reason,
and nothing is removed. ``forced`` then removes the cookie all the same, once the bookie is gone: what only that bookie held is
lost for good with it.

The end is reached when a listing of all ledgers, begun after the bookie was gone, finds none that names it. Then its cookie is
removed. Progress is recorded only in the ledgers' metadata: if this is killed at any time, run it again. Replication workers
may work on the same ledgers at the same time; the ledgers' locks keep them apart.

``time``: this waits for the operator and for other workers.

Ref: Apache BookKeeper's "bookie decommission"; situation 85.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.errors import BookKeeperError, ConfigError, State
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import no_cookie, remove_cookie
from bk_spark.metadata.store import BadVersionError, NodeExistsError, NoNodeError, find
from bk_spark.progress import Progress
from bk_spark.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig

PAGE_LEDGERS = 1_000
"""Ledgers that are listed and re-replicated at a time. Of all others that named the bookie only the ids are kept."""

STOP_TIMEOUT_S = 600.0
"""How long the operator may take to stop the bookie, once asked."""

PAUSE_S = 0.5
"""Between two looks at what is waited for."""

MAX_IDLE_PASSES = 3
"""Passes over all ledgers that failed and made none whole, before it gives up: bookies that restart are back by then."""

TIMEOUT_S = 86_400.0
"""The longest run. A terabyte takes some hours at the default pace; what was copied by then stays copied."""

MOST_NAMED = 1_000
"""Ledgers that are not whole and are named with their reasons; further ones are counted."""

LOCK_PATIENCE_S = 600.0
"""How long to wait for other workers that hold the last ledgers' locks, while no ledger is made whole."""


@dataclass(frozen=True, slots=True)
class DecommissionReport:
    """What this run did."""

    bookie_id: str
    ledgers: int
    """Ledgers that named the bookie, and no longer do."""
    entries: int
    nbytes: int
    given_up: tuple[RereplicatedLedger, ...] = ()
    """With ``forced``: ledgers that still name it, MOST_NAMED at most, each with what could not be copied."""
    given_up_ledgers: int = 0
    """How many these are in all."""


@dataclass(frozen=True, slots=True)
class DecommissionOptions:
    """The pace of copying (the settings of a replication worker), and how long to wait for the operator."""

    recovery: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    stop_timeout_s: float = STOP_TIMEOUT_S
    timeout_s: float = TIMEOUT_S
    forced: bool = False
    """Remove the bookie although ledgers still name it that cannot be made whole."""


def decommission(
    client: BookKeeper,
    bookie_id: str,
    progress: Progress,
    options: DecommissionOptions | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> DecommissionReport:
    """Replace the bookie in all ledgers, and remove its cookie. Blocks until that is done.

    ``progress`` gets the ledgers done, and found so far; ``say`` gets what the operator has to do, and the ledgers that cannot
    be made whole. Raises ConfigError if there is no such bookie, if ledgers cannot be made whole without it (too few other
    bookies, no readable copy) and it is not forced, or if time is over; MetadataUnavailableError. What was done stays done.
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
        self._rereplicator = Rereplicator(client.context, options.recovery, owner=f"decommissioning of {bookie_id}")
        self._bookie_id = bookie_id
        self._progress = progress
        self._options = options
        self._deadline_s = time.monotonic() + options.timeout_s
        self._given_up: _Pass | None = None
        self._say = say
        self._read_only_ms: int | None = None
        """When this process registered the bookie as read-only, by the store's clock."""
        self._found: set[int] = set()
        self._done: set[int] = set()
        self._entries = self._nbytes = 0

    def run(self) -> DecommissionReport:
        self._cookie_version()
        try:
            cookie_version = self._rereplicate_all()
        finally:
            self._withdraw_read_only()
        remove_cookie(self._store, self._znodes, self._bookie_id, cookie_version)
        left = self._given_up or _Pass(False, 0, ())
        done = len(self._done), self._entries, self._nbytes
        return DecommissionReport(self._bookie_id, *done, left.unfinished, left.left)

    def _rereplicate_all(self) -> int:
        """Repeat passes over all ledgers, until one that began without the bookie finds none that names it.

        If it is forced, the rest may be ledgers that cannot be made whole. Returns the cookie's version from before that pass:
        if the bookie was started since, newer ledgers may name it.
        """
        idle, progress_s = 0, time.monotonic()
        while True:
            cookie_version = self._cookie_version()
            is_alive, done_before = self._make_read_only(), len(self._done)
            result = self._pass(is_alive)
            if not result.was_named and not is_alive:
                return cookie_version
            if is_alive and _severity(result.worst) <= _OPEN:
                self._await_stop()
            elif len(self._done) == done_before and result.worst is not None:
                idle += _severity(result.worst) == _FAILED
                if idle == MAX_IDLE_PASSES or time.monotonic() > progress_s + LOCK_PATIENCE_S:
                    self._give_up(result, is_alive)
                    return cookie_version
                self._check_time(result)
                time.sleep(PAUSE_S)
                continue
            self._check_time(result)
            idle, progress_s = 0, time.monotonic()

    def _give_up(self, result: _Pass, is_alive: bool) -> None:
        """Name the ledgers that cannot be made whole. Raises ConfigError unless it is forced, and the bookie is gone."""
        self._name(result)
        if not self._options.forced or is_alive or result.is_locked:
            raise self._still_named(result, result.problem)
        self._given_up = result

    def _check_time(self, result: _Pass) -> None:
        if time.monotonic() > self._deadline_s:
            self._name(result)
            raise self._still_named(result, f"its time of {self._options.timeout_s:g} s is over")

    def _name(self, result: _Pass) -> None:
        for one in result.unfinished:
            self._say(f"ledger {one.ledger_id} still needs bookie {self._bookie_id}: {one.problem}")
        if result.left > len(result.unfinished):
            self._say(f"and {result.left - len(result.unfinished)} further ledgers")

    def _still_named(self, result: _Pass, problem: str) -> ConfigError:
        remedy = f"{problem} (then run this again: it goes on where it stopped; --force gives up what cannot be copied)"
        return ConfigError(f"bookie {self._bookie_id}", State(f"still named by {result.left} ledgers"), remedy)

    def _pass(self, is_alive: bool) -> _Pass:
        """Re-replicate all ledgers that name the bookie."""
        was_named, left, kept = False, 0, list[RereplicatedLedger]()
        for named in self._named():
            unfinished = self._rereplicate(named, is_alive)
            was_named, left = True, left + len(unfinished)
            kept = sorted([*kept, *unfinished], key=_severity, reverse=True)[:MOST_NAMED]
            if time.monotonic() > self._deadline_s:
                break
        return _Pass(was_named, left, tuple(kept))

    def _named(self) -> Iterator[list[LedgerMetadata]]:
        """The ledgers that name the bookie, page by page. Raises CorruptionError for metadata that cannot be decoded."""
        self._store.sync(self._znodes.root)
        for page in ledger_pages(self._store, self._znodes, page=PAGE_LEDGERS):
            named = [one for one in self._ledgers.existing(page) if self._bookie_id in one.bookies]
            self._found |= {one.ledger_id for one in named}
            if named:
                yield named

    def _rereplicate(self, named: list[LedgerMetadata], is_alive: bool) -> list[RereplicatedLedger]:
        """Returns the results of the ledgers that are not whole. Only ledgers that must not wait for a writer are fenced."""
        may_fence = [one.ledger_id for one in named if one.ack_quorum == 1 or not is_alive]
        others = [one.ledger_id for one in named if one.ack_quorum > 1 and is_alive]
        leaving = {self._bookie_id}
        unfinished = self._rereplicator.rereplicate_many(may_fence, leaving, self._note)
        return unfinished + self._rereplicator.rereplicate_many(others, leaving, self._note, fence=False)

    def _note(self, result: RereplicatedLedger) -> None:
        self._entries += result.entries
        self._nbytes += result.nbytes
        if result.is_whole:
            self._done.add(result.ledger_id)
        self._progress("ledgers copied", len(self._done), len(self._found))

    def _cookie_version(self) -> int:
        """Each start of the bookie raises this version. Later reads of the store are not older than this one."""
        path = self._znodes.cookie(self._bookie_id)
        self._store.sync(path)
        found = self._store.get_many([path])[0]
        if found is None:
            raise no_cookie(self._bookie_id, self._store)
        return found.version

    def _make_read_only(self) -> bool:
        """Register the bookie as read-only, unless it is or is gone. Returns whether it is alive."""
        writable, read_only = (self._znodes.registration(self._bookie_id, read_only=kind) for kind in (False, True))
        found, marked = self._store.get_many([writable, read_only])
        if found is None:
            return marked is not None and marked.modified_ms != self._read_only_ms
        if marked is None:
            with suppress(NodeExistsError):
                self._store.create(read_only, found.value, ephemeral=True)
                self._read_only_ms = self._store.get(read_only).modified_ms
        return True

    def _withdraw_read_only(self) -> None:
        """Remove this process's registration. If the store does not answer, it disappears with the session."""
        path = self._znodes.registration(self._bookie_id, read_only=True)
        with suppress(NoNodeError, BadVersionError, BookKeeperError):
            found = find(self._store, path)
            if found is not None and found.modified_ms == self._read_only_ms:
                self._store.delete(path, found.version)

    def _await_stop(self) -> None:
        self._say(f"everything that can be copied while bookie {self._bookie_id} runs is copied: stop it now")
        deadline_s = min(time.monotonic() + self._options.stop_timeout_s, self._deadline_s)
        while self._make_read_only():
            if time.monotonic() >= deadline_s:
                state = State(f"still running after {self._options.stop_timeout_s:g} s")
                remedy = "stop it, and run this again: it goes on where it stopped"
                raise ConfigError(f"bookie {self._bookie_id}", state, remedy)
            time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class _Pass:
    """The result of one pass over all ledgers."""

    was_named: bool
    """Whether any ledger named the bookie when the pass listed it."""
    left: int
    """Ledgers that still name the bookie."""
    unfinished: tuple[RereplicatedLedger, ...]
    """The results of these, the most severe first, MOST_NAMED at most."""

    @property
    def worst(self) -> RereplicatedLedger | None:
        return self.unfinished[0] if self.unfinished else None

    @property
    def is_locked(self) -> bool:
        """Whether other workers are at some of them, which may still make them whole."""
        return any(one.is_locked for one in self.unfinished)

    @property
    def problem(self) -> str:
        return self.unfinished[0].problem if self.unfinished else "ledgers were not looked at"


_NONE, _OPEN, _LOCKED, _FAILED = range(4)


def _severity(unfinished: RereplicatedLedger | None) -> int:
    if unfinished is None:
        return _NONE
    if unfinished.open_fragment is not None:
        return _OPEN
    return _LOCKED if unfinished.is_locked else _FAILED
