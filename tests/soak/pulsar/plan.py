"""What a run does, drawn from its seed alone: which process meets what, and at which share of all messages.

The seed fixes the plan, not the run: real processes meet a fault where the machine's scheduler has brought them.

The fault model. Bookies and brokers are killed with SIGKILL and start again, or are suspended: a broker for longer than its
session, so that another one takes its topics, and it finds itself fenced afterwards. One bookie is lost for good with its disk,
and a new one comes. Now and then all bookies are killed at once. Otherwise at most one bookie and one broker are broken at any
moment. ZooKeeper and clients stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bk_spark.config import KIB
from tests.soak.pulsar.topics import PARTITIONS, TOPICS

BOOKIE_KILLED, BOOKIE_SUSPENDED, BOOKIE_LOST = "bookie killed", "bookie suspended", "bookie lost and replaced"
BOOKIES_KILLED = "all bookies killed"
BROKER_KILLED, BROKER_SUSPENDED = "broker killed", "broker suspended"

BOOKIE_WEIGHTS = {BOOKIE_KILLED: 5, BOOKIE_SUSPENDED: 3, BOOKIES_KILLED: 1}
BROKER_WEIGHTS = {BROKER_KILLED: 4, BROKER_SUSPENDED: 1}

LASTS_S = {
    BOOKIE_KILLED: (1.0, 10.0),
    BOOKIE_SUSPENDED: (2.0, 12.0),
    BOOKIE_LOST: (1.0, 5.0),
    BOOKIES_KILLED: (0.0, 5.0),
    BROKER_KILLED: (0.0, 10.0),
    BROKER_SUSPENDED: (7.0, 15.0),
}

FIRST, LAST = 0.05, 0.9
"""Shares of all messages between which faults are."""

LEDGERS_OF_A_PARTITION = 50
MIN_ENTRIES_OF_A_LEDGER = 50

ENTRY_LOGS = 20
"""Of each bookie, about, so that most of them are full."""

MESSAGE_BYTES = 600
"""About, of which each bookie has two thirds."""

MIN_ENTRY_LOG_BYTES = 256 * KIB

KEYS = 20
"""Of each topic, at least; longer runs have more."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    at: float
    """The share of all messages that was acknowledged."""
    target: int
    """Counts the bookies, or the brokers, that there are at that time, and begins again behind the last one."""
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    messages: int
    """Of each topic."""
    per_second: float
    """Of each topic."""
    bookie_faults: tuple[Fault, ...]
    broker_faults: tuple[Fault, ...]

    @property
    def keys(self) -> int:
        return max(KEYS, self.messages // 2_000)

    @property
    def entries_per_ledger(self) -> int:
        return max(MIN_ENTRIES_OF_A_LEDGER, self.messages // PARTITIONS // LEDGERS_OF_A_PARTITION)

    @property
    def entry_log_bytes(self) -> int:
        return max(MIN_ENTRY_LOG_BYTES, self.messages * len(TOPICS) * MESSAGE_BYTES // ENTRY_LOGS)


def draw(seed: int, messages: int, minutes: float, faults: int) -> Plan:
    """``messages`` and ``faults`` are those of the whole run. The first faults are a lost bookie and a killed broker."""
    chosen = random.Random(seed)
    each = -(-messages // len(TOPICS))
    bookies = _kinds(chosen, BOOKIE_LOST, BOOKIE_WEIGHTS, -(-faults // 2))
    brokers = _kinds(chosen, BROKER_KILLED, BROKER_WEIGHTS, faults // 2)
    return Plan(seed, each, each / (60 * minutes), _timed(chosen, bookies), _timed(chosen, brokers))


def _kinds(chosen: random.Random, certain: str, weights: dict[str, int], count: int) -> list[str]:
    """``certain`` first of all, and each other kind at least once if there are enough, in an order that the seed gives."""
    kinds = [certain, *(kind for kind in weights if kind != certain)][:count]
    kinds += chosen.choices(list(weights), list(weights.values()), k=count - len(kinds))
    chosen.shuffle(kinds)
    return kinds


def _timed(chosen: random.Random, kinds: Sequence[str]) -> tuple[Fault, ...]:
    """One somewhere in each of as many equal parts of the run."""
    part = (LAST - FIRST) / max(1, len(kinds))
    return tuple(
        Fault(
            kind=kind,
            at=round(FIRST + (number + chosen.random()) * part, 4),
            target=chosen.randrange(1_000),
            lasts_s=round(chosen.uniform(*LASTS_S[kind]), 2),
        )
        for number, kind in enumerate(kinds)
    )
