"""What all state machines of one client share: connections, the metadata store, clock and randomness, knowledge of bookies.

``runner.py`` drives the state machines with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import grpc.aio

from bk_spark.calls.forks import check_process, end_in_child
from bk_spark.client.driver.apache.framing import Framing
from bk_spark.client.driver.bookies import Bookies
from bk_spark.client.driver.channels import Channels
from bk_spark.client.driver.connections import describe_failure
from bk_spark.client.driver.event_loop import BEAT_MS, EventLoop, PatientClock, check_may_wait
from bk_spark.client.driver.log_secrets import LogSecrets
from bk_spark.client.driver.loop_work import LoopWork
from bk_spark.client.protocol.limits import milliseconds
from bk_spark.client.protocol.placement.arrange_racks import Choose
from bk_spark.client.protocol.placement.choose_bookies import Candidate, Terms, choose_ensemble, choose_replacements
from bk_spark.client.protocol.placement.quarantine import Quarantine
from bk_spark.client.protocol.placement.rack_spread import Spread
from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.client.protocol.state_machine import ChooseReplacements, ReplacementsChosen
from bk_spark.config import ClientConfig
from bk_spark.errors import (
    BookKeeperError,
    ConfigError,
    EntryTooLargeError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    State,
)
from bk_spark.metadata.cookies import all_cookies
from bk_spark.metadata.registration import BookieAddress, RegisteredBookie, list_bookies, lookup, watch_bookies
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.wire.messages import AdministerReply, AdminOperation, BookieDescription, Status

logger = logging.getLogger(__name__)

METADATA_THREADS = 8
"""Threads for blocking calls to the metadata store, started when they are first needed. The store syncs concurrent writes
together."""

MAX_BOOKIES = 1000
"""Bookies whose racks are remembered after they went, more than clusters have."""

AVOID_S = 30.0
"""How long a bookie that did not answer a read is asked last: as long as an operator's restart takes."""

_Result = TypeVar("_Result")


class EnsembleChoice:
    """Chooses bookies for all of a client's ledgers: placement over the registered ones, with quarantine.

    ``now_ms`` is the client's clock for deadlines.
    """

    def __init__(self, config: ClientConfig, choose: Choose) -> None:
        self._config = config
        self._choose = choose
        self._quarantine = Quarantine(config.quarantine_errors, milliseconds(config.quarantine_s))
        self._racks: dict[str, str] = {}
        """The racks of bookies that are registered, or were. A bookie that is gone still holds copies in its rack."""
        self._has_warned_of_racks = False

    def report_failure(self, bookie_id: str, now_ms: int) -> None:
        """Count a failed request of a bookie."""
        if self._quarantine.report(bookie_id, now_ms):
            errors, period_s = self._config.quarantine_errors, self._config.quarantine_s
            logger.warning("bookie %s failed %d times: new ensembles do without it for %g s", bookie_id, errors, period_s)

    def ensemble(
        self, registered: Sequence[RegisteredBookie], ensemble_size: int, write_quorum: int, now_ms: int
    ) -> tuple[str, ...]:
        """The bookies of a new ledger. Raises NotEnoughBookiesError."""
        candidates = self._candidates(registered, now_ms)
        terms = Terms(write_quorum, self._config.min_racks_per_write_quorum)
        chosen = choose_ensemble(candidates, ensemble_size, terms, self._choose)
        self._warn_of_racks(candidates, chosen.spread, write_quorum, chosen.bookies)
        return chosen.bookies

    def replacements(
        self, registered: Sequence[RegisteredBookie], wanted: ChooseReplacements, write_quorum: int, now_ms: int
    ) -> ReplacementsChosen:
        """The answer to a ChooseReplacements."""
        candidates = self._candidates(registered, now_ms)
        here = {candidate.bookie_id for candidate in candidates}
        gone = [bookie_id for bookie_id in wanted.ensemble if bookie_id in self._racks and bookie_id not in here]
        known = candidates + [Candidate(bookie_id, self._racks[bookie_id], is_read_only=True) for bookie_id in gone]
        excluded = wanted.excluded | self._quarantine.bookies(now_ms) if wanted.must_be_sound else wanted.excluded
        terms = Terms(write_quorum, self._config.min_racks_per_write_quorum, wanted.must_widen, wanted.only)
        chosen = choose_replacements(known, wanted.ensemble, wanted.slots, excluded, terms=terms, choose=self._choose)
        bookies = tuple(bookie_id for _, bookie_id in chosen.bookies)
        if bookies:
            self._warn_of_racks(candidates, chosen.spread, write_quorum, bookies)
        return ReplacementsChosen(wanted.request_id, chosen.bookies, str(chosen.problem or ""))

    def rack_map(self, registered: Sequence[RegisteredBookie], now_ms: int) -> RackMap:
        return RackMap(self._candidates(registered, now_ms))

    def _candidates(self, registered: Sequence[RegisteredBookie], now_ms: int) -> list[Candidate]:
        out = self._quarantine.bookies(now_ms)
        for bookie in registered:
            self._racks.pop(bookie.bookie_id, None)
            self._racks[bookie.bookie_id] = bookie.rack
        while len(self._racks) > max(MAX_BOOKIES, len(registered)):
            del self._racks[next(iter(self._racks))]
        return [Candidate(bookie.bookie_id, bookie.rack, bookie.bookie_id in out, bookie.read_only) for bookie in registered]

    def _warn_of_racks(
        self, candidates: Sequence[Candidate], spread: Spread, write_quorum: int, bookies: tuple[str, ...]
    ) -> None:
        """Warn once in a client's life: the same is true for every new ledger until bookies are added."""
        possible = min(write_quorum, len({candidate.rack for candidate in candidates}))
        if spread.fewest_racks < possible and not self._has_warned_of_racks:
            self._has_warned_of_racks = True
            what = "with %s some entries are in fewer racks than could be wished for, %d of %d: start bookies in other racks"
            logger.warning(what, ", ".join(bookies), spread.fewest_racks, possible)


class EndsWithClient(Protocol):
    def look(self) -> None:
        """See what has arrived. Called on the event loop, at each beat."""

    def forked(self) -> None:
        """This is a forked process: fail what waits."""

    def client_closed(self) -> None:
        """The connections have ended: nothing will be confirmed any more. Called on the event loop."""


class ClientContext:
    """What a client's state machines run on."""

    def __init__(self, store: MetadataStore, znodes: Znodes, config: ClientConfig) -> None:
        """Raises ConfigError if the TLS files that ``config`` names cannot be used."""
        channels = Channels(config)
        self.store = store
        self.znodes = znodes
        self.config = config
        self.secrets = LogSecrets(store, znodes)
        """For those who write to keyed ledgers that others made."""
        self.marks = UnderReplication(store, znodes)
        """Marks of under-replicated ledgers; nothing is read or created before the first mark."""
        self.loop = EventLoop.get()
        self.appends_stand_in_line = False
        """Whether an append of a new writer without room stands in line. Otherwise the thread that makes it waits."""
        self._executor = ThreadPoolExecutor(METADATA_THREADS, thread_name_prefix="bk_spark-metadata")
        self._framing = Framing(config.apache_frame_bytes)
        self.bookies = Bookies(self._lookup, channels, self._framing)
        self._apaches: frozenset[str] = frozenset()
        """Apache's bookies among those that were registered at the last look. Replaced as a whole; any thread may read it."""
        self._writers: WeakSet[EndsWithClient] = WeakSet()
        """Used on the event loop only."""
        self._closed = False
        self._random = random.Random()
        self._ensembles = EnsembleChoice(config, self.choose)
        self._clock = PatientClock(_monotonic_ms())
        self.loop.call_soon_threadsafe(self._beat)
        end_in_child(self)
        self._avoided_until_s: dict[str, float] = {}
        self._registered: asyncio.Task[list[RegisteredBookie]] | None = None
        """The list of registered bookies; None after a change."""
        self._is_watching = False

    def now_ms(self) -> int:
        """A clock for deadlines: it never goes back, and does not count stalls of this process. On the event loop only."""
        return self._clock.look(_monotonic_ms())

    def _beat(self) -> None:
        """Look at the clock until the client is closed, or it would take idleness for a stall."""
        if not self._closed:
            self.now_ms()
            for writer in list(self._writers):
                writer.look()  # an interrupt may have swallowed a wake-up
            self.loop.call_later(BEAT_MS / 1000, self._beat)

    def wall_clock_ms(self) -> int:
        """Milliseconds since 1970: for people, never for decisions."""
        return int(time.time() * 1000)

    def choose(self, count: int) -> int:
        """A random number from 0 to ``count`` - 1."""
        return self._random.randrange(count)

    # --- which bookies to use

    def choose_ensemble(self, ensemble_size: int, write_quorum: int) -> tuple[str, ...]:
        """Choose writable bookies for a new ledger; waits. Raises NotEnoughBookiesError, MetadataUnavailableError."""
        self.check_open()
        self.check_may_wait()
        return self.run(self._choose_ensemble(ensemble_size, write_quorum))

    async def choose_replacements(self, wanted: ChooseReplacements, write_quorum: int) -> ReplacementsChosen:
        """The answer to a ChooseReplacements: no bookie, with the reason, if the registered bookies cannot be listed."""
        try:
            registered = await (self.registered() if wanted.is_patient else self._list_bookies())
        except BookKeeperError as failure:
            return ReplacementsChosen(wanted.request_id, (), str(failure))
        return self._ensembles.replacements(registered, wanted, write_quorum, self.now_ms())

    async def registered(self) -> list[RegisteredBookie]:
        """The registered bookies. They are listed again only after a change, which a watch reports within milliseconds."""
        listing = self._registered
        if listing is None:
            listing = self._registered = self.loop.create_task(self._watch_and_list_bookies())
            listing.add_done_callback(self._forget_failed)
        return await asyncio.shield(listing)

    @property
    def most_apache_bytes(self) -> int:
        """The largest payload that a bookie of Apache's takes."""
        return self._framing.most_payload_bytes

    def check_payload_size(self, nbytes: int, ensemble: Iterable[str]) -> None:
        """Raise EntryTooLargeError for a payload that a bookie of the ensemble would not take. Any thread may call this."""
        most = self.most_apache_bytes
        if nbytes > most and not self._apaches.isdisjoint(ensemble):
            raise EntryTooLargeError(nbytes, most)

    async def rack_map(self) -> RackMap:
        """Where copies may go now. Raises MetadataUnavailableError."""
        return self._ensembles.rack_map(await self.registered(), self.now_ms())

    def report_failure(self, bookie_id: str) -> None:
        """Count a failed request: after many, new ensembles do without the bookie for a while. On the event loop only."""
        self._ensembles.report_failure(bookie_id, self.now_ms())

    def avoided(self) -> frozenset[str]:
        """Bookies that recently did not answer reads."""
        now_s = time.monotonic()
        return frozenset(bookie_id for bookie_id, until_s in list(self._avoided_until_s.items()) if until_s > now_s)

    def avoid(self, bookie_id: str) -> None:
        """Have new reads ask this bookie last, for a while."""
        self._avoided_until_s[bookie_id] = time.monotonic() + AVOID_S

    # --- running things

    def submit(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Run a coroutine on the event loop. To cancel the future cancels it."""
        running = LoopWork(self.loop, work)
        running.begin()
        return running

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of a coroutine that runs on the event loop. It is cancelled if the wait for it is interrupted."""
        running = LoopWork(self.loop, work)
        try:
            running.begin()
            result: _Result = running.result()
        except BaseException:
            running.cancel()
            raise
        return result

    async def blocking(self, call: Callable[[], _Result]) -> _Result:
        """Run a blocking call, such as one to the metadata store, beside the event loop."""
        if self._closed:
            raise MetadataUnavailableError(self.store.uri, "the client was closed")
        return await self.loop.run_in_executor(self._executor, call)

    def are_of_apache(self, bookie_ids: Iterable[str]) -> bool:
        """Whether these bookies are Apache's, as far as this client knows (``Bookies.are_of_apache``)."""
        return self.run(self.bookies.are_of_apache(bookie_ids))

    def describe(self, bookie_id: str) -> BookieDescription | None:
        """A bookie's description of itself; None if it does not answer."""
        bookie = self.bookies.bookie(bookie_id)
        try:
            return self.run(bookie.describe(self.config.read_timeout_s))
        except (grpc.aio.AioRpcError, BookKeeperError, OSError):
            return None

    def administer(self, bookie_id: str, operation: AdminOperation, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        """Have a bookie carry out an administrator's request; UNKNOWN with the reason if it does not answer."""
        bookie = self.bookies.bookie(bookie_id)
        try:
            return self.run(bookie.administer(operation, self.config.read_timeout_s, ledger_ids))
        except (grpc.aio.AioRpcError, BookKeeperError, OSError) as failure:
            return AdministerReply(Status.UNKNOWN, f"no answer: {describe_failure(failure)}")

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        """Raise ConfigError after ``close``, and in a forked process."""
        if self._closed:
            check_process()
            raise ConfigError("this client", State("closed"), "its handles are of no use any more: open a new BookKeeper")

    def check_may_wait(self) -> None:
        """Raise ConfigError on the event loop's own thread: to wait there for the event loop would never end."""
        check_may_wait(self.loop)

    def end_with_client(self, writer: EndsWithClient) -> None:
        """Have a writer told when the client is closed, for as long as it is in use."""
        self.loop.call_soon_threadsafe(self._writers.add, writer)

    def close(self) -> None:
        """Called again it does nothing, or waits for the first call."""
        self.check_may_wait()
        self._closed = True
        self.submit(self._end()).result()
        self._executor.shutdown()

    def forked(self) -> None:
        """This is a forked process: fail what waits."""
        self._closed = True
        for writer in list(self._writers):
            writer.forked()

    async def _end(self) -> None:
        await self.bookies.close()
        for writer in list(self._writers):
            writer.client_closed()

    async def _choose_ensemble(self, ensemble_size: int, write_quorum: int) -> tuple[str, ...]:
        try:
            return self._ensembles.ensemble(await self.registered(), ensemble_size, write_quorum, self.now_ms())
        except NotEnoughBookiesError:
            self._forget_registered()  # the watch may not have reported a new bookie yet
        registered = await self.registered()
        try:
            return self._ensembles.ensemble(registered, ensemble_size, write_quorum, self.now_ms())
        except NotEnoughBookiesError as problem:
            known = await self.blocking(lambda: all_cookies(self.store, self.znodes))
            running = {one.bookie_id for one in registered}
            problem.absent = tuple(name for name, facts in known.items() if name not in running and facts.boot != 0)
            raise

    async def _watch_and_list_bookies(self) -> list[RegisteredBookie]:
        if not self._is_watching:
            await self.blocking(lambda: watch_bookies(self.store, self.znodes, self._bookies_changed))
            self._is_watching = True
        return await self._list_bookies()

    def _bookies_changed(self) -> None:
        self.loop.call_soon_threadsafe(self._forget_registered)

    def _forget_failed(self, listing: asyncio.Task[list[RegisteredBookie]]) -> None:
        """A failure is told to those who wait for it, and to nobody who asks later, also if all who waited have given up."""
        is_failed = listing.cancelled() or listing.exception() is not None
        if is_failed and self._registered is listing:
            self._registered = None

    def _forget_registered(self) -> None:
        self._registered = None

    async def _list_bookies(self) -> list[RegisteredBookie]:
        registered = await self.blocking(lambda: list_bookies(self.store, self.znodes))
        self._apaches = frozenset(bookie.bookie_id for bookie in registered if bookie.is_apache)
        return registered

    async def _lookup(self, bookie_id: str) -> BookieAddress | None:
        return await self.blocking(lambda: lookup(self.store, self.znodes, bookie_id))


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)
