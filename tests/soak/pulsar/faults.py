"""Does a run's faults: a thread for bookies and one for brokers, so that one of each may be broken at a time.

Each also starts again what ended by itself, as a supervisor does in production, and counts it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence

from bk_spark.local.process import LocalProcess
from tests.soak.chaos.faults import Bookie
from tests.soak.pulsar.bookies import Bookies
from tests.soak.pulsar.broker import Broker
from tests.soak.pulsar.plan import BOOKIE_LOST, BOOKIE_SUSPENDED, BOOKIES_KILLED, BROKER_SUSPENDED, Fault

PROGRESS_S = 300.0
"""For messages of each topic to be acknowledged after a fault was undone: brokers find their way, on a busy machine."""

END_S = 600.0
"""For a fault under way to be undone: a broker starts."""

_TICK_S = 0.1


class Lane(ABC):
    """``progress`` says which share of all messages is acknowledged. A failure of its thread is ``problem``."""

    def __init__(self, faults: Sequence[Fault], progress: Callable[[], float], say: Callable[[str], None]) -> None:
        self.done: Counter[str] = Counter()
        self.ended: list[str] = []
        """Processes that ended though nothing was done to them, each with its log."""
        self.problem: Exception | None = None
        self._faults = faults
        self._progress = progress
        self._say = say
        self._no_more = threading.Event()
        self._over = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end_faults(self) -> None:
        """No further fault begins; returns once the last one is undone. Raises ``problem``."""
        self._no_more.set()
        if not self._over.wait(END_S):
            raise TimeoutError(f"a fault was not undone within {END_S:g} s")
        if self.problem is not None:
            raise self.problem

    def stop(self) -> None:
        """Start nothing again from now on."""
        self._no_more.set()
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(END_S)

    @abstractmethod
    def processes(self) -> Sequence[LocalProcess]:
        """That should run now."""

    @abstractmethod
    def revive(self, process: LocalProcess) -> None:
        """Start one that has ended."""

    @abstractmethod
    def strike(self, fault: Fault) -> None:
        """Do it, and undo it."""

    def _run(self) -> None:
        try:
            self._play()
            self._over.set()
            while not self._stopped.wait(_TICK_S):
                self._mend()
        except Exception as problem:  # given to the run's thread, which raises it
            self.problem = problem
        finally:
            self._over.set()

    def _play(self) -> None:
        for fault in self._faults:
            while self._progress() < fault.at:
                if self._no_more.wait(_TICK_S):
                    return
                self._mend()
            self._mend()
            self.strike(fault)
            self.done[fault.kind] += 1
            self._await_progress(fault)

    def _await_progress(self, fault: Fault) -> None:
        before, deadline = self._progress(), time.monotonic() + PROGRESS_S
        while self._progress() <= before and not self._no_more.wait(_TICK_S):
            self._mend()
            if time.monotonic() > deadline:
                raise TimeoutError(f"some topic had no message acknowledged for {PROGRESS_S:g} s after '{fault.kind}'")

    def _mend(self) -> None:
        for process in self.processes():
            if process.pid is None:
                self.ended.append(str(process.log))
                self._say(f"{self._progress():7.2%}  ended by itself: {process.log}")
                self.revive(process)

    def _tell(self, fault: Fault, victim: str) -> None:
        self._say(f"{self._progress():7.2%}  {fault.kind}: {victim}, for {fault.lasts_s:g} s")


class BookieLane(Lane):
    def __init__(
        self, bookies: Bookies, faults: Sequence[Fault], progress: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        super().__init__(faults, progress, say)
        self._bookies = bookies

    def processes(self) -> Sequence[Bookie]:
        return self._bookies.living

    def revive(self, process: LocalProcess) -> None:
        self._bookies.revive(process)

    def strike(self, fault: Fault) -> None:
        bookie = self._bookies.living[fault.target % len(self._bookies.living)]
        self._tell(fault, bookie.bookie_id)
        if fault.kind == BOOKIE_SUSPENDED:
            bookie.suspend()
            time.sleep(fault.lasts_s)
            bookie.resume()
        elif fault.kind == BOOKIE_LOST:
            self._bookies.lose(bookie)
            time.sleep(fault.lasts_s)
            self._bookies.add()
        else:
            self._kill(self._bookies.living if fault.kind == BOOKIES_KILLED else [bookie], fault.lasts_s)

    def _kill(self, victims: Sequence[Bookie], lasts_s: float) -> None:
        for victim in victims:
            victim.kill()
        time.sleep(lasts_s)
        for victim in victims:
            self._bookies.revive(victim)


class BrokerLane(Lane):
    def __init__(
        self, brokers: Sequence[Broker], faults: Sequence[Fault], progress: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        super().__init__(faults, progress, say)
        self._brokers = brokers

    def processes(self) -> Sequence[Broker]:
        return self._brokers

    def revive(self, process: LocalProcess) -> None:
        assert isinstance(process, Broker)
        process.start()

    def strike(self, fault: Fault) -> None:
        broker = self._brokers[fault.target % len(self._brokers)]
        self._tell(fault, broker.address)
        if fault.kind == BROKER_SUSPENDED:
            broker.suspend()
            time.sleep(fault.lasts_s)
            broker.resume()
        else:
            broker.kill()
            time.sleep(fault.lasts_s)
            broker.start()
