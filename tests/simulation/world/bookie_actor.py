"""A bookie of a run: the shipped ``Bookie`` on a simulated disk, driven as its server drives it.

Requests are staged as they come; a sync follows after a drawn delay, so that crashes fall between the two, and its replies
leave then. A fencing read stages a fence, and reads once that is durable. Where the server's reader threads would wait for
a pending sync, the read is put off until then. Long polls are looked at again after each sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.server.long_poll import is_news
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError, StorageError
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    DeleteLedgerRequest,
    FenceRequest,
    ForceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadEnd,
    ReadRequest,
    StagedReply,
    StagedRequest,
    Status,
    StoreLastAddConfirmedRequest,
)
from tests.simulation.engines.restart_audit import audit
from tests.simulation.world.apache_wire import ApacheWire
from tests.simulation.world.messages import FORMER, Envelope, ReadAnswer
from tests.simulation.world.restored_disks import SimulatedIdentity, Surroundings
from tests.simulation.world.simulated_disk import MachineStops, SimulatedDisk
from tests.simulation.world.simulated_index import open_simulated_index
from tests.simulation.world.world import Wake, World

SYNC_MS = 4
"""How long after a request its sync comes, at most: one of a disk that is idle."""

MAX_FLUSH_MS = 20
"""How long a checkpoint may take, so that adds come in between."""

RESTART_MS = 500
"""What brings a machine up again after it stopped by itself."""


@dataclass(frozen=True, slots=True)
class _Owed:
    """What a staged request's reply is for. ``was_fenced``: a fence had been acknowledged before it was staged."""

    envelope: Envelope
    was_fenced: bool
    staged_ms: int
    deletions: int
    """How many deletions were staged before."""
    pieces: int = 1
    """As how many batches an add was staged. It is answered once all of them are."""
    answered: list[StagedReply] = field(default_factory=list)
    """What became of them."""


@dataclass(slots=True)
class Took:
    """When a bookie last took something that it acknowledged, and when it last acknowledged anything."""

    staged_ms: int = -1
    acknowledged_ms: int = -1

    def note(self, staged_ms: int, now_ms: int) -> None:
        self.staged_ms, self.acknowledged_ms = max(self.staged_ms, staged_ms), now_ms


@dataclass(slots=True)
class _Process:
    """One incarnation: from a start to its end."""

    bookie: Bookie
    is_sync_due: bool = False
    at_risk: set[int] = field(default_factory=set)
    """What a deletion that was staged may take."""
    deleted_at: int = 0
    """The last deletion before that one."""
    deletions: list[Callable[[PlainReply | None], None]] = field(default_factory=list)
    """Who waits for that."""
    staged_deletions: int = 0
    early: list[AddRequest] = field(default_factory=list)
    """Adds that were answered before they were durable."""
    put_off: list[Envelope] = field(default_factory=list)
    """Reads that wait for a sync."""
    polls: list[Envelope] = field(default_factory=list)
    """Long polls that wait for the last add confirmed."""
    apache: ApacheWire = field(init=False)
    """For the clients that speak it."""

    def __post_init__(self) -> None:
        self.apache = ApacheWire(self.bookie)


class BookieActor:
    """``is_refused``: its disk is damaged, and it does not start any more."""

    def __init__(self, name: str, world: World, config: BookieConfig, seed: int) -> None:
        self.name = name
        self.disk = SimulatedDisk(seed)
        self.is_refused = False
        self.is_gone = False
        """It never comes back."""
        self.down_since_ms = -1
        self.sync_ms = SYNC_MS
        self.of_apache: Callable[[str], bool] = lambda client: False
        """Whether a client speaks Apache's wire."""
        self.may_garble: Callable[[], bool] = lambda: False
        """Whether a crash may leave what looks like damage."""
        self.took = Took()
        self._identity: SimulatedIdentity | None = None
        self.on_limbo: Callable[[], None] = lambda: None
        """Called after a start in limbo."""
        self._loss = ""
        self._world = world
        self._config = config
        self._process: _Process | None = None
        world.actors[name] = self

    @property
    def is_up(self) -> bool:
        return self._process is not None

    @property
    def next_sequence(self) -> int:
        """Of its log; 0 while it is down."""
        return self._process.bookie.storage.log_files.sequences.next_sequence if self._process is not None else 0

    @property
    def bookie(self) -> Bookie:
        """Of the running process."""
        assert self._process is not None, f"{self.name} is down"
        return self._process.bookie

    @property
    def is_in_limbo(self) -> bool:
        return self._process is not None and self._process.bookie.limbo is not None

    # --- its life

    def give_cookie(self) -> SimulatedIdentity:
        """Have it begin anew on an empty disk, with a cookie, boots and epochs (restored_disks.py)."""
        self.crash(is_machine=False)
        self.disk.wipe()
        world = self._world
        around = Surroundings(world.choices, lambda: world.now_ms, lambda delay_ms, wake: world.later(delay_ms, self, wake))
        self._identity = SimulatedIdentity(Path("/", self.name), self._config, self.disk, around)
        self.start()
        return self._identity

    @property
    def identity(self) -> SimulatedIdentity:
        assert self._identity is not None
        return self._identity

    def start(self) -> None:
        """Start a process, unless one runs or the bookie cannot."""
        if self._process is not None or self.is_gone or self.is_refused:
            return
        world = self._world
        try:
            loss = self._loss
            if self._identity is not None:
                loss = self._identity.boot() or loss
                is_known = self.name in world.invariants.history.lossy
                problem = f"{self.name} takes its data for lost, and it is not: {loss}"
                world.invariants.require(not loss or is_known, "I14", problem)
            bookie = Bookie.open(
                Path("/", self.name),
                self.name,
                self._config,
                self.disk,
                possible_loss=loss,
                highest_issued=lambda: world.ledger_id,
                open_index=open_simulated_index,
                durable_wait_s=0,
                background=self._run_later,
            )
            if self._identity is not None:
                self._identity.opened()
                bookie.ask_lapse(self._identity.lapse)
        except MachineStops:
            world.count("crashes while starting")
            self._ended(is_machine=True)
            self.start()
            return
        except BookKeeperError as problem:
            self._refused(problem)
            return
        self._process = _Process(bookie)
        self._loss = ""
        bookie.set_read_only(self.name in world.read_only)
        world.note(self.name, "starts" + ("" if bookie.limbo is None else ", in limbo"))
        world.invariants.bookie_started(self.name)
        world.observed.starts(self.name, in_limbo=bookie.limbo is not None)
        audit(self.name, bookie, world)
        if bookie.limbo is not None:
            self.on_limbo()
        self._move_epoch(self._process)

    def _move_epoch(self, process: _Process) -> None:
        """As its thread does, for as long as the process lives."""
        if self._identity is None or self._identity.is_stopped or process is not self._process:
            return
        with self.stopping():
            delay_ms = self._identity.turn()
            self._world.later(delay_ms, self, lambda: self._move_epoch(process))

    def lose_disk(self) -> None:
        """The next start is one after a possible loss of data; the limbo that it begins is stored."""
        self._loss = "its disk was lost"

    def crash(self, *, is_machine: bool) -> None:
        """The process ends at once, or its machine does: then what was not synced is at risk."""
        if self._process is not None:
            self._ended(is_machine=is_machine)

    def set_read_only(self, is_read_only: bool) -> None:
        """As the server does when its disk fills up, and registers anew."""
        change = self._world.read_only.add if is_read_only else self._world.read_only.discard
        change(self.name)
        if self._process is not None:
            self._process.bookie.set_read_only(is_read_only)

    def stop_cleanly(self) -> None:
        """As the operator stops it: everything is checkpointed."""
        if self._process is None:
            return
        with self.stopping() as process:
            is_clean = False
            try:
                process.bookie.close()
                if self._identity is not None:
                    self._identity.ended_cleanly()
                is_clean = True
            except BookKeeperError as problem:
                self._world.note(self.name, f"could not stop cleanly: {problem}")
            self._ended(is_machine=False)
            if is_clean:
                self._loss = ""

    def _refused(self, problem: BookKeeperError) -> None:
        world = self._world
        world.note(self.name, f"does not start: {problem}")
        if self.disk.fails_on is not None:
            return  # it is started again once the disk works
        is_known = self.name in world.invariants.history.lossy
        world.invariants.require(is_known, "I14", f"{self.name} does not start on an undamaged disk: {problem}")
        self.is_refused = True

    def _ended(self, *, is_machine: bool) -> None:
        """Whoever is connected learns of it when the world delivers."""
        for on_reply in self._process.deletions if self._process is not None else ():
            on_reply(None)
        if self._process is not None and not self._config.journal_write_data:
            self._loss = "it ran without the journal, and did not stop cleanly"
        self._process = None
        self.down_since_ms = self._world.now_ms
        self._world.note(self.name, "its machine crashes" if is_machine else "its process ends")
        if not is_machine:
            self.disk.kill_process()
        elif self.disk.crash_machine(self._world.choices, may_garble=self.may_garble()):
            self._world.count("garbled tails")
            self._world.invariants.history.lossy.add(self.name)
        self._world.disconnected(self.name)

    @contextmanager
    def stopping(self) -> Iterator[_Process]:
        """Runs a step of the process; a machine that stops in the middle of it ends it."""
        assert self._process is not None
        try:
            yield self._process
        except MachineStops:
            self._world.count("crashes in the middle of a call")
            self._ended(is_machine=True)
            self._world.later(RESTART_MS, self, self.start)

    def _run_later(self, step: Callable[[], None]) -> None:
        """The slow part of a checkpoint, on a thread of its own: it comes after a drawn delay, if the process lives."""
        process = self._process

        def run() -> None:
            if process is not None and process is self._process:
                with self.stopping():
                    step()

        self._world.later(self._world.choices.choose(MAX_FLUSH_MS + 1, "checkpoint after"), self, run)

    def request_checkpoint(self) -> None:
        """As its garbage collection does first."""
        if self._process is not None:
            self._process.bookie.storage.request_checkpoint()
            with self.stopping() as process:
                process.bookie.idle()

    def delete_ledger(self, request: DeleteLedgerRequest, on_reply: Callable[[PlainReply | None], None]) -> None:
        """As its garbage collection does. ``on_reply`` gets None if the process ends before."""
        if self._process is None:
            on_reply(None)
            return
        self._process.deletions.append(on_reply)
        self.receive(Envelope(0, self.name, self.name, request))

    # --- requests

    def receive(self, envelope: Envelope) -> None:
        if self._process is None:
            self._world.break_off(envelope)
            return
        self._world.note(self.name, f"<- {envelope.source}:", envelope.body)
        if isinstance(envelope.body, AddRequest) and envelope.body.recovery:
            self._world.copied_to = self.name
        with self.stopping() as process:
            is_apache = self.of_apache(envelope.source)
            match envelope.body:
                case ForceRequest() if is_apache:  # there is no such request: our client answers it itself
                    self._world.reply(envelope, PlainReply(Status.OK))
                case AddRequest(deferred_sync=True) as add if is_apache:  # nor this one
                    self._world.reply(envelope, AddReply(add.request_id, Status.BAD_REQUEST, "no deferred sync"))
                case AddRequest() | ForceRequest() | StoreLastAddConfirmedRequest() | DeleteLedgerRequest():
                    self._stage(process, envelope.body, envelope)
                case ReadRequest() | LastAddConfirmedRequest() as body if body.fence:
                    fence = FenceRequest(body.bookie_id, body.ledger_id, body.master_key)
                    self._stage(process, process.apache.fence(body) if is_apache else fence, envelope)
                case ReadRequest():
                    self._read_or_put_off(process, envelope)
                case LastAddConfirmedRequest():
                    self._poll(process, envelope)

    def wake(self, wake: Wake) -> None:
        wake()

    def _stage(self, process: _Process, request: StagedRequest, envelope: Envelope) -> None:
        was_fenced = self.name in self._world.invariants.history.fenced
        if isinstance(request, DeleteLedgerRequest):
            process.at_risk = self._world.invariants.deletion_begins(self.name)
            process.deleted_at = self._deleted_at(process)
            process.staged_deletions += 1
        requests = _over_apaches_wire(process.apache, request) if self.of_apache(envelope.source) else [request]
        owed = _Owed(envelope, was_fenced, self._world.now_ms, process.staged_deletions, len(requests))
        for one in requests:
            process.bookie.stage(one, owed)
        for early, reply in process.bookie.take_early():
            self._answer(process, early, reply)
        if not process.is_sync_due:
            process.is_sync_due = True
            delay_ms = self._world.choices.choose(self.sync_ms + 1, "sync after")
            self._world.later(delay_ms, self, lambda: self._sync(process))

    def _sync(self, process: _Process) -> None:
        if process is not self._process:
            return
        with self.stopping():
            process.is_sync_due = False
            replies = process.bookie.sync()
            self._check_synced(replies)
            self._early_are_durable(process)
            for owed, reply in replies:
                self._answer(process, owed, reply)
            put_off, process.put_off = process.put_off, []
            for envelope in put_off:
                self._read(process, envelope)
            self._look_at_polls(process)
            if self._world.choices.chance(20, "idle"):
                process.bookie.idle()

    def _check_synced(self, replies: list[tuple[object, StagedReply]]) -> None:
        """Nothing is said to be stored that a crash could take. A checkpoint may have begun a log after it.

        Without the journal this holds for fences alone, which cannot be told apart here.
        """
        if not self._config.journal_write_data:
            return
        unsynced = self.disk.unsynced
        said = [reply for _, reply in replies if reply.status is Status.OK]
        problem = f"{self.name} answers OK while bytes of {', '.join(unsynced)} are not synced"
        self._world.invariants.require(not said or not unsynced or self.disk.fails_on is not None, "I3", problem)

    def _early_are_durable(self, process: _Process) -> None:
        early, process.early = process.early, []
        for request in early if not self.disk.unsynced else ():
            self._world.invariants.durable(self.name, request)
            self.took.note(0, self._world.now_ms)

    def stage_now(self, request: StagedRequest) -> StagedReply:
        """As a thread of its own process does: it waits for the sync thread. Raises StorageError if the process ends."""
        replies: list[StagedReply] = []
        if self._process is not None:
            with self.stopping() as process:
                process.bookie.stage(request, replies)
                self._sync(process)
        if not replies:
            raise StorageError(request.describe(), "the bookie stopped")
        return replies[0]

    def _answer(self, process: _Process, owed: object, reply: StagedReply) -> None:
        if isinstance(owed, list):
            owed.append(reply)
            return
        assert isinstance(owed, _Owed)
        invariants, envelope = self._world.invariants, owed.envelope
        owed.answered.append(reply)
        if len(owed.answered) < owed.pieces:
            return
        if self.of_apache(envelope.source) and isinstance(envelope.body, AddRequest):
            statuses = [one.status for one in owed.answered]
            worst = next((status for status in statuses if status is not Status.OK), Status.OK)
            reply = AddReply(envelope.body.request_id, worst)
        if envelope.source == FORMER:  # another ledger of this id: nothing of what is said of it counts for this one
            self._world.reply(envelope, reply)
            return
        if reply.status is Status.OK:
            self.took.note(owed.staged_ms, self._world.now_ms)
        match envelope.body:
            case AddRequest() as request:
                assert isinstance(reply, AddReply)
                invariants.add_answered(self.name, request, reply.status, was_fenced=owed.was_fenced)
                self._world.observed.answers_add(self.name, request, reply.status)
                if request.deferred_sync and reply.status is Status.OK:
                    self._answered_early(process, request)
                if owed.deletions < process.staged_deletions:  # the deletion behind it takes what it brought
                    process.at_risk |= invariants.deletion_begins(self.name)
                self._world.reply(envelope, reply)
            case StoreLastAddConfirmedRequest() as stored:
                if reply.status is Status.OK:
                    invariants.lac_stored(self.name, stored)
                self._world.reply(envelope, reply)
            case ForceRequest():
                self._world.reply(envelope, reply)
            case DeleteLedgerRequest():
                assert isinstance(reply, PlainReply)
                self._deleted(process, reply)
            case ReadRequest() as read:
                if reply.status is Status.OK:
                    self._fenced()
                    self._read(process, envelope)
                else:
                    end = ReadEnd(reply.status, read.first, f"it could not be fenced: {reply.describe()}")
                    self._world.reply(envelope, ReadAnswer((end,)))
            case LastAddConfirmedRequest():
                if reply.status is Status.OK:
                    self._fenced()
                    self._tell_lac(process, envelope)
                else:
                    refused = LastAddConfirmedReply(reply.status, -1, f"it could not be fenced: {reply.describe()}")
                    self._world.reply(envelope, refused)

    def _answered_early(self, process: _Process, request: AddRequest) -> None:
        if self._config.journal_write_data:
            process.early.append(request)
        else:
            self._world.invariants.durable(self.name, request)  # as every ack of this bookie is counted

    def _deleted(self, process: _Process, reply: PlainReply) -> None:
        if reply.status is Status.OK:
            self._world.count("deleted copies")
            self._world.invariants.ledger_deleted(self.name, process.at_risk)
            self._world.note(self.name, "has deleted the ledger")
        elif self._deleted_at(process) > process.deleted_at:
            # Taken, and not acknowledged: the bookie lapsed before its sync ended.
            self._world.count("deletions without an answer")
            self._world.invariants.ledger_deleted(self.name, process.at_risk)
        elif reply.status is Status.UNKNOWN:
            self._world.count("refused deletions")
            self._world.invariants.deletion_refused(self.name, process.at_risk)
        process.deletions.pop(0)(reply)

    def _deleted_at(self, process: _Process) -> int:
        facts = process.bookie.storage.facts(self._world.ledger_id)
        return 0 if facts is None else facts.deleted_at

    def _fenced(self) -> None:
        self._world.invariants.fence_answered(self.name)
        self._world.observed.answers_fence(self.name)

    # --- reads

    def _read_or_put_off(self, process: _Process, envelope: Envelope) -> None:
        if process.is_sync_due:
            process.put_off.append(envelope)
        else:
            self._read(process, envelope)

    def _read(self, process: _Process, envelope: Envelope) -> None:
        request = envelope.body
        assert isinstance(request, ReadRequest)
        is_apache = self.of_apache(envelope.source)
        replies = process.apache.read(request) if is_apache else tuple(process.bookie.read(request))
        end = replies[-1]
        assert isinstance(end, ReadEnd)
        self._world.invariants.read_answered(self.name, request, end)
        self._world.observed.answers_read(self.name, replies)
        self._world.reply(envelope, ReadAnswer(replies))

    def _tell_lac(self, process: _Process, envelope: Envelope) -> LastAddConfirmedReply:
        request = envelope.body
        assert isinstance(request, LastAddConfirmedRequest)
        asked = process.apache if self.of_apache(envelope.source) else process.bookie
        reply = asked.read_last_add_confirmed(request)
        self._world.invariants.lac_answered(self.name, reply)
        if reply.status is Status.NO_SUCH_LEDGER:
            self._world.observed.denies_ledger(self.name)
        self._world.reply(envelope, reply)
        return reply

    def _poll(self, process: _Process, envelope: Envelope) -> None:
        request = envelope.body
        assert isinstance(request, LastAddConfirmedRequest)
        if request.wait_ms == 0 or self._is_news(process, request):
            self._tell_lac(process, envelope)
            return
        process.polls.append(envelope)
        self._world.later(request.wait_ms, self, lambda: self._poll_ended(process, envelope))

    def _is_news(self, process: _Process, request: LastAddConfirmedRequest) -> bool:
        return is_news(process.bookie.read_last_add_confirmed(request), request)

    def _look_at_polls(self, process: _Process) -> None:
        for envelope in list(process.polls):
            request = envelope.body
            assert isinstance(request, LastAddConfirmedRequest)
            if self._is_news(process, request):
                process.polls.remove(envelope)
                self._tell_lac(process, envelope)

    def _poll_ended(self, process: _Process, envelope: Envelope) -> None:
        if process is self._process and envelope in process.polls:
            process.polls.remove(envelope)
            self._tell_lac(process, envelope)


def _over_apaches_wire(wire: ApacheWire, request: StagedRequest) -> list[StagedRequest]:
    """What the bookie stages if ``request`` comes over Apache's wire."""
    match request:
        case AddRequest():
            return list(wire.adds(request))
        case StoreLastAddConfirmedRequest():
            return [wire.told(request)]
        case _:
            return [request]
