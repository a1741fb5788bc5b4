"""Carries out the faults of a schedule, within what the protocol is meant to survive: the fault atlas.

* Crashes of processes and machines, full and failing disks, splits, broken connections, stopped and killed clients: any
  number, for what was synced stays.
* Loss or damage of what was durable, of a disk or of one file, and bookies that never come back: at fewer than Qa bookies in a
  run, for that many copies of an acked entry there are at least. A bookie that lost its disk starts in limbo, with the highest
  ledger id as its watermark, and is not repaired within the run. Of a lost file nobody tells it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_changes

from tests.simulation.engines.schedule import Fault, Schedule
from tests.simulation.engines.virtual_time import KEEPALIVE_MS, VirtualTimeWorld
from tests.simulation.world.bookie_actor import SYNC_MS, BookieActor
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.messages import METADATA, Envelope
from tests.simulation.world.metadata_store import SimulatedMetadataStore
from tests.simulation.world.replication_actors import LockingClient
from tests.simulation.world.restored_disks import TIMEOUT_MS
from tests.simulation.world.world import Wake

MAX_CALLS = 10
"""A crash in the middle of a call comes within so many disk operations."""

SLOW_SYNC_MS = 3_000
NAMED_LATE_MS = 3_000
"""By then the limbo of a bookie that was killed is over."""

EDIT_EVERY_MS = 5
MAX_EDITS = 100


class Faults:
    name = "faults"

    def __init__(
        self,
        world: VirtualTimeWorld,
        schedule: Schedule,
        bookies: dict[str, BookieActor],
        clients: dict[str, ClientProcess],
        store: SimulatedMetadataStore,
    ) -> None:
        self._world = world
        self._schedule = schedule
        self._bookies = bookies
        self._clients = clients
        self._store = store
        self._is_over = False
        self._to_restart: set[str] = set()
        """Bookies whose disks failed: they take nothing more until they are started again."""

    def receive(self, envelope: Envelope) -> None:
        """Nobody writes to it."""

    def wake(self, wake: Wake) -> None:
        if not self._is_over:
            wake()

    def begin(self) -> None:
        """Have each fault come at its time."""
        for fault in self._schedule.faults:
            self._later(fault.at_ms, lambda fault=fault: self._strike(fault))  # type: ignore[misc]

    def end(self) -> None:
        """There are no more faults, and what can be repaired by starting it again is."""
        self._is_over = True
        for name, bookie in self._bookies.items():
            bookie.disk.fails_on, bookie.sync_ms, bookie.may_garble = None, SYNC_MS, lambda: False
            bookie.disk.stop_never()
            bookie.set_read_only(False)
            if self._schedule.has_cookies:
                bookie.identity.is_stopped = True
            if name in self._to_restart:
                bookie.crash(is_machine=False)
            bookie.start()

    def _strike(self, fault: Fault) -> None:
        strike: dict[str, Callable[[Fault], None]] = {
            "kill": self._crash,
            "crash": self._crash,
            "crash in a call": self._crash_in_a_call,
            "clean restart": self._restart_cleanly,
            "restart all": self._restart_all,
            "full disk": self._fail_disk,
            "failing sync": self._fail_disk,
            "slow disk": self._slow_disk,
            "break": self._break,
            "split": self._split,
            "one-way split": self._split,
            "metadata split": self._split,
            "stop writer": self._stop_client,
            "kill client": self._kill_client,
            "lose data": self._lose_data,
            "rot": self._rot,
            "lose file": self._lose_file,
            "restore": self._restore,
            "cookie store away": self._take_cookie_store_away,
            "gone": self._go,
            "read-only": self._read_only,
            "foreign edits": self._edit,
            "delete": self._delete,
            "stall": self._stall,
            "expire": self._expire,
            "kill replicator": self._kill_replicator,
            "kill target": self._kill_target,
        }
        strike[fault.kind](fault)

    def _later(self, delay_ms: int, wake: Wake) -> None:
        self._world.later(delay_ms, self, wake)

    def _note(self, fault: Fault) -> None:
        self._world.count(fault.kind)
        self._world.note(self.name, f"{fault.kind}: {fault.target}")

    # --- bookies

    def _crash(self, fault: Fault) -> None:
        bookie = self._bookies[fault.target]
        if bookie.is_up and self._may_end_uncleanly(fault.target):
            self._note(fault)
            bookie.may_garble = lambda: self._may_lose(fault.target)
            bookie.crash(is_machine=fault.kind == "crash")
            self._later(fault.for_ms, bookie.start)

    def _kill_target(self, fault: Fault) -> None:
        """The bookie that was copied to last: now, or right before it is named, which then comes late. It is soon back."""
        client = self._clients.get(fault.target)
        if isinstance(client, LockingClient) and self._world.choices.choose(2, "right before it is named"):
            client.before_change = lambda: None if self._is_over else self._kill_before_it_is_named(client, fault)
        else:
            self._kill_last_target(fault)

    def _kill_before_it_is_named(self, client: ClientProcess, fault: Fault) -> None:
        self._kill_last_target(fault)
        link = (client.name, METADATA)
        self._world.part([link])
        self._later(NAMED_LATE_MS, lambda: self._world.heal([link]))

    def _kill_last_target(self, fault: Fault) -> None:
        target, history = self._world.copied_to, self._world.invariants.history
        if target and target not in history.current.bookies:
            history.lossy.add(target)  # nothing was promised of it, so this costs no copy
        if target:
            self._crash(with_changes(fault, target=target))

    def _may_end_uncleanly(self, bookie: str) -> bool:
        """Without the journal it loses what is in its memory."""
        if not self._schedule.skips_journal:
            return True
        if not self._may_lose(bookie):
            return False
        self._world.invariants.history.lossy.add(bookie)
        return True

    def _crash_in_a_call(self, fault: Fault) -> None:
        if not self._may_end_uncleanly(fault.target):
            return
        self._note(fault)
        bookie = self._bookies[fault.target]
        bookie.may_garble = lambda: self._may_lose(fault.target)
        bookie.disk.stop_after(self._world.choices.between(1, MAX_CALLS, "crash at disk call"))

    def _restart_cleanly(self, fault: Fault) -> None:
        bookie = self._bookies[fault.target]
        if bookie.is_up:
            self._note(fault)
            bookie.stop_cleanly()
            self._later(fault.for_ms, bookie.start)

    def _restart_all(self, fault: Fault) -> None:
        """All bookies end at once: what none of them has stored by then is known to nobody but its writer."""
        self._note(fault)
        for bookie in self._bookies.values():
            if bookie.is_up:
                bookie.crash(is_machine=False)
                self._later(fault.for_ms, bookie.start)

    def _fail_disk(self, fault: Fault) -> None:
        if not self._may_end_uncleanly(fault.target):
            return
        self._note(fault)
        bookie = self._bookies[fault.target]
        bookie.disk.fails_on = "write" if fault.kind == "full disk" else "sync"
        self._to_restart.add(fault.target)

        def replace() -> None:
            bookie.disk.fails_on = None
            bookie.crash(is_machine=False)
            bookie.start()

        self._later(fault.for_ms, replace)

    def _slow_disk(self, fault: Fault) -> None:
        self._note(fault)
        bookie = self._bookies[fault.target]
        bookie.sync_ms = SLOW_SYNC_MS
        self._later(fault.for_ms, lambda: setattr(bookie, "sync_ms", SYNC_MS))

    def _read_only(self, fault: Fault) -> None:
        self._note(fault)
        bookie = self._bookies[fault.target]
        bookie.set_read_only(True)
        self._later(fault.for_ms, lambda: bookie.set_read_only(False))

    # --- the metadata

    def _edit(self, fault: Fault) -> None:
        """Somebody edits the metadata, again and again, for a while or MAX_EDITS times."""
        self._note(fault)
        for number in range(min(MAX_EDITS, max(1, fault.for_ms // EDIT_EVERY_MS))):
            self._later(number * EDIT_EVERY_MS, lambda number=number: self._store.edit(number))  # type: ignore[misc]

    def _delete(self, fault: Fault) -> None:
        self._note(fault)
        self._store.delete()

    # --- bookies that lose what was durable

    def _may_lose(self, bookie: str) -> bool:
        """Whether one more copy may be lost, and if so of this bookie."""
        history = self._world.invariants.history
        return bookie in history.lossy or len(history.lossy | history.foreign | {bookie}) < self._schedule.shape[2]

    def _lose_data(self, fault: Fault) -> None:
        """Now, or at a later time back to the present state."""
        if not self._may_lose(fault.target):
            return
        self._world.invariants.history.lossy.add(fault.target)
        self._note(fault)
        bookie = self._bookies[fault.target]
        snapshot = bookie.disk.snapshot() if self._world.choices.choose(2, "back to an older state") else None

        def lose() -> None:
            if bookie.is_refused or bookie.is_gone:
                return
            bookie.crash(is_machine=True)
            self._world.note(fault.target, "has an older disk" if snapshot else "has an empty disk")
            if snapshot is None:
                bookie.disk.wipe()
            else:
                bookie.disk.restore(snapshot)
            bookie.lose_disk()
            bookie.start()

        self._later(fault.for_ms if snapshot is not None else 0, lose)

    def _restore(self, fault: Fault) -> None:
        """A snapshot is taken now, and put back later. The bookie is not told."""
        bookie = self._bookies[fault.target]
        if not self._may_lose(fault.target):
            return
        self._world.invariants.history.lossy.add(fault.target)
        self._note(fault)
        snapshot, taken_ms = bookie.disk.snapshot(), self._world.now_ms

        def go_back() -> None:
            took = bookie.took
            is_promised = took.acknowledged_ms < taken_ms or took.staged_ms > taken_ms + TIMEOUT_MS
            if bookie.is_refused or bookie.is_gone or not is_promised:
                return
            bookie.crash(is_machine=True)
            self._world.count("disks that went back")
            self._world.note(fault.target, "has the disk that it had when the snapshot was taken")
            bookie.disk.restore(snapshot)
            bookie.start()

        self._later(fault.for_ms, go_back)

    def _take_cookie_store_away(self, fault: Fault) -> None:
        self._note(fault)
        store = self._bookies[fault.target].identity.store
        store.is_away = True
        self._later(fault.for_ms, lambda: setattr(store, "is_away", False))

    def _rot(self, fault: Fault) -> None:
        if self._may_lose(fault.target):
            suffix = self._world.choices.pick((".log", ".journal"), "what rots")
            path = self._bookies[fault.target].disk.rot(suffix, self._world.choices)
            if path is not None:
                self._world.invariants.history.lossy.add(fault.target)
                self._note(fault)

    def _lose_file(self, fault: Fault) -> None:
        """A file of a stopped bookie vanishes, in whole or in part, and nobody tells the bookie."""
        bookie = self._bookies[fault.target]
        if bookie.is_refused or bookie.is_gone or not self._may_lose(fault.target):
            return
        if self._world.choices.choose(2, "it was stopped cleanly"):
            bookie.stop_cleanly()
        else:
            bookie.crash(is_machine=False)
        path = bookie.disk.lose_file(self._world.choices)
        if path is not None:
            self._world.invariants.history.lossy.add(fault.target)
            self._note(fault)
            self._world.note(fault.target, f"loses {path}")
        self._later(fault.for_ms, bookie.start)

    def _go(self, fault: Fault) -> None:
        if self._may_lose(fault.target):
            self._world.invariants.history.lossy.add(fault.target)
            self._note(fault)
            bookie = self._bookies[fault.target]
            bookie.crash(is_machine=True)
            bookie.is_gone = True

    # --- connections

    def _break(self, fault: Fault) -> None:
        client, bookie = self._pair(fault.target)
        self._world.count(fault.kind)
        self._world.break_connection(client, bookie)

    def _split(self, fault: Fault) -> None:
        self._note(fault)
        links = self._links(fault)
        self._world.part(links)
        self._later(fault.for_ms, lambda: self._world.heal(links))
        if fault.for_ms > KEEPALIVE_MS:
            self._later(KEEPALIVE_MS, lambda: self._give_up(links))

    def _give_up(self, links: list[tuple[str, str]]) -> None:
        """Connections over links that were split for so long are over."""
        pairs = {(a, b) if b in self._bookies or b == METADATA else (b, a) for a, b in links}
        for client, server in sorted(pairs):
            if client in self._clients:
                self._world.break_connection(client, server)

    def _links(self, fault: Fault) -> list[tuple[str, str]]:
        target = fault.target
        others = [*self._bookies, METADATA] if target in self._clients else list(self._clients)
        if fault.kind == "metadata split":
            others = [METADATA]
        out = [(target, other) for other in others]
        back = [(other, target) for other in others]
        if fault.kind == "one-way split":
            return out if self._world.choices.choose(2, "one way") == 0 else back
        return out + back

    def _pair(self, target: str) -> tuple[str, str]:
        choices = self._world.choices
        if target in self._clients:
            return target, choices.pick(list(self._bookies), "with")
        return choices.pick(list(self._clients), "with"), target

    # --- clients

    def _stop_client(self, fault: Fault) -> None:
        client = self._clients[fault.target]
        self._world.count(fault.kind)
        client.stop()
        held = [
            (fault.target, bookie) for bookie in self._bookies if self._world.choices.chance(40, "what it sent is held back")
        ]
        self._world.part(held)

        def go_on() -> None:
            self._world.heal(held)
            client.go_on()

        self._later(fault.for_ms, go_on)

    def _kill_client(self, fault: Fault) -> None:
        self._world.count(fault.kind)
        self._clients[fault.target].kill()

    def _stall(self, fault: Fault) -> None:
        """It stands still for longer than its session lasts, at once or when it next changes something, which may come late."""
        client = self._clients.get(fault.target)
        if client is None or client.is_stopped or not client.is_alive:
            return
        if isinstance(client, LockingClient) and self._world.choices.choose(2, "at its next change"):
            client.before_change = lambda: None if self._is_over else self._stop_and_expire(client, fault)
        else:
            self._stop_and_expire(client, fault)

    def _stop_and_expire(self, client: ClientProcess, fault: Fault) -> None:
        self._note(fault)
        link = (client.name, METADATA)
        client.stop()
        if self._world.choices.choose(2, "what it writes comes late"):
            self._world.part([link])
        self._store.lock.expire(client.name)

        def go_on() -> None:
            self._world.heal([link])
            client.go_on()

        self._later(fault.for_ms, go_on)

    def _expire(self, fault: Fault) -> None:
        """Its session is lost while it works; it learns of that by its next request."""
        self._note(fault)
        self._store.lock.expire(fault.target)
        self._world.break_connection(fault.target, METADATA)

    def _kill_replicator(self, fault: Fault) -> None:
        self._kill_client(fault)
        self._later(fault.for_ms, lambda: self._store.lock.expire(fault.target))
