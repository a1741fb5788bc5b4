"""What an operator asks of a running bookie, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest import mock

import pytest

from bk_spark.bookie.admission import ORDERED
from bk_spark.bookie.process.background import Administration, Background
from bk_spark.bookie.process.disk_watch import DiskState
from bk_spark.errors import ConfigError, State
from bk_spark.wire.messages import AdministerReply, AdminOperation, Status


@dataclass
class TaskStatus:
    count: int
    last_error: str = ""

    def figures(self) -> dict[str, int]:
        return {"runs": self.count}


@dataclass
class Task:
    asked: list[str] = field(default_factory=list)

    def force(self) -> None:
        self.asked.append("force")

    def suspend(self) -> None:
        self.asked.append("suspend")

    def resume(self) -> None:
        self.asked.append("resume")

    def status(self) -> TaskStatus:
        return TaskStatus(len(self.asked), "the last run failed" if "suspend" in self.asked else "")


class World:
    def __init__(self, repair: Task | None = None) -> None:
        self.bookie = mock.Mock(
            is_read_only=False, failure=None, limbo=None, ids_above="", lapse="", is_ordered_read_only=False
        )
        self.bookie.storage.highest_ledger_id.return_value = 7
        self.watch = mock.Mock(state=DiskState())
        self.collector, self.scrub = Task(), Task()
        self.background = Background(self.collector, self.scrub, repair, mock.Mock(), Task())
        self.administration = Administration(self.bookie, "b1", self.watch, self.order_read_only)

    def order_read_only(self, is_read_only: bool) -> None:
        self.bookie.is_ordered_read_only = self.bookie.is_read_only = is_read_only

    def ask(self, operation: AdminOperation, bookie_id: str = "b1") -> AdministerReply:
        return self.administration.administer(bookie_id, operation)


@pytest.fixture
def world() -> World:
    made = World()
    made.administration.background = made.background
    return made


def test_a_bookie_that_serves_reads_alone_says_why_it_does_nothing_else() -> None:
    world = World()
    assert world.ask(AdminOperation.GC_RUN) == AdministerReply(Status.UNKNOWN, "this bookie is starting: ask again")
    world.bookie.failure = OSError("no space left")
    detail = "this bookie serves reads alone: no space left"
    assert world.ask(AdminOperation.GC_RUN) == AdministerReply(Status.UNKNOWN, detail)


@pytest.mark.parametrize(
    ("operation", "asked"),
    [
        (AdminOperation.GC_RUN, ["force"]),
        (AdminOperation.GC_SUSPEND, ["suspend"]),
        (AdminOperation.GC_RESUME, ["resume"]),
        (AdminOperation.GC_STATUS, []),
    ],
)
def test_garbage_collection_is_asked_for_and_answers_with_its_figures(
    world: World, operation: AdminOperation, asked: list[str]
) -> None:
    error = "the last run failed" if asked == ["suspend"] else ""
    assert world.ask(operation) == AdministerReply(Status.OK, error, {"runs": len(asked)})
    assert (world.collector.asked, world.scrub.asked) == (asked, [])


def test_the_scrub_is_asked_for(world: World) -> None:
    assert world.ask(AdminOperation.SCRUB) == AdministerReply(Status.OK, "", {"runs": 1})
    assert (world.collector.asked, world.scrub.asked) == ([], ["force"])


def test_a_request_that_means_another_bookie_does_nothing(world: World) -> None:
    """Protocol rule 49."""
    assert world.ask(AdminOperation.GC_RUN, "b2") == AdministerReply(Status.WRONG_BOOKIE, "this is bookie b1")
    assert world.collector.asked == []


def test_a_bookie_that_starts_says_so_and_tells_its_state() -> None:
    starting = World()
    assert starting.ask(AdminOperation.GC_RUN).status is Status.UNKNOWN
    assert starting.ask(AdminOperation.BOOKIE_STATUS).figures == {
        "read_only": 0,
        "failed": 0,
        "limbo": 0,
        "ids_given_out_again": 0,
        "lapsed": 0,
        "read_only_ordered": 0,
        "highest_ledger_id": 7,
    }


def test_the_state_tells_why_a_bookie_takes_no_adds(world: World) -> None:
    world.bookie.is_read_only = True
    world.watch.state = DiskState(problem="too little free space in /data")
    reply = world.ask(AdminOperation.BOOKIE_STATUS)
    assert (reply.detail, reply.figures["read_only"]) == ("too little free space in /data", 1)
    world.bookie.ids_above = "ids are given out again"
    reply = world.ask(AdminOperation.BOOKIE_STATUS)
    assert (reply.detail, reply.figures["ids_given_out_again"]) == ("ids are given out again", 1)
    world.bookie.lapse = "its epoch has not moved"
    reply = world.ask(AdminOperation.BOOKIE_STATUS)
    assert (reply.detail, reply.figures["lapsed"]) == ("its epoch has not moved", 1)
    world.bookie.failure = OSError("input/output error")
    reply = world.ask(AdminOperation.BOOKIE_STATUS)
    assert (reply.detail, reply.figures["failed"]) == ("input/output error", 1)


def test_the_state_tells_how_far_scrub_and_repair_came() -> None:
    repairing = World(Task())
    repairing.administration.background = repairing.background
    repairing.bookie.limbo = object()
    figures = repairing.ask(AdminOperation.BOOKIE_STATUS).figures
    assert (figures["limbo"], figures["scrub_runs"], figures["repair_runs"], figures["foreign_runs"]) == (1, 0, 0, 0)


class Limbo(Task):
    """Phase two with one ledger that it waits for."""

    def waits_for(self) -> dict[int, str]:
        return {} if "give up 7" in self.asked else {7: "b2: away"}

    def give_up(self, ledger_id: int) -> None:
        if ledger_id != 7:
            raise ConfigError(f"ledger {ledger_id}", State("not in limbo"), "bookie limbo shows what is")
        self.asked.append(f"give up {ledger_id}")


def test_an_operator_learns_what_limbo_waits_for_and_ends_it() -> None:
    stuck = World(Limbo())
    stuck.administration.background = stuck.background
    stuck.bookie.limbo = object()
    assert stuck.ask(AdminOperation.LIMBO_STATUS).ledgers == {7: "b2: away"}
    reply = stuck.administration.administer("b1", AdminOperation.LIMBO_END, [8])
    assert (reply.status, reply.ledgers) == (Status.BAD_REQUEST, {7: "b2: away"})
    assert stuck.administration.administer("b1", AdminOperation.LIMBO_STATUS, [7]).ledgers == {7: "b2: away"}
    reply = stuck.administration.administer("b1", AdminOperation.LIMBO_END, [7])
    assert (reply.status, reply.ledgers, reply.figures) == (Status.OK, {}, {"limbo": 1, "runs": 1})


def test_a_process_without_a_client_says_that_limbo_does_not_end(world: World) -> None:
    assert world.ask(AdminOperation.LIMBO_STATUS).status is Status.UNKNOWN


def test_a_bookie_is_ordered_to_be_read_only_and_no_longer_also_while_it_starts() -> None:
    starting = World()
    assert starting.ask(AdminOperation.READ_ONLY_ON) == AdministerReply(Status.OK, ORDERED, {"read_only": 1})
    reply = starting.ask(AdminOperation.BOOKIE_STATUS)
    assert (reply.detail, reply.figures["read_only"], reply.figures["read_only_ordered"]) == (ORDERED, 1, 1)
    assert starting.ask(AdminOperation.READ_ONLY_OFF) == AdministerReply(Status.OK, "", {"read_only": 0})


def test_a_bookie_whose_order_ends_says_what_else_keeps_it_from_adds(world: World) -> None:
    world.watch.state = DiskState(problem="too little free space in /data")
    assert world.ask(AdminOperation.READ_ONLY_OFF).detail == "too little free space in /data"
