"""What a run consists of: the ledger's shape, who does what when, and which faults there are. Drawn from ``choices``.

Each run has some kinds of faults only, so that rare combinations are not drowned in frequent ones. Scenarios make their
schedules by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bk_spark.client.protocol.limits import AddLimits
from bk_spark.config import BookieConfig
from tests.simulation.engines.choices import Choices
from tests.simulation.world.former_ledger import FormerPlan, draw_former
from tests.simulation.world.messages import METADATA
from tests.simulation.world.replication_plans import CollectorPlan, ReplicatorPlan, draw_replication
from tests.simulation.world.restored_disks import draw_restored

LEDGER_ID = 7
SHAPES = (
    (2, 2, 1),
    (2, 2, 2),
    (3, 3, 1),
    (3, 3, 2),
    (3, 3, 3),
    (3, 2, 1),
    (3, 2, 2),
    (4, 2, 2),
    (4, 3, 2),
    (4, 4, 2),
    (5, 3, 2),
    (5, 5, 3),
)
"""Ensemble size, write quorum, ack quorum. 3/3/2 alone hides a mix-up of the ack quorum with the coverage: both are 2."""

FAULT_KINDS = (
    "kill",
    "crash",
    "crash in a call",
    "clean restart",
    "restart all",
    "full disk",
    "failing sync",
    "slow disk",
    "break",
    "split",
    "one-way split",
    "metadata split",
    "stop writer",
    "kill client",
    "lose data",
    "rot",
    "lose file",
    "gone",
    "read-only",
    "foreign edits",
    "delete",
)


PLAIN = "plain"
CHOSEN_IDS = "chosen ids"
DEFERRED_SYNC = "deferred sync"


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """``batches`` are lists of payload sizes in bytes, one list an append."""

    batches: tuple[tuple[int, ...], ...]
    window: int = 1
    """Appends under way at most."""
    pause_ms: int = 0
    closes: bool = True
    closes_early: bool = False
    """It does not wait for the last appends."""
    kind: str = PLAIN
    """CHOSEN_IDS: the application gives the ids, every second pair of appends the wrong way round, one of them twice."""
    force_every: int = 0
    """It forces after so many appends; 0: never."""


@dataclass(frozen=True, slots=True)
class RecovererPlan:
    start_ms: int
    tries: int = 3


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    start_ms: int
    rounds: int = 3
    waits: bool = False
    """It tails with long polls; otherwise it asks again and again."""
    quorum: bool = True


@dataclass(frozen=True, slots=True)
class Fault:
    """``kind`` is one of FAULT_KINDS; it begins at ``at_ms``, and lasts for ``for_ms`` where that means something."""

    at_ms: int
    kind: str
    target: str
    for_ms: int = 0


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network and the metadata store do at any time, in percent of the messages."""

    lost: int = 0
    stragglers: int = 0
    stale_reads: int = 0
    garbled: int = 0
    """Answers to reads of which a bit is flipped, digest and all else as it was."""
    spread: int = 1
    """Latencies of links go from 1 ms up to the power of this many steps of LATENCY_STEPS."""


CALM = Weather()
PATIENT = AddLimits(
    2_000, 20_000, delay_ensemble_change=False, max_ensemble_changes=50, replacement_retry_ms=1_000, explicit_lac_ms=500
)


@dataclass(frozen=True, slots=True)
class Schedule:
    shape: tuple[int, int, int]
    spares: int
    writer: WriterPlan
    recoverers: tuple[RecovererPlan, ...] = ()
    readers: tuple[ReaderPlan, ...] = ()
    intruder: ReaderPlan | None = None
    """A reader with a wrong password."""
    faults: tuple[Fault, ...] = ()
    weather: Weather = CALM
    limits: AddLimits = PATIENT
    request_timeout_ms: int = 2_000
    bookie_config: BookieConfig = field(default_factory=lambda: tiny_config(2_000, 1))
    chaos_ms: int = 10_000

    sync_ms: int = 4
    """The longest that a bookie waits with a sync."""
    password: bytes = b""
    """With one, entries carry HMACs."""
    ledger_id: int = LEDGER_ID
    replicators: tuple[ReplicatorPlan, ...] = ()
    collectors: CollectorPlan | None = None
    racks: tuple[tuple[str, str], ...] = ()
    former: FormerPlan | None = None
    """Another ledger of the same id."""
    apache: frozenset[str] = frozenset()
    """Clients that speak Apache's wire (apache_wire.py)."""
    has_cookies: bool = False
    """Its bookies have cookies, boots and epochs, and disks may go back to snapshots (restored_disks.py)."""

    @property
    def skips_journal(self) -> bool:
        return not self.bookie_config.journal_write_data

    @property
    def bookies(self) -> tuple[str, ...]:
        return tuple(f"b{number}" for number in range(1, self.shape[0] + self.spares + 1))


def tiny_config(direct_add_bytes: int, scale: int) -> BookieConfig:
    """Files so small that a few batches roll and checkpoint them."""
    return BookieConfig(
        direct_add_bytes=direct_add_bytes,
        journal_file_bytes=4096 + 2048 * scale,
        entry_log_file_bytes=4096 + 4096 * scale,
        write_cache_bytes=4096 * scale,
        checkpoint_bytes=4096 * scale,
    )


REPLICATED_PERCENT = 25
"""Of all runs."""

IDLE_PERCENT = 10
"""Of all runs: the writer stays, nobody recovers its ledger, and all bookies are restarted about when it adds its last one."""

RESTORED_PERCENT = 10
"""Of all runs."""

UNJOURNALED_PERCENT = 20
"""Of all other runs: all bookies ack adds out of their memory, and repair themselves after they were killed."""


APACHE_PERCENT = 15
"""Of all runs that Apache's wire can have: it knows no deferred sync, no boots, and no creators of ledgers."""


@dataclass(frozen=True, slots=True)
class Percents:
    """How many runs of a hundred have what is not part of all."""

    replicated: int = REPLICATED_PERCENT
    restored: int = RESTORED_PERCENT
    unjournaled: int = UNJOURNALED_PERCENT
    apache: int = APACHE_PERCENT


def draw_schedule(choices: Choices, percents: Percents) -> Schedule:
    schedule = _draw_storage(choices, percents)
    is_known = not (schedule.skips_journal or schedule.former or schedule.writer.kind == DEFERRED_SYNC)
    if not is_known or not choices.chance(percents.apache, "Apache's wire"):
        return schedule
    others = [f"recoverer{number + 1}" for number in range(len(schedule.recoverers))]
    others += [f"reader{number + 1}" for number in range(len(schedule.readers))]
    others += [f"replicator{number + 1}" for number in range(len(schedule.replicators))]
    return replace(schedule, apache=frozenset(one for one in ("writer", *others, "auditor") if choices.chance(50, one)))


def _draw_storage(choices: Choices, percents: Percents) -> Schedule:
    schedule = _draw_replicated(choices, percents.replicated)
    if choices.chance(percents.restored, "restored disks"):
        faults = tuple(Fault(*one) for one in draw_restored(choices, schedule.bookies, schedule.chaos_ms))
        return replace(schedule, faults=schedule.faults + faults, has_cookies=True)
    if any(fault.kind == "restart all" for fault in schedule.faults):  # without the journal that may lose what is confirmed
        return schedule
    if not choices.chance(percents.unjournaled, "bookies without the journal"):
        return schedule
    kills = tuple(_draw_kill_of_target(choices, schedule) for _ in range(choices.choose(4, "kills of who is copied to")))
    config = replace(schedule.bookie_config, journal_write_data=False)
    return replace(schedule, bookie_config=config, faults=schedule.faults + kills)


def _draw_kill_of_target(choices: Choices, schedule: Schedule) -> Fault:
    """Soon after somebody who copies begins, so that it falls between two copies, or before what was copied is named."""
    begins = [(f"replicator{number + 1}", one.start_ms) for number, one in enumerate(schedule.replicators)]
    begins += [("", one.start_ms) for one in schedule.recoverers]
    who, start_ms = choices.pick(begins or [("", 0)], "after whose begin")
    at_ms = start_ms + choices.choose(choices.pick((200, 2_000), "kills within"), "kills at")
    return Fault(at_ms, "kill target", who, choices.pick((1, 20, 300), "starts after"))


def _draw_replicated(choices: Choices, replicated_percent: int) -> Schedule:
    schedule = _draw_basics(choices)
    if choices.chance(IDLE_PERCENT, "idle tail"):
        schedule = _with_idle_tail(choices, schedule)
    schedule = replace(schedule, former=draw_former(choices, schedule.bookies, schedule.shape[2]))
    if not choices.chance(replicated_percent, "re-replication"):
        return schedule
    schedule = replace(schedule, spares=max(1, schedule.spares))
    plan = draw_replication(choices, schedule.bookies, schedule.shape[0], schedule.chaos_ms)
    faults = schedule.faults + tuple(Fault(*one) for one in plan.faults)
    return replace(schedule, faults=faults, replicators=plan.replicators, collectors=plan.collectors, racks=plan.racks)


def _with_idle_tail(choices: Choices, schedule: Schedule) -> Schedule:
    writer = replace(schedule.writer, closes=False, closes_early=False)
    faults = tuple(one for one in schedule.faults if not one.target.startswith(("writer", "recoverer")))
    at_ms = choices.choose(len(writer.batches) * (writer.pause_ms + 100), "all restart at")
    restart = Fault(at_ms, "restart all", schedule.bookies[0], choices.pick((1_000, 100, 5_000), "restart takes"))
    return replace(schedule, writer=writer, recoverers=(), faults=(*faults, restart))


def _draw_basics(choices: Choices) -> Schedule:
    shape = choices.pick(SHAPES, "shape")
    spares = choices.choose(3, "spares")
    chaos_ms = choices.pick((3_000, 8_000, 20_000), "length of the chaos")
    bookies = tuple(f"b{number}" for number in range(1, shape[0] + spares + 1))
    recoverers = _draw_recoverers(choices, chaos_ms)
    readers = _draw_readers(choices, chaos_ms)
    clients = (
        "writer",
        *(f"recoverer{n + 1}" for n in range(len(recoverers))),
        *(f"reader{n + 1}" for n in range(len(readers))),
    )
    return Schedule(
        shape,
        spares,
        _draw_writer(choices),
        recoverers,
        readers,
        _draw_intruder(choices),
        _draw_faults(choices, chaos_ms, bookies, clients),
        _draw_weather(choices),
        _draw_limits(choices),
        choices.pick((2_000, 500, 100), "request timeout"),
        tiny_config(choices.pick((2_000, 300, 400), "direct adds from"), choices.pick((8, 1, 2), "file sizes")),
        chaos_ms,
        choices.pick((4, 4, 40, 300), "syncs within"),
        b"secret" if choices.chance(10, "password") else b"",
    )


def _draw_writer(choices: Choices) -> WriterPlan:
    large = choices.choose(2, "large payloads")
    count = choices.between(1, 12, "appends")
    batches = tuple(
        tuple((3, 1, 40, 300)[choices.choose(4 if large else 2, "payload size")] for _ in range(entries))
        for entries in (choices.pick((1, 1, 2, 3, 5), "entries of an append") for _ in range(count))
    )
    pause_ms = choices.pick((0, 20, 100, 1_000), "pause")
    closes = choices.choose(4, "closing")
    kind = (PLAIN, PLAIN, PLAIN, PLAIN, CHOSEN_IDS, DEFERRED_SYNC)[choices.choose(6, "kind of writer")]
    window = choices.between(2 if kind == CHOSEN_IDS else 1, 4, "window")
    force_every = choices.between(1, 3, "force every") if kind == DEFERRED_SYNC or choices.chance(10, "forces") else 0
    return WriterPlan(batches, window, pause_ms, closes in (0, 2), closes == 2, kind, force_every)


def _draw_recoverers(choices: Choices, chaos_ms: int) -> tuple[RecovererPlan, ...]:
    count = choices.pick((0, 1, 1, 2, 3), "recoverers")
    early = choices.pick((chaos_ms, 1_500, 400, 400), "recoveries start within")
    return tuple(RecovererPlan(choices.choose(early, "recovery starts"), choices.between(1, 3, "tries")) for _ in range(count))


def _draw_intruder(choices: Choices) -> ReaderPlan | None:
    if not choices.chance(8, "intruder"):
        return None
    return ReaderPlan(choices.choose(2_000, "intruder starts"), waits=choices.chance(50, "intruder waits"))


def _draw_readers(choices: Choices, chaos_ms: int) -> tuple[ReaderPlan, ...]:
    count = choices.pick((0, 1, 1, 2), "readers")
    return tuple(
        ReaderPlan(
            choices.choose(chaos_ms, "reader starts") // 4,
            choices.between(1, 4, "rounds"),
            choices.choose(2, "waits") == 1,
            choices.choose(2, "any answer") == 0,
        )
        for _ in range(count)
    )


def _draw_faults(choices: Choices, chaos_ms: int, bookies: tuple[str, ...], clients: tuple[str, ...]) -> tuple[Fault, ...]:
    count = choices.pick((0, 1, 2, 3, 5, 8), "faults")
    kinds = [choices.pick(FAULT_KINDS, "kind of fault") for _ in range(min(count, 3))]
    if "delete" in kinds and not choices.chance(25, "deletion"):
        kinds = [kind if kind != "delete" else "crash" for kind in kinds]
    faults = tuple(_draw_fault(choices, choices.pick(kinds, "which"), chaos_ms, bookies, clients) for _ in range(count))
    return faults + _draw_end_of_writer(choices)


def _draw_end_of_writer(choices: Choices) -> tuple[Fault, ...]:
    """Often the writer ends while what it sent is on its way: what recovery is for."""
    kind = ("", "", "kill client", "stop writer")[choices.choose(4, "end of the writer")]
    return (Fault(choices.choose(600, "writer ends at"), kind, "writer", 60_000),) if kind else ()


def _draw_fault(choices: Choices, kind: str, chaos_ms: int, bookies: tuple[str, ...], clients: tuple[str, ...]) -> Fault:
    targets: tuple[str, ...] = bookies
    if kind in ("kill client", "metadata split"):
        targets = clients
    elif kind == "stop writer":
        targets = clients[:1]
    elif kind in ("delete", "foreign edits"):
        targets = (METADATA,)
    elif kind in ("break", "split", "one-way split"):
        targets = clients + bookies
    within_ms = choices.pick((chaos_ms, 1_000), "fault within")
    at_ms = choices.choose(within_ms, "fault at")
    return Fault(at_ms, kind, choices.pick(targets, "target"), choices.pick((100, 1_000, 5_000, 60_000), "fault for"))


def _draw_weather(choices: Choices) -> Weather:
    return Weather(
        choices.pick((0, 1, 3, 8), "lost messages"),
        choices.pick((0, 1, 4), "stragglers"),
        choices.pick((0, 30), "stale reads"),
        choices.pick((0, 0, 10), "garbled answers"),
        choices.pick((4, 10, 16, 16), "spread of latencies"),
    )


def _draw_limits(choices: Choices) -> AddLimits:
    add_timeout_ms = choices.pick((2_000, 300, 700), "add timeout")
    return AddLimits(
        add_timeout_ms,
        choices.pick((20_000, 3_000), "add quorum timeout"),
        choices.chance(25, "delayed ensemble changes"),
        choices.pick((50, 2), "ensemble changes"),
        choices.pick((1_000, 200), "replacement retry"),
        choices.pick((500, 100), "explicit LAC after"),
    )
