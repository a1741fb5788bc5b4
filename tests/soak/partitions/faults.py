"""Does a round's faults to the network and its processes, and undoes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from bk_spark.errors import BookKeeperError
from tests.soak.chaos.history import FAULT, Recorder
from tests.soak.chaos.timetable import END_S, Timetable
from tests.soak.partitions.fabric import Fabric
from tests.soak.partitions.link import Link, Pair, combined
from tests.soak.partitions.plan import Fault
from tests.soak.partitions.processes import EnsembleServer, NodeBookie

Server = EnsembleServer | NodeBookie


class Nemesis(Timetable[Fault]):
    """Disturbs links, and breaks ZooKeeper and bookies."""

    def __init__(self, fabric: Fabric, servers: Mapping[str, Server], faults: Sequence[Fault], recorder: Recorder) -> None:
        """``servers``: the processes that may be broken, by their nodes."""
        super().__init__(faults)
        self._fabric = fabric
        self._servers = servers
        self._recorder = recorder
        self._broken = {name: threading.Lock() for name in servers}
        self._active: list[Fault] = []
        self._lock = threading.Lock()

    def _play(self, fault: Fault) -> None:
        if fault.is_of_network:
            self._disturb(fault)
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
                server.suspend()
                time.sleep(fault.lasts_s)
                server.resume()
            else:
                server.kill()
                time.sleep(fault.lasts_s)
                _start_again(server)

    def _begun(self, fault: Fault) -> None:
        self.done.append(fault.kind)
        facts = {"nodes": fault.nodes, "peers": fault.peers, "lasts_s": fault.lasts_s}
        self._recorder.record(FAULT, fault=fault.kind, **facts)


def links_of(faults: Sequence[Fault]) -> dict[Pair, Link]:
    """What all of them together make of the links."""
    found: dict[Pair, list[Link]] = {}
    for fault in faults:
        for pair, link in fault.links().items():
            found.setdefault(pair, []).append(link)
    return {pair: combined(links) for pair, links in found.items()}


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
            if server.pid is not None:
                server.kill()
