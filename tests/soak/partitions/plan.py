"""What a round does, drawn from its seed alone: the faults of the network and of processes, and the lives of some ledgers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.soak.chaos.contest import SIDES
from tests.soak.chaos.plan import MAX_LOAD_BYTES, RoundPlan
from tests.soak.chaos.plan import draw as draw_life
from tests.soak.partitions.link import WHOLE, Link, Pair, between

ZOOKEEPERS = tuple(f"zookeeper-{number}" for number in (1, 2, 3))
BOOKIES = tuple(f"bookie-{number}" for number in (1, 2, 3, 4, 5))
REPAIRERS = ("repair-1", "repair-2")
"""AutoRecovery."""

LIVES = 3
"""Ledgers that are written, recovered and read side by side."""

LINK_FAULTS = {
    "cut": 5,
    "one way": 4,
    "flapping": 3,
    "rolling": 3,
    "bridge": 2,
    "minority": 3,
    "reset": 2,
    "slow": 2,
    "lossy": 2,
    "duplicating": 1,
    "narrow": 1,
}
PROCESS_FAULTS = {"kill": 3, "suspend": 2}
DISK_FAULTS = {"power cut": 2, "full disk": 1, "failing disk": 1}
CLOCK_JUMP = "clock jump"

ROUND_S = 30.0
"""Of faults, and then everything must end."""

LASTS_S = 2.1, 12.0
"""One fault: less and more than all timeouts of the clients, and than the sessions of the bookies."""

LOAD_S = 3.0, ROUND_S
"""Until a writer's end."""

LOADS = 4
"""So many times the bytes of a chaos test's round are appended to each ledger."""

JUMPS_S = (-86_400.0, -30.0, -2.0, 2.0, 30.0, 86_400.0)
"""Of a wall clock: corrected a little, set wrong by hand, or a day."""

FLAP_S = (0.2, 1.5)

ROLL_S = (0.9, 1.8)
"""How long a bookie is cut off in its turn: about as long as a client waits for it, so that answers come late."""


@dataclass(frozen=True, slots=True)
class Fault:
    """From ``after_s`` on, for ``lasts_s``.

    One of the network is on every link from one of ``nodes`` to one of ``peers``, and back unless it ``is_one_way``. One of
    processes, disks and clocks has a node alone.
    """

    kind: str
    nodes: tuple[str, ...]
    peers: tuple[str, ...]
    after_s: float
    lasts_s: float
    link: Link = WHOLE
    is_one_way: bool = False
    ahead_s: float = 0.0
    """Of a clock."""

    @property
    def is_of_network(self) -> bool:
        return self.kind in LINK_FAULTS

    def links(self) -> Mapping[Pair, Link]:
        pairs = between(self.nodes, self.peers)
        if not self.is_one_way:
            pairs += between(self.peers, self.nodes)
        return dict.fromkeys(pairs, self.link)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    seed: int
    faults: tuple[Fault, ...]
    lives: tuple[RoundPlan, ...]
    has_spark: bool


def clients(life: int) -> tuple[str, ...]:
    """The nodes of one life's roles."""
    return tuple(f"{role}-{life}" for role in ("writer", "first", "second"))


SPARK = "spark"
WITH_CLOCKS = (*BOOKIES, *(node for life in range(LIVES) for node in clients(life)), *SIDES, *REPAIRERS)
"""Processes of ours."""

CLIENTS = (*(node for life in range(LIVES) for node in clients(life)), *SIDES, SPARK, *REPAIRERS)

SPARK_EACH = 4
"""Every so many rounds a Spark driver takes part: it takes ten seconds to start."""


def draw(seed: int) -> PartitionPlan:
    chosen = random.Random(f"partitions {seed}")
    faults: list[Fault] = []
    for _ in range(chosen.randint(5, 10)):
        faults += _draw_fault(chosen)
    for _ in range(chosen.choice((0, 1, 1, 2))):
        faults.append(_draw_process_fault(chosen))
    faults += _draw_machine_faults(random.Random(f"machines {seed}"))
    lives = tuple(_draw_life(chosen, LIVES * seed + life) for life in range(LIVES))
    return PartitionPlan(seed, tuple(sorted(faults, key=lambda fault: fault.after_s)), lives, seed % SPARK_EACH == 0)


def _draw_life(chosen: random.Random, number: int) -> RoundPlan:
    """A life as the chaos test's, over a longer time. The faults that it would have had are the network's."""
    plan = draw_life(number, len(BOOKIES))
    load_s = chosen.uniform(*LOAD_S)
    load = replace(plan.load, pause_s=plan.load.pause_s * load_s / plan.load_s / LOADS, max_bytes=LOADS * MAX_LOAD_BYTES)
    return replace(plan, load=load, load_s=load_s, faults=(), starts_cold=False)


def _draw_fault(chosen: random.Random) -> list[Fault]:
    kind = chosen.choices(list(LINK_FAULTS), list(LINK_FAULTS.values()))[0]
    after_s, lasts_s = _draw_time(chosen)
    nodes, peers = _draw_groups(chosen, kind)
    fault = Fault(kind, nodes, peers, after_s, lasts_s, _draw_link(chosen, kind), kind == "one way")
    if kind == "flapping":
        return _flaps(chosen, fault)
    return _rolls(chosen, fault) if kind == "rolling" else [fault]


def _draw_process_fault(chosen: random.Random) -> Fault:
    kind = chosen.choices(list(PROCESS_FAULTS), list(PROCESS_FAULTS.values()))[0]
    return Fault(kind, (chosen.choice((*BOOKIES, *BOOKIES, *ZOOKEEPERS)),), (), *_draw_time(chosen))


def _draw_machine_faults(chosen: random.Random) -> list[Fault]:
    """Of disks and clocks."""
    disks = chosen.choices(list(DISK_FAULTS), list(DISK_FAULTS.values()), k=chosen.choice((0, 1, 1, 2)))
    found = [Fault(kind, (chosen.choice(BOOKIES),), (), *_draw_time(chosen)) for kind in disks]
    for _ in range(chosen.choice((0, 0, 1, 3))):
        node, ahead_s = chosen.choice(WITH_CLOCKS), chosen.choice(JUMPS_S)
        found.append(Fault(CLOCK_JUMP, (node,), (), *_draw_time(chosen), ahead_s=ahead_s))
    return found


def _draw_time(chosen: random.Random) -> tuple[float, float]:
    lasts_s = chosen.uniform(*LASTS_S)
    return chosen.uniform(0.0, ROUND_S - lasts_s), lasts_s


def _flaps(chosen: random.Random, fault: Fault) -> list[Fault]:
    """The same fault again and again, each time for a moment."""
    found, now_s = [], fault.after_s
    while now_s < fault.after_s + fault.lasts_s:
        lasts_s = chosen.uniform(*FLAP_S)
        found.append(replace(fault, after_s=now_s, lasts_s=lasts_s))
        now_s += lasts_s + chosen.uniform(*FLAP_S)
    return found


def _rolls(chosen: random.Random, fault: Fault) -> list[Fault]:
    """One bookie after the other, sometimes two at once, hears clients and is not heard by them, or neither."""
    found, now_s = [], fault.after_s
    one = replace(fault, peers=CLIENTS, is_one_way=chosen.random() < 0.5)
    while now_s < fault.after_s + fault.lasts_s:
        lasts_s, bookies = chosen.uniform(*ROLL_S), chosen.sample(BOOKIES, chosen.choice((1, 1, 2)))
        found.append(replace(one, nodes=tuple(bookies), after_s=now_s, lasts_s=lasts_s))
        now_s += chosen.uniform(0.5 * lasts_s, lasts_s)
    return found


def _draw_groups(chosen: random.Random, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which nodes a fault is between."""
    everybody = [*ZOOKEEPERS, *BOOKIES, *CLIENTS]
    if kind == "bridge":  # two halves, and one bookie that sees both
        shared = chosen.choice(BOOKIES)
        others = [node for node in everybody if node != shared]
        chosen.shuffle(others)
        half = len(others) // 2
        return tuple(others[:half]), tuple(others[half:])
    if kind == "minority":  # a bookie or two with a ZooKeeper server and some clients, away from all others
        group = [*chosen.sample(BOOKIES, chosen.randint(1, 2)), chosen.choice(ZOOKEEPERS)]
        group += chosen.sample(CLIENTS, chosen.randint(0, 3))
        return tuple(group), tuple(node for node in everybody if node not in group)
    group = chosen.choice([ZOOKEEPERS, BOOKIES, BOOKIES, CLIENTS])
    nodes = chosen.sample(group, chosen.randint(1, max(1, len(group) // 2)))
    rest = [node for node in everybody if node not in nodes]
    peers = rest if chosen.random() < 0.4 else chosen.sample(rest, chosen.randint(1, len(rest) - 1))
    if chosen.random() < 0.5:
        return tuple(peers), tuple(nodes)
    return tuple(nodes), tuple(peers)


def _draw_link(chosen: random.Random, kind: str) -> Link:
    if kind == "reset":
        return Link(is_reset=True)
    if kind == "slow":
        return Link(delay_ms=chosen.choice((5, 50, 300)), jitter_ms=chosen.choice((1, 20, 200)))
    if kind == "lossy":
        return Link(loss=chosen.choice((0.01, 0.1, 0.3)))
    if kind == "duplicating":
        return Link(duplication=chosen.choice((0.1, 0.5)), jitter_ms=chosen.choice((0, 5)))
    if kind == "narrow":
        return Link(bytes_per_s=chosen.choice((20_000, 200_000)))
    return Link(is_cut=True)
