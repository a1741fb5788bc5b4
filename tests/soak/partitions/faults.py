"""Does a round's faults to the network, to processes, disks and clocks, and undoes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bk_spark.errors import BookKeeperError
from tests.soak.chaos.history import FAULT, Recorder
from tests.soak.chaos.timetable import END_S, Timetable
from tests.soak.partitions.clock import Clock
from tests.soak.partitions.fabric import Fabric
from tests.soak.partitions.link import Link, Pair, combined
from tests.soak.partitions.plan import CLOCK_JUMP, DISK_FAULTS, Fault
from tests.soak.partitions.processes import NodeApacheBookie, Server

KNOWN_END = "bk-spark: the metadata store"
"""With a sentence that begins so a bookie ends that loses ZooKeeper while it registers: its supervisor tries again."""

REGISTERS_S = 10.0
"""For a bookie to be on the list again: more than twice its session."""


@dataclass(frozen=True, slots=True)
class Victims:
    """What may be broken: processes by their nodes, and clocks by theirs."""

    fabric: Fabric
    servers: Mapping[str, Server]
    clocks: Mapping[str, Clock]
    registered: Callable[[], set[str]]
    """The ids of the bookies that are on the list."""


class Nemesis(Timetable[Fault]):
    """Disturbs links, breaks ZooKeeper and bookies with their disks, and puts clocks wrong."""

    def __init__(self, victims: Victims, faults: Sequence[Fault], recorder: Recorder) -> None:
        super().__init__(faults)
        self._fabric = victims.fabric
        self._servers = victims.servers
        self._clocks = victims.clocks
        self._registered = victims.registered
        self.problems: list[str] = []
        """What no server may do."""
        self._recorder = recorder
        self._broken = {name: threading.Lock() for name in victims.servers}
        self._active: list[Fault] = []
        self._lock = threading.Lock()

    def finish(self) -> None:
        """As the timetable's. What ended by itself is started again. So is a bookie of Apache's (4.17.3) that stays away from
        the list, because its session expired twice in a row."""
        super().finish()
        for name, server in self._servers.items():
            with self._broken[name]:
                if isinstance(server, NodeApacheBookie) and self._stays_away(server):
                    self.done.append("Apache's bookie stayed away")
                    _end(server)
                    _start_again(server)
                self._note_end(server)

    def _note_end(self, server: Server) -> None:
        """If it has ended by itself start it again, and say why it did."""
        if server.pid is not None:
            return
        reason = server.last_words
        self.done.append("a server ended by itself")
        self._recorder.record(FAULT, fault="ended by itself", nodes=[server.node.name], reason=reason)
        if not reason.startswith(KNOWN_END):
            self.problems.append(f"{server.node.name} ended by itself: {reason}")
        _start_again(server)

    def _stays_away(self, bookie: NodeApacheBookie) -> bool:
        deadline = time.monotonic() + REGISTERS_S
        while bookie.bookie_id not in self._registered():
            if time.monotonic() > deadline:
                return True
            time.sleep(0.1)
        return False

    def _play(self, fault: Fault) -> None:
        if fault.is_of_network:
            self._disturb(fault)
        elif fault.kind == CLOCK_JUMP:
            self._put_wrong(self._clocks[fault.nodes[0]], fault)
        else:
            self._break(self._servers[fault.nodes[0]], fault)

    def _disturb(self, fault: Fault) -> None:
        self._begun(fault)
        self._change(add=fault)
        time.sleep(fault.lasts_s)
        self._change(remove=fault)

    def _change(self, add: Fault | None = None, remove: Fault | None = None) -> None:
        with self._lock:
            self._active += [add] if add else []
            self._active = [fault for fault in self._active if fault is not remove]
            self._fabric.set(links_of(self._active))

    def _break(self, server: Server, fault: Fault) -> None:
        with self._broken[fault.nodes[0]]:
            self._begun(fault)
            if fault.kind == "suspend":
                self._note_end(server)
                server.suspend()
                time.sleep(fault.lasts_s)
                server.resume()
                return
            if fault.kind in DISK_FAULTS:
                _break_disk(server, fault)
            else:
                self._note_end(server)
                server.kill()
                time.sleep(fault.lasts_s)
            if server.pid is None:
                _start_again(server)

    def _put_wrong(self, clock: Clock, fault: Fault) -> None:
        self._begun(fault)
        clock.show(fault.ahead_s)
        time.sleep(fault.lasts_s)
        clock.show(0.0)

    def _begun(self, fault: Fault) -> None:
        self.done.append(fault.kind)
        facts = {"nodes": fault.nodes, "peers": fault.peers, "lasts_s": fault.lasts_s, "ahead_s": fault.ahead_s}
        self._recorder.record(FAULT, fault=fault.kind, **facts)


def links_of(faults: Sequence[Fault]) -> dict[Pair, Link]:
    """What all of them together make of the links."""
    found: dict[Pair, list[Link]] = {}
    for fault in faults:
        for pair, link in fault.links().items():
            found.setdefault(pair, []).append(link)
    return {pair: combined(links) for pair, links in found.items()}


def _break_disk(server: Server, fault: Fault) -> None:
    """A bookie whose disk fails may go on, with reads from its cache, until the disk is replaced."""
    disk = server.disk
    assert disk is not None, f"{fault.nodes[0]} has no disk of its own"
    if fault.kind == "full disk":
        disk.fill()
        time.sleep(fault.lasts_s)
        disk.free()
        return
    disk.fail()
    if fault.kind == "power cut":
        _end(server)
    time.sleep(fault.lasts_s)
    _end(server)
    disk.mend()


def _end(server: Server) -> None:
    if server.pid is not None:
        server.kill()


def _start_again(server: Server) -> None:
    """A bookie that finds no ZooKeeper ends, and is started again, as by a supervisor."""
    deadline = time.monotonic() + END_S
    while True:
        try:
            server.start()
            return
        except BookKeeperError:
            if time.monotonic() > deadline:
                raise
            _end(server)
