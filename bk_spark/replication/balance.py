"""Balances a cluster: bookies that are fuller than the others give copies to emptier ones.

1. Each registered bookie is asked for its space. One that does not tell neither gives nor takes, and is named.
2. A first listing of all ledgers sums up what each bookie holds, as an estimate (``balance_plan.py``).
3. A second one moves copies, page by page, until no bookie is overfull or ``max_bytes`` are moved. Each ledger is decided on
   anew under its lock (``Rereplicator.balance``).

One balance runs at a time, for two would both move what one of them should; an ephemeral znode says so. It begins nothing while
AutoRecovery is disabled, and drops what is under way when that is switched off. It keeps no state: if it is killed at any time,
what was moved stays moved, copies that were under way are superfluous, and the next run goes on.

Ref: DESIGN.md, "A balance moves copies".
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.errors import BookKeeperError, ConfigError, State
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import RegisteredBookie
from bk_spark.metadata.store import BadVersionError, NodeExistsError, NoNodeError, find
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.progress import Progress
from bk_spark.replication.balance_plan import TOLERANCE, BalancePlan, BookieCapacity, capacities, held_fragments
from bk_spark.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig

PAGE_LEDGERS = 1_000
"""Ledgers that are listed at a time. Nothing is kept of them afterwards."""

MAX_BYTES = 100 << 30
"""What one run moves if it is not told: ten minutes at the default pace."""

MOST_NAMED = 20
"""Moves that fail and are told of, each with its reason; further ones are counted."""

LOOK_S = 1.0
"""How often it looks whether AutoRecovery was disabled."""


@dataclass(frozen=True, slots=True)
class BalanceOptions:
    """How much is moved, and at which pace (the settings of a replication worker)."""

    max_bytes: int = MAX_BYTES
    tolerance: float = TOLERANCE
    recovery: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    is_dry: bool = False
    """Only plan: nothing is written anywhere."""
    name: str = "balance"
    """Who this is, for people who meet its locks, or want to begin another balance."""


@dataclass(frozen=True, slots=True)
class BookieFullness:
    """A registered bookie, before and after. Fullness is held bytes over capacity."""

    bookie_id: str
    mode: str
    """``writable``, or ``read-only``: it takes nothing."""
    rack: str
    capacity_bytes: int | None
    """None: it does not tell, so it neither gives nor takes."""
    held_bytes: int
    """Before; of closed ledgers, estimated."""
    held_bytes_after: int
    before: float | None
    """Its fullness."""
    after: float | None


@dataclass(frozen=True, slots=True)
class BalanceReport:
    """What this run did; with ``is_dry``, what one would do."""

    bookies: tuple[BookieFullness, ...]
    mean: float
    """The fullness of those that tell, together."""
    copies: int
    nbytes: int
    """Planned ones are estimated, made ones are what was sent."""
    failed: int
    """Ledgers of which a copy should have moved and did not."""


def balance(
    client: BookKeeper,
    progress: Progress,
    options: BalanceOptions | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> BalanceReport:
    """Move copies from bookies that are fuller than the mean to emptier ones. Blocks until that is done.

    ``progress`` gets the ledgers that were looked at; ``say`` gets who is left out, and moves that failed. Raises ConfigError
    if AutoRecovery is or becomes disabled, if another balance runs, or for a tolerance that is not above 0; and
    MetadataUnavailableError. What was moved stays moved.
    """
    return _Balance(client, progress, options or BalanceOptions(), say).run()


class _Balance:
    def __init__(self, client: BookKeeper, progress: Progress, options: BalanceOptions, say: Callable[[str], None]) -> None:
        self._client = client
        self._store, self._znodes = client.metadata_store, client.znodes
        self._ledgers = LedgerStore(self._store, self._znodes)
        self._marks = UnderReplication(self._store, self._znodes)
        self._rereplicator = Rereplicator(client.context, options.recovery, self._marks, owner=options.name)
        self._progress = progress
        self._options = options
        self._say = say
        self._copies = self._nbytes = self._failed = 0

    def run(self) -> BalanceReport:
        registered = self._client.list_bookies()
        told = capacities({one.bookie_id: self._client.describe_bookie(one.bookie_id) for one in registered})
        for one in registered:
            if one.bookie_id not in told:
                self._say(f"bookie {one.bookie_id} does not tell its space: it neither gives copies nor takes any")
        if self._options.is_dry:
            return self._balance(registered, told)
        if not self._marks.is_enabled():
            raise _disabled()
        with self._alone():
            return self._balance(registered, told)

    def _balance(self, registered: Sequence[RegisteredBookie], told: Mapping[str, int]) -> BalanceReport:
        held = self._held(told)
        known = {one.bookie_id: one for one in registered if one.bookie_id in told}
        spaces = [
            BookieCapacity(name, one.rack, held[name], told[name], takes_copies=not one.read_only)
            for name, one in known.items()
        ]
        plan = BalancePlan(spaces, max_bytes=self._options.max_bytes, tolerance=self._options.tolerance)
        before = {name: plan.fullness(name) for name in known}
        self._move_all(plan)
        bookies = tuple(
            BookieFullness(
                one.bookie_id,
                "read-only" if one.read_only else "writable",
                one.rack,
                told.get(one.bookie_id),
                held[one.bookie_id],
                plan.held_bytes(one.bookie_id) if one.bookie_id in known else held[one.bookie_id],
                before.get(one.bookie_id),
                plan.fullness(one.bookie_id) if one.bookie_id in known else None,
            )
            for one in registered
        )
        return BalanceReport(bookies, plan.mean, self._copies, self._nbytes, self._failed)

    def _held(self, told: Mapping[str, int]) -> Counter[str]:
        """Bookie → bytes of closed ledgers that it holds, as the metadata say."""
        held, read, left = Counter[str](), 0, 0
        for page in self._pages():
            for metadata in page:
                left += not metadata.bookies <= told.keys()
                for fragment in held_fragments(metadata):
                    for bookie_id in fragment.ensemble:
                        held[bookie_id] += fragment.copy_bytes
            read += len(page)
            self._progress("ledgers read", read, read)
        if left:
            self._say(f"{left} ledgers name bookies that are not registered, or do not tell their space: they are left alone")
        return held

    def _move_all(self, plan: BalancePlan) -> None:
        looked_at, pages = 0, self._pages()
        while not plan.is_done and (page := next(pages, None)) is not None:
            found = [one for one in page if plan.knows(one.bookies)]
            if self._options.is_dry:
                moves = [move for one in found for fragment in held_fragments(one) for move in plan.moves_of(fragment)]
                self._copies += len(moves)
                self._nbytes += sum(move.nbytes for move in moves)
            else:
                wanted = [one.ledger_id for one in found if any(map(plan.wanted_move, held_fragments(one)))]
                if wanted:
                    self._client.context.run(self._move_page(plan, wanted))
            looked_at += len(page)
            self._progress("ledgers looked at", looked_at, looked_at)
        if self._failed > MOST_NAMED:
            self._say(f"and {self._failed - MOST_NAMED} further ledgers")

    async def _move_page(self, plan: BalancePlan, ledger_ids: Sequence[int]) -> None:
        slots = asyncio.Semaphore(self._options.recovery.parallel_ledgers)

        async def move(ledger_id: int) -> None:
            async with slots:
                if not plan.is_done:
                    self._note(await self._rereplicator.balance(ledger_id, plan))

        work: list[asyncio.Future[Any]] = [
            asyncio.gather(*map(move, ledger_ids)),
            asyncio.ensure_future(self._until_disabled()),
        ]
        try:
            ended, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for one in ended:
                one.result()
        finally:
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _until_disabled(self) -> None:
        """Raises ConfigError once AutoRecovery is disabled, and MetadataUnavailableError."""
        while await self._client.context.blocking(self._marks.is_enabled):
            await asyncio.sleep(LOOK_S)
        raise _disabled()

    def _note(self, done: RereplicatedLedger) -> None:
        self._copies += done.fragments
        self._nbytes += done.nbytes
        if not done.is_whole and not done.is_locked:
            self._failed += 1
            if self._failed <= MOST_NAMED:
                self._say(f"a copy stays where it is: {done.problem}")

    def _pages(self) -> Iterator[list[LedgerMetadata]]:
        """The closed ledgers, without those whose metadata cannot be read: the auditor names these."""
        self._store.sync(self._znodes.root)
        for page in ledger_pages(self._store, self._znodes, page=PAGE_LEDGERS):
            found = self._ledgers.readable(page)
            yield [one for one in found if isinstance(one, LedgerMetadata) and one.is_closed]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Raises ConfigError while another balance runs."""
        path, mine = self._znodes.balance, f"{self._options.name} #{uuid.uuid4().hex}".encode()
        try:
            self._store.create(path, mine, ephemeral=True, make_parents=True)
        except NodeExistsError:
            found = find(self._store, path)
            if found is None or found.value != mine:
                who = "" if found is None else f" as {found.value.decode(errors='replace').partition(' #')[0]}"
                remedy = (
                    "run this again when it has ended; one that was killed counts until its session ends, ten seconds later"
                )
                raise ConfigError("a balance", State(f"running{who}"), remedy) from None
        try:
            yield
        finally:
            with contextlib.suppress(NoNodeError, BadVersionError, BookKeeperError):
                found = self._store.get(path)
                if found.value == mine:
                    self._store.delete(path, found.version)


def _disabled() -> ConfigError:
    remedy = "nothing is copied until 'bk-spark autorecovery enable'; what was moved before stays moved, so run this again then"
    return ConfigError("AutoRecovery", State("disabled"), remedy)
