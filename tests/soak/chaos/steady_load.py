"""Writers and readers that go on while bookies come and go, and note every error that reaches them.

A writer appends to a ledger of its own, rolls to a new one now and then, and notes what was confirmed to it. A reader takes any
entry that was confirmed to anybody, whatever happens meanwhile, and holds it against what was written.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError

ENTRY_BYTES = 1_000
ENTRIES_A_LEDGER = 150
"""Then a writer rolls, so that new ledgers are made while a bookie is away."""

PAUSE_S = 0.01
"""Between appends, and between reads: a steady load, not as much as there can be."""

SAMPLE = 20
"""Entries of one read."""


def payload(ledger_id: int, entry_id: int) -> bytes:
    """What every entry of a test's ledgers holds."""
    return (b"%d-%d " % (ledger_id, entry_id)).ljust(ENTRY_BYTES, b".")


@dataclass(slots=True)
class Noted:
    """What the load knows. Threads share it."""

    confirmed: dict[int, int] = field(default_factory=dict)
    """Ledger → the last entry that its writer was told is confirmed."""
    appends: int = 0
    reads: int = 0
    errors: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    """The longest append."""


class SteadyLoad:
    """``with SteadyLoad(uri) as load:``; ends with all threads ended. Look at ``noted`` afterwards, or meanwhile."""

    def __init__(self, metadata_uri: str, writers: int = 2, readers: int = 2, config: ClientConfig | None = None) -> None:
        self.noted = Noted()
        self._uri = metadata_uri
        self._config = config or ClientConfig()
        self._stop = threading.Event()
        self._moved = threading.Condition()
        work = [self._write] * writers + [self._read] * readers
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in work]

    def await_progress(self, appends: int = 50, reads: int = 20, deadline_s: float = 60.0) -> None:
        """Wait until so many more of both are done, or there is an error."""
        noted, deadline = self.noted, time.monotonic() + deadline_s
        wanted = (noted.appends + appends, noted.reads + reads)
        with self._moved:
            while not noted.errors and (noted.appends < wanted[0] or noted.reads < wanted[1]):
                if not self._moved.wait(deadline - time.monotonic()):
                    raise AssertionError(f"{noted.appends} appends and {noted.reads} reads after {deadline_s} s, not {wanted}")

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: object) -> None:
        """An error of any kind is noted, and ends the thread."""
        assert callable(work)
        try:
            with BookKeeper(self._uri, self._config) as client:
                work(client)
        except Exception as problem:
            self._note(error=f"{work.__name__.strip('_')}: {type(problem).__name__}: {problem}")

    def _note(self, *, appends: int = 0, reads: int = 0, error: str | None = None) -> None:
        with self._moved:
            self.noted.appends += appends
            self.noted.reads += reads
            self.noted.errors += [] if error is None else [error]
            self._moved.notify_all()

    def _write(self, client: BookKeeper) -> None:
        while not self._stop.is_set():
            with client.create_ledger() as writer:
                for entry_id in range(ENTRIES_A_LEDGER):
                    if self._stop.wait(PAUSE_S):
                        return
                    begun = time.monotonic()
                    writer.append(payload(writer.ledger_id, entry_id))
                    self.noted.slowest_s = max(self.noted.slowest_s, time.monotonic() - begun)
                    self.noted.confirmed[writer.ledger_id] = entry_id
                    self._note(appends=1)

    def _read(self, client: BookKeeper) -> None:
        chance = random.Random(threading.get_ident())
        while not self._stop.wait(PAUSE_S):
            known = list(self.noted.confirmed.items())
            if known:
                ledger_id, last = chance.choice(known)
                first = chance.randrange(last + 1)
                check_entries(client, ledger_id, first, min(last, first + SAMPLE - 1))
                self._note(reads=1)


def check_entries(client: BookKeeper, ledger_id: int, first: int, last: int) -> None:
    """Confirmed entries are readable, and are what was written. Raises BookKeeperError, AssertionError."""
    with client.open_ledger(ledger_id, recover=False) as reader:
        found = [one for batch in reader.read_unconfirmed(first, last) for one in batch.column("payload").to_pylist()]
    if found != [payload(ledger_id, entry_id) for entry_id in range(first, last + 1)]:
        raise AssertionError(f"ledger {ledger_id}: entries {first} to {last} are not what was written")


def is_unreadable(client: BookKeeper, ledger_id: int, last: int) -> str | None:
    """Why a ledger's entries up to ``last`` cannot all be read."""
    try:
        check_entries(client, ledger_id, 0, last)
    except (BookKeeperError, AssertionError) as problem:
        return f"ledger {ledger_id}: {problem}"
    return None
