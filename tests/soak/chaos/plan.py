"""What a round does, drawn from its seed alone: the ledger, the load, the faults and their times, the recoverers.

The seed fixes the plan, not the run: real processes meet a fault where the machine's scheduler has brought them.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

WRITER, FIRST, SECOND = ROLES = ("writer", "first", "second")
"""Of client processes. The first and the second one recover and read; the second one also follows the writer."""

JAVA_CASTS = tuple(cast for count in range(1, len(ROLES)) for cast in combinations(ROLES, count))
"""Which roles Java may play, so that each round has both clients."""

SHAPES = ((3, 3, 2), (3, 2, 2), (4, 3, 2), (4, 4, 3), (2, 2, 1), (3, 3, 3), (3, 2, 1))
SHAPE_WEIGHTS = (6, 3, 4, 1, 2, 1, 1)

SIZES = (20, 300, 5_000, 70_000, 200_000)
"""Small adds pass through the journal, large ones go straight into the entry log."""

SIZE_WEIGHTS = ((1, 0, 0, 0, 0), (4, 4, 2, 0, 0), (1, 2, 4, 1, 1), (0, 0, 1, 2, 2))
"""Kinds of load: tiny entries, small ones, mixed ones, large ones."""

BOOKIE_FAULTS = ("kill", "suspend", "slow disk")
FAULT_KINDS = (*BOOKIE_FAULTS, "zookeeper")
FAULT_WEIGHTS = (5, 3, 2, 1)

ENDS = ("taken over", "killed", "frozen", "closed", "closed early")
END_WEIGHTS = (5, 5, 4, 1, 2)
"""The writer goes on while recoverers come; is killed in the middle of an add; is suspended, and goes on after the recovery; or
closes the ledger while recoverers come, after its last confirmation or with appends under way."""

MAX_LOAD_BYTES = 3_000_000
"""Payload bytes of a round, spread over its time; bookies of this version never give back space."""

MAX_APPEND_BYTES = 400_000
"""Of one append, unless its first entry alone is larger: each round makes several."""

COLD = 0.2
"""How often faults begin before anything is confirmed: while connections are made."""

AT_THE_END = 0.4
"""How often a fault comes close to the writer's end, where the recoveries are, which take some tens of milliseconds."""

BLACKOUT = 0.1
"""How often all bookies are killed at once, close to the writer's end: no recovery can end before they are back."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``target`` counts the bookies of the cluster; a ZooKeeper outage has none."""

    kind: str
    target: int
    after_s: float
    """From the start of the round's clock on, see ``RoundPlan.starts_cold``."""
    lasts_s: float
    delay_ms: int = 0
    """Before each sync of a slow disk."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the writer does until it is told to stop or has appended ``max_bytes``."""

    seed: int
    shape: tuple[int, int, int]
    digest_type: str
    size_weights: tuple[int, ...]
    max_batch: int
    """Entries of one append, at most; 1 is singles only."""
    depth: int
    """Appends under way at once, at most."""
    pause_s: float
    """Between appends, on average."""
    max_bytes: int = MAX_LOAD_BYTES


@dataclass(frozen=True, slots=True)
class RoundPlan:
    seed: int
    load: Load
    faults: tuple[Fault, ...]
    starts_cold: bool
    """The round's clock starts with the ledger's creation, else with the first confirmation."""
    load_s: float
    """Until the writer's end."""
    end: str
    recoverers: tuple[float, ...]
    """When each opens the ledger with recovery, in seconds after the writer's end."""
    kills_recoverer: bool
    """The first recoverer is killed shortly after it has begun."""
    java_roles: tuple[str, ...] = ()
    """The roles that Apache's Java client plays; all others are ours."""

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def draw(seed: int, bookies: int, *, java: bool = False) -> RoundPlan:
    """With ``java`` some roles are Java's; all else is as without it."""
    chosen = random.Random(seed)
    load_s = chosen.uniform(0.4, 1.6)
    number = chosen.choices((0, 1, 2, 3, 4), (1, 4, 4, 3, 2))[0]
    if chosen.random() < BLACKOUT:
        faults = _draw_blackout(chosen, bookies, load_s)
    else:
        faults = tuple(_draw_fault(chosen, bookies, load_s) for _ in range(number))
    return RoundPlan(
        seed=seed,
        load=_draw_load(chosen, load_s),
        faults=faults,
        starts_cold=chosen.random() < COLD,
        load_s=load_s,
        end=chosen.choices(ENDS, END_WEIGHTS)[0],
        recoverers=tuple(round(chosen.choice((0.0, 0.02, 0.2)), 3) for _ in range(chosen.choice((2, 3, 4)))),
        kills_recoverer=chosen.random() < 0.2,
        java_roles=random.Random(f"roles of {seed}").choice(JAVA_CASTS) if java else (),
    )


def _draw_load(chosen: random.Random, load_s: float) -> Load:
    weights, max_batch = chosen.choice(SIZE_WEIGHTS), chosen.choice((1, 1, 10, 50))
    entry_bytes = 0.75 * sum(size * weight for size, weight in zip(SIZES, weights, strict=True)) / sum(weights)
    append_bytes = min(MAX_APPEND_BYTES, entry_bytes * (1 + max_batch) / 2)
    return Load(
        seed=chosen.randrange(2**32),
        shape=chosen.choices(SHAPES, SHAPE_WEIGHTS)[0],
        digest_type=chosen.choice(("CRC32C", "CRC32C", "HMAC")),
        size_weights=weights,
        max_batch=max_batch,
        depth=chosen.choice((1, 4, 32)),
        pause_s=max(chosen.choice((0.001, 0.003, 0.01)), load_s * append_bytes / MAX_LOAD_BYTES),
    )


def _draw_blackout(chosen: random.Random, bookies: int, load_s: float) -> tuple[Fault, ...]:
    after_s, lasts_s = load_s + chosen.uniform(-0.1, 0.1), chosen.uniform(0.1, 1.0)
    return tuple(Fault("kill", target, after_s, lasts_s) for target in range(bookies))


def _draw_fault(chosen: random.Random, bookies: int, load_s: float) -> Fault:
    kind = chosen.choices(FAULT_KINDS, FAULT_WEIGHTS)[0]
    return Fault(
        kind=kind,
        target=chosen.randrange(bookies) if kind in BOOKIE_FAULTS else -1,
        after_s=load_s + chosen.uniform(-0.1, 0.1) if chosen.random() < AT_THE_END else chosen.uniform(0.0, load_s),
        lasts_s=chosen.uniform(0.1, 1.5),
        delay_ms=chosen.choice((20, 100, 400)) if kind == "slow disk" else 0,
    )
