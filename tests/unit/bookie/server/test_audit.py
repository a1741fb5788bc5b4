"""The audit log says who did what, and nobody can fill it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from bk_spark.bookie.server.audit import MOST_FENCED, REQUESTS_AT_ONCE, Audit, GrpcCaller
from bk_spark.telemetry.audit_lines import TELL_S, Who
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.wire.messages import AdminOperation, Status

CLIENT = Who("10.0.0.9", "41234", "spark-client")
STRANGER = Who("10.0.0.66", "50100")


class World:
    """An audit log and its lines; time passes when the test says so."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, AUDIT_LOGGER)
        self._caplog = caplog
        self._due: list[Callable[[], None]] = []
        self.audit = Audit(self._later)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        assert seconds == TELL_S
        self._due.append(call)

    def pass_time(self) -> None:
        due, self._due = self._due, []
        for call in due:
            call()

    def lines(self) -> list[str]:
        """Those since the last call."""
        found = self._caplog.messages.copy()
        self._caplog.clear()
        return found


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    return World(caplog)


def test_a_fence_is_told_with_its_ledger_and_who_asked_for_it_and_once_if_the_same_client_repeats_it(world: World) -> None:
    world.audit.fenced(7, CLIENT)
    world.audit.fenced(7, Who(CLIENT.host, "41235", CLIENT.certificate))  # another connection of the same recovery
    assert world.lines() == ['event=fenced ledger=7 peer=10.0.0.9:41234 certificate="spark-client"']
    world.audit.fenced(7, STRANGER)
    world.audit.fenced(8, CLIENT)
    assert [line.split(" certificate")[0] for line in world.lines()] == [
        "event=fenced ledger=7 peer=10.0.0.66:50100",
        "event=fenced ledger=8 peer=10.0.0.9:41234",
    ]


def test_fences_that_are_remembered_are_bounded_and_those_of_long_ago_are_told_again(world: World) -> None:
    for ledger_id in range(MOST_FENCED + 1):
        world.audit.fenced(ledger_id, CLIENT)
    world.lines()
    world.audit.fenced(MOST_FENCED, CLIENT)
    assert world.lines() == []
    world.audit.fenced(0, CLIENT)
    assert len(world.lines()) == 1


def test_a_request_of_an_operator_is_told_with_its_answer_and_some_of_its_ledgers(world: World) -> None:
    world.audit.administered(AdminOperation.READ_ONLY_ON, (), Status.OK, CLIENT)
    world.audit.administered(AdminOperation.LIMBO_END, tuple(range(12)), Status.BAD_REQUEST, STRANGER)
    assert world.lines() == [
        'event=administered operation=READ_ONLY_ON status=OK peer=10.0.0.9:41234 certificate="spark-client"',
        "event=administered operation=LIMBO_END ledgers=0,1,2,3,4,5,6,7,8,9,… status=BAD_REQUEST"
        " peer=10.0.0.66:50100 certificate=none",
    ]


def test_requests_of_an_operator_are_told_in_their_order_and_counted_when_there_are_many(world: World) -> None:
    for _ in range(REQUESTS_AT_ONCE):
        world.audit.administered(AdminOperation.READ_ONLY_ON, (), Status.OK, CLIENT)
        world.audit.administered(AdminOperation.READ_ONLY_OFF, (), Status.OK, CLIENT)
    assert [line.split()[1] for line in world.lines()] == [
        "operation=READ_ONLY_ON",
        "operation=READ_ONLY_OFF",
    ] * REQUESTS_AT_ONCE
    for _ in range(500):
        world.audit.administered(AdminOperation.READ_ONLY_ON, (), Status.OK, CLIENT)
    assert world.lines() == []
    world.pass_time()
    told = 'event=administered operation=READ_ONLY_ON status=OK peer=10.0.0.9:41234 certificate="spark-client"'
    assert world.lines() == [f"{told} times=500 within_s=60"]


def test_repeated_refusals_of_one_client_are_counted_and_told_together_as_long_as_they_go_on(world: World) -> None:
    first = 'event=refused reason="the ledger has another password" peer=10.0.0.66:50100 certificate=none'
    for port in ("50100", "50101", "50102"):
        world.audit.refused_request(Status.UNAUTHORIZED, Caller(Who(STRANGER.host, port)))
    assert world.lines() == [first]
    world.pass_time()
    assert world.lines() == [first.replace("50100", "50102") + " times=2 within_s=60"]
    world.audit.refused("the ledger has another password", STRANGER)
    assert world.lines() == []
    world.pass_time()
    assert world.lines() == [first + " times=1 within_s=60"]
    world.pass_time()  # nothing came: the next one is told at once again
    world.audit.refused("the ledger has another password", STRANGER)
    assert world.lines() == [first]


def test_other_reasons_machines_and_certificates_are_told_each_for_itself(world: World) -> None:
    world.audit.refused("too many connections", STRANGER)
    world.audit.refused("it sends requests before TLS", STRANGER)
    world.audit.refused("too many connections", CLIENT)
    world.audit.refused("too many connections", Who(CLIENT.host, "1", "another"))
    assert len(world.lines()) == 4


def test_a_bookie_that_stops_tells_what_it_has_counted(world: World) -> None:
    world.audit.refused("too many connections", STRANGER)
    world.audit.refused("too many connections", STRANGER)
    world.lines()
    world.audit.close()
    assert world.lines() == [
        'event=refused reason="too many connections" peer=10.0.0.66:50100 certificate=none times=1 within_s=60'
    ]


def test_a_status_that_refuses_nobody_for_who_it_is_is_not_told(world: World) -> None:
    for status in set(Status) - {Status.UNAUTHORIZED}:
        world.audit.refused_request(status, Caller(STRANGER))
    assert world.lines() == []


@pytest.mark.parametrize(
    ("peer", "shown", "who"),
    [
        ("ipv4:10.0.0.9:4711", {"x509_common_name": [b"spark-client"]}, Who("10.0.0.9", "4711", "spark-client")),
        ("ipv6:%5B::1%5D:4711", {}, Who("::1", "4711")),
        (
            "ipv4:10.0.0.9:4711",
            {"x509_common_name": [b""], "x509_subject_alternative_name": [b"a.example", b"b"]},
            Who("10.0.0.9", "4711", "a.example"),
        ),
    ],
)
def test_who_calls_is_read_from_grpc(peer: str, shown: dict[str, list[bytes]], who: Who) -> None:
    assert GrpcCaller(SimpleNamespace(peer=lambda: peer, auth_context=lambda: shown)).who() == who


class Caller:
    def __init__(self, who: Who) -> None:
        self._who = who
        self.peer = who.host

    def who(self) -> Who:
        return self._who
