"""Re-replication in a run: who replaces whom and when, and what befalls those who do. Drawn after the rest of the schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.simulation.engines.choices import Choices


@dataclass(frozen=True, slots=True)
class ReplicatorPlan:
    """``leaving`` are the bookies that it takes for lost, whether they are or not."""

    start_ms: int
    leaving: frozenset[str]
    rounds: int = 3
    pause_ms: int = 1_000
    fences: bool = True
    """A tail that is open in two rounds, one after the other, is fenced."""
    restores: bool = False
    """Bookies that are leaving and there may get their own entries back."""
    batch_bytes: int = 200
    window_bytes: int = 1_000
    bytes_per_s: int = 1_000_000
    moves: bool = False
    """It does not replace who is leaving: it moves copies to more racks, and looks again in each round."""


@dataclass(frozen=True, slots=True)
class CollectorPlan:
    """When each bookie looks for what it holds in vain."""

    start_ms: int
    rounds: int = 3
    pause_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ReplicationPlan:
    replicators: tuple[ReplicatorPlan, ...]
    collectors: CollectorPlan | None
    faults: tuple[tuple[int, str, str, int], ...]
    """As a schedule's faults: when, kind, target, for how long."""
    racks: tuple[tuple[str, str], ...] = ()


def draw_replication(choices: Choices, bookies: tuple[str, ...], ensemble_size: int, chaos_ms: int) -> ReplicationPlan:
    victim = choices.pick(bookies[:ensemble_size], "who is lost")
    lost_at_ms = choices.choose(600, "lost at")
    fate = choices.pick(("gone", "gone", "kill", "kill", ""), "fate")
    faults = [(lost_at_ms, fate, victim, choices.pick((60_000, 2_000), "lost for"))] if fate else []
    replicators = []
    for number in range(choices.between(1, 2, "replicators")):
        replicators.append(_draw_replicator(choices, victim, bookies, lost_at_ms))
        kind = ("", "", "stall", "expire", "kill replicator")[choices.choose(5, "what befalls a replicator")]
        if kind:
            at_ms = replicators[-1].start_ms + choices.pick((20, 200, 2_000), "befalls within") * choices.choose(10, "at") // 10
            faults.append((at_ms, kind, f"replicator{number + 1}", choices.pick((2_000, 300, 60_000), "stalls for")))
    collectors = _draw_collectors(choices, chaos_ms)
    for _ in range(choices.choose(3, "stalls of garbage collections") if collectors is not None else 0):
        at_ms = choices.choose(chaos_ms, "stalls at")
        faults.append((at_ms, "stall", f"gc-{choices.pick(bookies, 'whose')}", choices.pick((2_000, 300), "stalls for")))
    racks = tuple((one, choices.pick(("/a", "/b", "/c"), "rack")) for one in bookies if choices.chance(60, "has a rack"))
    if choices.chance(50, "copies move to more racks"):
        replicators.append(replace(_draw_replicator(choices, victim, bookies, 0), moves=True))
    return ReplicationPlan(tuple(replicators), collectors, tuple(faults), racks)


def _draw_replicator(choices: Choices, victim: str, bookies: tuple[str, ...], after_ms: int) -> ReplicatorPlan:
    leaving = {victim}
    if choices.chance(25, "another one leaves"):
        leaving.add(choices.pick(bookies, "who"))
    return ReplicatorPlan(
        after_ms + choices.choose(choices.pick((2_000, 300, 6_000), "replicates within"), "replicates at"),
        frozenset(leaving),
        choices.between(1, 5, "rounds"),
        choices.pick((1_000, 100, 300), "pause of a replicator"),
        choices.chance(60, "fences"),
        choices.chance(15, "restores"),
        choices.pick((200, 60, 500_000), "copied batches"),
        choices.pick((1_000, 100), "window of copies"),
        choices.pick((1_000_000, 2_000), "pace of copies"),
    )


def _draw_collectors(choices: Choices, chaos_ms: int) -> CollectorPlan | None:
    if not choices.chance(60, "garbage collection"):
        return None
    start_ms = choices.choose(chaos_ms, "collects from") // 2
    return CollectorPlan(
        start_ms, choices.between(1, 12, "rounds of collection"), choices.pick((1_000, 100, 300), "collects every")
    )
