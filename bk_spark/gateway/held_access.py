"""All tokens and grants in memory, as long as they are known to hold.

One thread looks at the head behind a sync: after each event of a watch, and at least every CONFIRM_S. What a look confirms
holds for HOLD_S from the moment at which that look *began*: every change that was done before is in it. Then, without another
look, nothing is known any more, and every answer is MetadataUnavailableError. So the bound needs no watch that fires, no clock
of another machine and no session; a process that stood still knows nothing when it goes on.

Ref: DESIGN.md, "Who may do what".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.gateway.access_records import AccessChange
from bk_spark.gateway.access_rules import AccessContent
from bk_spark.gateway.rights import Rights
from bk_spark.gateway.stored_access import StoredAccess

CONFIRM_S = 2.0
"""Between two looks without an event. One costs a sync and a read of a small value: some 1 ms of ZooKeeper's time."""
HOLD_S = 10.0
"""How long a look holds: five of them may fail. As long as ZooKeeper's session, so a server that restarts is not noticed."""

ADVICE = "calls are refused until it does, and none of them is known to be allowed or forbidden"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """What one look confirmed."""

    content: AccessContent
    rights: Rights
    began_s: float


OnLook = Callable[[Sequence[AccessChange]], None]
"""Called by the thread after each look, with the changes that came since the last one; with none where it failed."""


class HeldAccess:
    """Keeps tokens and grants until ``close``. The first look is done by the constructor, and raises what it raises."""

    def __init__(
        self,
        stored: StoredAccess,
        on_look: OnLook = lambda changes: None,
        *,
        confirm_s: float = CONFIRM_S,
        hold_s: float = HOLD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stored = stored
        self._on_look = on_look
        self._confirm_s = confirm_s
        self._hold_s = hold_s
        self._clock = clock
        self._problem = ""
        self._wake = threading.Event()
        self._is_closed = False
        self._held = self._looked(None)
        """Replaced as a whole, by the thread. Any thread may read it."""
        self._told = self._held.content.head.number
        """The last change that ``on_look`` was told of. What was before the start is told by nobody here."""
        self._end_watch = stored.watch(self._wake.set)
        self._wake.set()  # something may have changed before the watch was set
        self._thread = threading.Thread(target=self._run, name="bk_spark-access", daemon=True)
        self._thread.start()

    def now(self) -> Held:
        """What holds now. Never waits. Raises MetadataUnavailableError once the last look is too old."""
        held = self._held
        age_s = self._clock() - held.began_s
        if age_s > self._hold_s:
            problem = f"its tokens and grants were confirmed last {age_s:.0f} s ago, and that holds {self._hold_s:g} s"
            why = f": {self._problem}" if self._problem else ""
            raise MetadataUnavailableError(self._stored.uri, problem + why, ADVICE)
        return held

    def close(self) -> None:
        """What is held is not confirmed any more."""
        self._is_closed = True
        self._end_watch()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait(self._confirm_s)
            self._wake.clear()
            if not self._is_closed:
                self._look()

    def _look(self) -> None:
        changes: Sequence[AccessChange] = ()
        try:
            self._held = self._looked(self._held)
            self._problem = ""
            changes = self._changes()
        except BookKeeperError as problem:
            self._note(problem)
        self._on_look(changes)

    def _looked(self, before: Held | None) -> Held:
        began_s = self._clock()
        content = self._stored.read()
        if before is not None and content is before.content:
            return Held(content, before.rights, began_s)
        return Held(content, Rights(content.grants.values()), began_s)

    def _changes(self) -> Sequence[AccessChange]:
        number = self._held.content.head.number
        found = [change for _, change in self._stored.changes(self._told, number)] if number > self._told else ()
        self._told = number
        return found

    def _note(self, problem: BookKeeperError) -> None:
        """Once for each problem: a look follows every CONFIRM_S."""
        if str(problem) != self._problem:
            self._problem = str(problem)
            logger.warning("tokens and grants cannot be confirmed: %s", problem)
