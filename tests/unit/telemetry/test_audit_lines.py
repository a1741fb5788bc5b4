"""Lines of the audit log that others cause are told, counted and bounded."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from bk_spark.telemetry.audit_lines import MOST_KINDS, TELL_S, AuditLines, Who
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER

CLIENT = Who("10.0.0.9", "41234", "spark-client")
STRANGER = Who("10.0.0.66", "50100")


class World:
    """Lines of an audit log; time passes when the test says so."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, AUDIT_LOGGER)
        self._caplog = caplog
        self.due: list[Callable[[], None]] = []
        self.audit = AuditLines(self._later)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        assert seconds == TELL_S
        self.due.append(call)

    def pass_time(self) -> None:
        due, self.due = self.due, []
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


def test_what_repeats_is_told_at_once_as_often_as_its_teller_says_and_then_counted(world: World) -> None:
    for _ in range(5):
        world.audit.tell("event=x", STRANGER, at_once=2)
    line = "event=x peer=10.0.0.66:50100 certificate=none"
    assert world.lines() == [line, line]
    world.pass_time()
    assert world.lines() == [f"{line} times=3 within_s=60"]


def test_heads_machines_and_certificates_are_told_each_for_itself(world: World) -> None:
    for who in (CLIENT, STRANGER, Who(CLIENT.host, "1", "another"), Who(CLIENT.host, "2", CLIENT.certificate)):
        world.audit.tell("event=x", who)
    world.audit.tell("event=y", CLIENT)
    assert len(world.lines()) == 4


def test_a_kind_that_is_quiet_for_its_time_is_forgotten_and_told_at_once_again(world: World) -> None:
    for _ in range(3):
        world.audit.tell("event=x", STRANGER)
        assert len(world.lines()) == 1
        world.pass_time()
        assert (world.lines(), world.due) == ([], [])


def test_kinds_beyond_the_most_are_counted_together(world: World) -> None:
    for number in range(MOST_KINDS + 50):
        world.audit.tell("event=x", Who(f"host-{number}", "1"))
    assert len(world.lines()) == MOST_KINDS + 1
    world.pass_time()
    assert world.lines() == ["event=others peer=host-1049:1 certificate=none times=49 within_s=60"]


def test_at_the_end_what_was_counted_is_told(world: World) -> None:
    for _ in range(3):
        world.audit.tell("event=x", STRANGER)
    world.lines()
    world.audit.close()
    assert world.lines() == ["event=x peer=10.0.0.66:50100 certificate=none times=2 within_s=60"]
    world.pass_time()
    assert world.lines() == []


def test_a_name_in_a_certificate_cannot_make_a_line_of_its_own() -> None:
    assert str(Who("::1", "1", 'a"\nevent=fenced')) == 'peer=[::1]:1 certificate="a\\"\\nevent=fenced"'


@pytest.mark.parametrize(
    ("peer", "who"),
    [
        ("ipv4:10.0.0.9:4711", Who("10.0.0.9", "4711", "c")),
        ("ipv6:%5B::1%5D:4711", Who("::1", "4711", "c")),
        ("ipv6:[::1]:4711", Who("::1", "4711", "c")),
        ("", Who("", "", "c")),
    ],
)
def test_the_other_end_is_read_from_grpc_s_name_of_it(peer: str, who: Who) -> None:
    assert Who.of_peer(peer, "c") == who
