"""Plays scripts: schedules written by hand, in a small language, with the outcome that they must have.

One step a line; ``#`` begins a comment. Messages are named as in hand_world.py; where a name is asked for, ``*`` stands for
anything, and ``b1,b2`` for each of the two in turn.

    ledger 3/3/2 on b1 b2 b3            the ledger's sizes and its first ensemble; more bookies with ``spares b4 b5``
    spares b4 b5                        these run, too, and may be taken into ensembles
    without the journal                 bookies that come in later steps ack out of their memory
    W writes                            a writer begins, with the metadata as it is
    W writes and tells after 100 ms     and, once it is idle, tells its bookies how far the ledger is confirmed
    W appends 2                         one append of two entries
    W closes / R recovers / X reads     what a client does; ``reads`` from entry 0 to the end
    R recovers one by one               it asks for one entry at a time
    P replicates without b3             replaces b3 where it may; ``and fences``: an open tail that names b3 is recovered first
    racks b1=/a b2=/b                   where these are, for whoever chooses bookies from now on
    P moves                             moves copies to more racks where it may
    deliver W add 0 -> b1,b2            each of these messages, which must be in flight, arrives
    deliver W add 0 <-> b1              it arrives, and then all its answers do
    drop W add 0 -> b3                  it never arrives
    break metadata set -> W             it never arrives, and the client in it is told that the connection broke
    hold W add 1 -> b3                  ``run`` and ``finish`` leave such messages alone, until ``release``
    run R / run R but b3                deliver all from and to R, again and again; not those from and to b3
    after 1000 ms                       time passes, and what was due is done; nothing is delivered
    crash b1 / kill b1 / start b1       the machine fails, losing what was not synced; the process ends; it starts again
    start b1 in limbo / settle b1       it starts and knows that it may have lost data; its limbo of this ledger ends as it is
    forget b1 / rot b1                  its disk loses all that it has; a byte of an entry in its entry log flips
    lose the newest journal of b1       it is gone; ``the end of the newest journal``: its last bytes are zeros
    renew b1                            another bookie, of the same address, takes its place with an empty disk
    former ledger 3 at b1               three entries of another ledger of this id, of another creator, lie on b1
    checkpoint b1                       it is stopped cleanly and started again
    hold syncs of b1 / sync b1          what it stages stays unsynced; it syncs
    cookies of b1 b2                    these begin anew with cookies, boots and epochs that move as time passes
    snapshot b1 / restore b1            what its disk holds durably; its disk goes back to that
    cut cookies of b1                   from now on it cannot move its epoch, until ``mend cookies of b1``
    unregister b3 / register b3         whether new ensembles may have it
    stop W / go on W / kill W           a client freezes, thaws, dies; ``expire P``: its session with the metadata store is over
    collect b5                          b5 drops what it has of the closed ledger that names others
    decide on b5 / flush b5             it decides that now, and collects later; what it was given is in its index
    finish                              nothing is held any more, all is delivered, time passes, until nothing happens

    expect W acked 0                    the highest acked entry; ``nothing``
    expect W failed LedgerFencedError   why the writer, or the operation, is over; ``W done``, ``W running`` else
    expect P whole / expect P not whole  what a re-replication came to
    expect ledger CLOSED at 0           its state in the metadata store
    expect fragments 0 b1 b2; 1 b1 b3
    expect b1 fenced / b1 not fenced    what it tells who asks; ``b1 lac 3``
    expect in flight W add 0 -> b1
    expect X read up to 0
    expect b1 read 0 -> R says UNKNOWN  an answer that is in flight
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bk_spark.bookie.bookie import Bookie
from bk_spark.config import LedgerOptions
from bk_spark.metadata.ledger_metadata import new_ledger
from tests.checkout import ROOT
from tests.simulation.engines.choices import Choices, TapeChoices
from tests.simulation.engines.invariants import Invariants
from tests.simulation.engines.schedule import LEDGER_ID, tiny_config
from tests.simulation.scripts import script_expectations as expect
from tests.simulation.scripts import script_replication as replication
from tests.simulation.scripts.hand_clients import ADDS, RECOVERY, Client, Reader, Recoverer, Writer
from tests.simulation.scripts.hand_world import HandWorld
from tests.simulation.scripts.script_names import ScriptError, each_of, parts_of
from tests.simulation.world.bookie_actor import BookieActor
from tests.simulation.world.former_ledger import former_adds
from tests.simulation.world.messages import Broken, Envelope
from tests.simulation.world.metadata_store import SimulatedMetadataStore
from tests.simulation.world.self_repair import entries_of
from tests.simulation.world.simulated_disk import Snapshot

MAX_DELIVERIES = 2_000
"""Of one ``run`` or ``finish``."""

QUIET_MS = 120_000
"""How much time ``finish`` lets pass: every operation has given up by then."""

Step = Callable[..., None]


class Script:
    """One run of one script. ``trace`` says what happened."""

    def __init__(self, choices: Choices | None = None, *, is_apache: bool = False) -> None:
        """``is_apache``: clients speak to all bookies over Apache's wire."""
        self.choices = choices if choices is not None else TapeChoices(())
        self.clients: dict[str, Client] = {}
        self.bookies: dict[str, BookieActor] = {}
        self.held: list[str] = []
        self.skips_journal = False
        self._is_apache = is_apache
        self.decided: dict[str, int] = {}
        """Where the logs of bookies were when they decided to collect."""
        self.snapshots: dict[str, Snapshot] = {}
        self._world: HandWorld | None = None

    @property
    def world(self) -> HandWorld:
        assert self._world is not None, "a script begins with its ledger"
        return self._world

    @property
    def trace(self) -> list[str]:
        return (self._world.trace or []) if self._world is not None else []

    def play(self, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            step = line.split("#")[0].strip()
            if step:
                self._step(number, step)

    def _step(self, number: int, step: str) -> None:
        if self._world is not None and self.world.trace is not None:
            self.world.trace.append(f"line {number}: {step}")
        try:
            self._do(step)
        except AssertionError as problem:
            problem.args = ("\n".join([f"line {number}, {step}: {problem}", *self.trace]),)
            raise

    def _do(self, step: str) -> None:
        for pattern, method in STEPS:
            found = re.fullmatch(pattern, step)
            if found is not None:
                method(self, *found.groups())
                return
        raise ScriptError("there is no such step")

    # --- set-up

    def ledger(self, e: str, w: str, a: str, ensemble: str) -> None:
        options = LedgerOptions(ensemble_size=int(e), write_quorum=int(w), ack_quorum=int(a))
        first = new_ledger(LEDGER_ID, options, tuple(ensemble.split()), created_ms=0, creator_token=1)
        self._world = HandWorld(self.choices, Invariants(first), [], is_traced=True)
        self.store = SimulatedMetadataStore(self.world, first, 0)
        self.spares(ensemble)

    def spares(self, names: str) -> None:
        for name in names.split():
            self.world.registered.append(name)
            config = replace(tiny_config(300, 8), journal_write_data=not self.skips_journal)
            self.bookies[name] = BookieActor(name, self.world, config, seed=len(self.bookies) + 1)
            self.bookies[name].of_apache = lambda _: self._is_apache
            self.bookies[name].start()

    def without_journal(self) -> None:
        self.skips_journal = True

    # --- clients

    def client(self, name: str, verb: str) -> None:
        kind = {"writes": Writer, "recovers": Recoverer, "reads": Reader}[verb]
        self.clients[name] = kind(name, self.world)
        self.world.settle()

    def writes_and_tells(self, name: str, after_ms: str) -> None:
        self.clients[name] = Writer(name, self.world, replace(ADDS, explicit_lac_ms=int(after_ms)))

    def recovers_slowly(self, name: str) -> None:
        self.clients[name] = Recoverer(name, self.world, replace(RECOVERY, window_entries=1))

    def appends(self, name: str, count: str | None) -> None:
        self.writer(name).append(int(count or 1))

    def closes(self, name: str) -> None:
        self.writer(name).close()

    def stop(self, name: str) -> None:
        self.client_of(name).process.stop()

    def go_on(self, name: str) -> None:
        self.client_of(name).process.go_on()
        self.world.settle()

    def client_of(self, name: str) -> Client:
        if name not in self.clients:
            raise ScriptError(f"there is no client {name}")
        return self.clients[name]

    def writer(self, name: str) -> Writer:
        client = self.client_of(name)
        assert isinstance(client, Writer), f"{name} is no writer"
        return client

    # --- messages

    def deliver(self, what: str) -> None:
        source, middle, target = parts_of(what)
        for pattern in each_of(source, middle, target):
            for envelope in self.in_flight(pattern):
                self.world.deliver(envelope)
            if "<->" in what:
                self._deliver_answers(pattern)

    def _deliver_answers(self, pattern: str) -> None:
        source, middle, target = parts_of(pattern)
        for envelope in self.in_flight(f"{target} {middle} -> {source}"):
            self.world.deliver(envelope)

    def drop(self, what: str) -> None:
        for pattern in each_of(*parts_of(what)):
            for envelope in self.in_flight(pattern):
                self.world.in_flight.remove(envelope)
                self.world.note(envelope.target, f"never gets {self.world.name(envelope)}")

    def break_off(self, what: str) -> None:
        for pattern in each_of(*parts_of(what)):
            for envelope in self.in_flight(pattern):
                self.world.in_flight.remove(envelope)
                source, target = envelope.source, envelope.target
                client, server = (target, source) if envelope.is_reply else (source, target)
                broken = Broken(envelope.number, only=True)
                self.world.deliver_now(Envelope(envelope.number, server, client, broken, is_reply=True))

    def hold(self, what: str) -> None:
        self.held += each_of(*parts_of(what))

    def release(self, what: str | None) -> None:
        gone = self.held if what is None else each_of(*parts_of(what))
        self.held = [pattern for pattern in self.held if pattern not in gone]

    def run(self, names: str, but: str | None) -> None:
        who, others = names.split(","), (but or "").split(",")
        self._deliver_while(
            lambda one: (one.source in who or one.target in who) and one.source not in others and one.target not in others
        )

    def finish(self) -> None:
        self.held.clear()
        world, end_ms = self.world, self.world.now_ms + QUIET_MS
        world.held_syncs.clear()
        world.settle()
        self._deliver_while(lambda one: True)
        while world.next_timer_ms is not None and world.next_timer_ms <= end_ms:
            world.pass_time(world.next_timer_ms)
            self._deliver_while(lambda one: True)

    def _deliver_while(self, is_meant: Callable[[Envelope], bool]) -> None:
        for _ in range(MAX_DELIVERIES):
            held = {id(one) for pattern in self.held for one in self.world.matching(pattern)}
            ready = (one for one in self.world.in_flight if is_meant(one) and id(one) not in held)
            envelope = next((one for one in ready if not self.world.is_blocked(one)), None)
            if envelope is None:
                return
            self.world.deliver(envelope)
        raise ScriptError(f"it goes on after {MAX_DELIVERIES} messages")

    def in_flight(self, pattern: str) -> list[Envelope]:
        found = self.world.matching(pattern)
        if not found:
            there = ", ".join(self.world.name(one) for one in self.world.in_flight) or "nothing"
            raise ScriptError(f"no message {pattern} is in flight, but {there}")
        return found

    def after(self, delay_ms: str) -> None:
        self.world.pass_time(self.world.now_ms + int(delay_ms))

    # --- bookies

    def crash(self, name: str) -> None:
        self.bookies[name].crash(is_machine=True)

    def kill(self, name: str) -> None:
        if name in self.clients:
            self.clients[name].process.kill()
        else:
            if self.skips_journal:
                self.world.invariants.history.lossy.add(name)
            self.bookies[name].crash(is_machine=False)

    def start(self, name: str, limbo: str | None) -> None:
        if limbo:
            self.world.invariants.history.lossy.add(name)
            self.bookies[name].lose_disk()
        self.bookies[name].start()
        if name not in self.world.registered:
            self.world.registered.append(name)

    def settle(self, name: str) -> None:
        self.bookie(name).admission.settle(LEDGER_ID)
        self.world.invariants.repaired(name, entries_of(self.bookie(name), self.world))

    def forget(self, name: str) -> None:
        self.world.invariants.history.lossy.add(name)
        self.bookies[name].disk.wipe()

    def rot(self, name: str) -> None:
        self.world.invariants.history.lossy.add(name)
        assert self.bookies[name].disk.rot(".log", self.choices) is not None, "there is nothing to rot"

    def lose_journal(self, end: str | None, name: str) -> None:
        self.world.invariants.history.lossy.add(name)
        self.bookies[name].disk.lose_newest(".journal", end_only=bool(end))

    def cookies(self, names: str) -> None:
        for name in names.split():
            self.bookies[name].give_cookie()

    def cut_cookies(self, verb: str, name: str) -> None:
        self.bookies[name].identity.store.is_away = verb == "cut"

    def snapshot(self, name: str) -> None:
        self.snapshots[name] = self.bookies[name].disk.snapshot()

    def restore(self, name: str) -> None:
        self.world.invariants.history.lossy.add(name)
        self.bookies[name].disk.restore(self.snapshots[name])

    def renew(self, name: str) -> None:
        """The old bookie's address now leads to another one, which tells by the bookie id whom a request means."""
        self.bookies[name].crash(is_machine=False)
        fresh = BookieActor(f"{name}-renewed", self.world, tiny_config(300, 8), seed=99)
        fresh.start()
        self.world.actors[name] = _Renewed(name, fresh, self.world)
        self.world.registered.remove(name)

    def former(self, entries: str, name: str) -> None:
        self.world.invariants.history.foreign.add(name)
        bookie = self.bookie(name)
        for request in former_adds(self.world.invariants.history.current, name, int(entries)):
            bookie.stage(request, None)
        bookie.sync()

    def checkpoint(self, name: str) -> None:
        self.bookies[name].stop_cleanly()
        self.bookies[name].start()

    def hold_syncs(self, name: str) -> None:
        self.world.held_syncs.add(name)

    def sync(self, name: str) -> None:
        self.world.held_syncs.discard(name)
        self.world.settle()

    def unregister(self, name: str) -> None:
        self.world.registered.remove(name)

    def register(self, name: str) -> None:
        self.world.registered.append(name)

    def bookie(self, name: str) -> Bookie:
        process = self.bookies[name]._process
        assert process is not None, f"{name} is down"
        return process.bookie


class _Renewed:
    """Stands at the address of a bookie that is no more."""

    def __init__(self, name: str, fresh: BookieActor, world: HandWorld) -> None:
        self.name = name
        self._fresh = fresh
        self._world = world

    def receive(self, envelope: Envelope) -> None:
        self._fresh.receive(envelope)

    def wake(self, wake: Callable[[], None]) -> None:
        wake()


_NAME = r"([\w-]+)"
_END = r"(nothing|-?\d+)"

STEPS: list[tuple[str, Step]] = [
    (r"ledger (\d)/(\d)/(\d) on (.+)", Script.ledger),
    (r"without the journal", Script.without_journal),
    (r"spares (.+)", Script.spares),
    (rf"{_NAME} (writes|recovers|reads)", Script.client),
    (rf"{_NAME} writes and tells after (\d+) ms", Script.writes_and_tells),
    (rf"{_NAME} recovers one by one", Script.recovers_slowly),
    (rf"{_NAME} appends(?: (\d+))?", Script.appends),
    (rf"{_NAME} replicates without ([\w,]+)( and fences)?", replication.replicates),
    (r"racks (.+)", replication.racks),
    (rf"{_NAME} moves", replication.moves),
    (rf"expire {_NAME}", replication.expire),
    (rf"decide on {_NAME}", replication.decide),
    (rf"collect {_NAME}", replication.collect),
    (rf"flush {_NAME}", replication.flush),
    (rf"{_NAME} closes", Script.closes),
    (rf"stop {_NAME}", Script.stop),
    (rf"go on {_NAME}", Script.go_on),
    (r"deliver (.+)", Script.deliver),
    (r"drop (.+)", Script.drop),
    (r"break (.+)", Script.break_off),
    (rf"hold syncs of {_NAME}", Script.hold_syncs),
    (r"hold (.+)", Script.hold),
    (r"release(?: (.+))?", Script.release),
    (r"run ([\w,-]+)(?: but ([\w,-]+))?", Script.run),
    (r"finish", Script.finish),
    (r"after (\d+) ms", Script.after),
    (rf"crash {_NAME}", Script.crash),
    (rf"kill {_NAME}", Script.kill),
    (rf"start {_NAME}( in limbo)?", Script.start),
    (rf"settle {_NAME}", Script.settle),
    (rf"forget {_NAME}", Script.forget),
    (rf"rot {_NAME}", Script.rot),
    (rf"lose (the end of )?the newest journal of {_NAME}", Script.lose_journal),
    (r"cookies of (.+)", Script.cookies),
    (rf"(cut|mend) cookies of {_NAME}", Script.cut_cookies),
    (rf"snapshot {_NAME}", Script.snapshot),
    (rf"restore {_NAME}", Script.restore),
    (rf"renew {_NAME}", Script.renew),
    (rf"former ledger (\d) at {_NAME}", Script.former),
    (rf"checkpoint {_NAME}", Script.checkpoint),
    (rf"sync {_NAME}", Script.sync),
    (rf"unregister {_NAME}", Script.unregister),
    (rf"register {_NAME}", Script.register),
    (rf"expect {_NAME} acked {_END}", expect.acked),
    (rf"expect {_NAME} failed (\w+)", expect.failed),
    (rf"expect {_NAME} done", expect.done),
    (rf"expect {_NAME} (not )?whole", expect.whole),
    (rf"expect {_NAME} running", expect.running),
    (r"expect marked (.+)", expect.marked),
    (rf"expect ledger (OPEN|IN_RECOVERY|CLOSED)(?: at {_END})?", expect.ledger),
    (r"expect fragments (.+)", expect.fragments),
    (r"expect in flight (.+)", expect.in_flight),
    (rf"expect {_NAME} read up to {_END}", expect.read),
    (r"expect (.+ -> .+) says (\w+)", expect.says),
    (rf"expect {_NAME} (not )?fenced", expect.fenced),
    (rf"expect {_NAME} lac {_END}", expect.last_add_confirmed),
]


def play(text: str, *, is_apache: bool = False) -> Script:
    """Play a script to its end. Raises Violation or ScriptError, with the trace."""
    script = Script(is_apache=is_apache)
    script.play(text)
    return script


def scenarios() -> Iterator[Path]:
    """The files of all scripts."""
    yield from sorted((ROOT / "tests" / "scenarios").glob("*.txt"))
