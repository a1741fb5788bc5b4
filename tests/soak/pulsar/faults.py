"""Does a run's faults to bookies and to brokers: two threads, so that a bookie and a broker may be broken at one time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.soak.pulsar.bookies import Bookies
from tests.soak.pulsar.broker import Broker
from tests.soak.pulsar.plan import BOOKIE_LOST, BOOKIE_SUSPENDED, BROKER_SUSPENDED, Fault
from tests.soak.pulsar.waiting import wait_until

PROGRESS_S = 300.0
"""For messages of each topic to be acknowledged after a fault was undone: brokers find their way, on a busy machine."""

JOIN_S = 600.0


class Nemesis:
    """``progress`` says which share of all messages is acknowledged; 1.0 ends the faults.

    ``finish`` returns once all faults are undone. A thread's own failure is ``problem``: no progress, a process that does not
    start.
    """

    def __init__(
        self, bookies: Bookies, brokers: Sequence[Broker], progress: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self.done: Counter[str] = Counter()
        self.problem: Exception | None = None
        self._bookies = bookies
        self._brokers = brokers
        self._progress = progress
        self._say = say
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def start(self, bookie_faults: Sequence[Fault], broker_faults: Sequence[Fault]) -> None:
        lanes = ((bookie_faults, self._break_bookie), (broker_faults, self._break_broker))
        self._threads = [threading.Thread(target=self._play, args=lane, daemon=True) for lane in lanes]
        for thread in self._threads:
            thread.start()

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """No further fault begins."""
        self._stopped = True

    def finish(self) -> None:
        """Raises what hindered a fault from being done or undone."""
        self._stopped = True
        for thread in self._threads:
            thread.join(JOIN_S)
        if self.problem is not None:
            raise self.problem
        if not self.is_over:
            raise TimeoutError(f"a fault was not undone within {JOIN_S:g} s")

    def _play(self, faults: Sequence[Fault], do: Callable[[Fault], None]) -> None:
        try:
            for fault in faults:
                while self._progress() < fault.at and not self._stopped:
                    time.sleep(0.1)
                if self._stopped:
                    return
                do(fault)
                self.done[fault.kind] += 1
                self._await_progress(fault)
        except Exception as problem:  # given to the run's thread, which raises it
            self.problem = problem

    def _await_progress(self, fault: Fault) -> None:
        before = self._progress()
        wait_until(
            lambda: self._stopped or self._progress() > before or before >= 1.0,
            f"acknowledged messages of each topic after '{fault.kind}'",
            PROGRESS_S,
        )

    def _break_bookie(self, fault: Fault) -> None:
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
            bookie.kill()
            time.sleep(fault.lasts_s)
            self._bookies.revive(bookie)

    def _break_broker(self, fault: Fault) -> None:
        broker = self._brokers[fault.target % len(self._brokers)]
        self._tell(fault, broker.address)
        if fault.kind == BROKER_SUSPENDED:
            broker.suspend()
            time.sleep(fault.lasts_s)
            broker.resume()
            return
        broker.kill()
        time.sleep(fault.lasts_s)
        broker.start()

    def _tell(self, fault: Fault, victim: str) -> None:
        self._say(f"{self._progress():7.2%}  {fault.kind}: {victim}, for {fault.lasts_s:g} s")
