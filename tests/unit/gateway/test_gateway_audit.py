"""The audit log of a gateway says who was refused, who came, and what operators changed; nobody can fill it."""

from __future__ import annotations

import logging

import pytest

from bk_spark.gateway import gateway_audit
from bk_spark.gateway.access_records import AccessChange
from bk_spark.gateway.gateway_audit import USED_S, GatewayAudit
from bk_spark.gateway.guesses import MANY
from bk_spark.gateway.rights import Grant, Right, parse_identity
from bk_spark.gateway.tokens import StoredToken
from bk_spark.telemetry.audit_lines import MOST_OF_ONE, TELL_S, Who
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER

ETL = parse_identity("token:etl")
STORED = StoredToken("AAECAwQFBgc", "etl", bytes(32), 1_000, 1_772_290_800_000, "op@host")
CLIENT = Who("10.0.0.9", "41234")


class World:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, AUDIT_LOGGER)
        self._caplog = caplog
        self.now_s = 100.0
        self.audit = GatewayAudit(lambda: self.now_s)

    def lines(self) -> list[str]:
        """Those since the last call."""
        self.audit.tick()
        found = self._caplog.messages.copy()
        self._caplog.clear()
        return found


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    return World(caplog)


def test_a_refusal_names_identity_right_log_and_peer(world: World) -> None:
    world.audit.refused(ETL, Right.APPEND, "orders", CLIENT)
    line = 'event=refused identity="token:etl" right=append log="orders" peer=10.0.0.9:41234 certificate=none'
    assert world.lines() == [line]
    for _ in range(50):
        world.audit.refused(ETL, Right.APPEND, "orders", CLIENT)
    assert world.lines() == []
    world.now_s += TELL_S
    assert world.lines() == [f"{line} times=50 within_s=60"]


def test_names_that_a_caller_makes_up_fill_no_log_and_make_no_line_of_their_own(world: World) -> None:
    world.audit.refused(parse_identity('certificate:a" b'), Right.READ, "x\nevent=granted" + "y" * 10_000, CLIENT)
    [line] = world.lines()
    assert line.startswith('event=refused identity="certificate:a\\" b" right=read log="x\\nevent=granted')
    assert len(line) < 400
    for number in range(MOST_OF_ONE + 500):
        world.audit.refused(ETL, Right.READ, f"log-{number}", CLIENT)
    assert len(world.lines()) == MOST_OF_ONE + 1
    world.now_s += TELL_S
    assert world.lines() == ["event=others peer=10.0.0.9:41234 certificate=none times=499 within_s=60"]


def test_names_that_a_caller_makes_up_hide_no_refusal_of_another_identity_behind_the_same_balancer(world: World) -> None:
    for number in range(2 * MOST_OF_ONE):
        world.audit.refused(ETL, Right.READ, f"log-{number}", CLIENT)
    world.lines()
    world.audit.refused(parse_identity("token:other"), Right.READ, "orders", CLIENT)
    assert world.lines() == [
        'event=refused identity="token:other" right=read log="orders" peer=10.0.0.9:41234 certificate=none'
    ]


def test_wrong_tokens_are_counted_and_many_of_one_address_are_named_once(world: World) -> None:
    counted = [world.audit.wrong_token("its token is not known", CLIENT) for _ in range(MANY + 30)]
    assert counted == list(range(1, MANY + 31))
    assert world.lines() == [
        'event=refused reason="its token is not known" peer=10.0.0.9:41234 certificate=none',
        "event=guessing wrong_tokens=21 within_s=60 peer=10.0.0.9:41234 certificate=none",
    ]
    world.now_s += TELL_S
    assert world.lines() == [
        'event=refused reason="its token is not known" peer=10.0.0.9:41234 certificate=none times=49 within_s=60'
    ]


def test_the_use_of_a_token_is_told_once_an_hour_and_from_another_machine_at_once(world: World) -> None:
    for _ in range(3):
        world.audit.used(STORED, CLIENT)
    world.audit.used(STORED, Who("10.0.0.9", "2"))  # another connection
    assert world.lines() == ['event=token-used identity="token:etl" token=AAECAwQFBgc peer=10.0.0.9:41234 certificate=none']
    world.audit.used(STORED, Who("10.0.0.66", "1"))
    assert len(world.lines()) == 1
    world.now_s += USED_S
    world.audit.used(STORED, CLIENT)
    assert len(world.lines()) == 1


def test_uses_that_are_remembered_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_audit, "MOST_USED", 2)
    for host in ("a", "b", "c", "c", "a"):
        world.audit.used(STORED, Who(host, "1"))
    assert len(world.lines()) == 4


def test_what_an_operator_changes_is_told_line_by_line_with_who_it_was(world: World) -> None:
    grants = tuple(Grant(ETL, "shop.*", right) for right in (Right.READ, Right.APPEND))
    world.audit.changed(AccessChange((STORED,), (), grants, (), "c1", "op@host", 5))
    world.audit.changed(AccessChange((), (STORED,), (), grants[:1], "c2", "op@host", 5))
    assert world.lines() == [
        'event=token-created identity="token:etl" token=AAECAwQFBgc ends=2026-02-28T15:00:00Z by="op@host" change=c1',
        'event=granted identity="token:etl" right=read log="shop.*" by="op@host" change=c1',
        'event=granted identity="token:etl" right=append log="shop.*" by="op@host" change=c1',
        'event=token-revoked identity="token:etl" token=AAECAwQFBgc by="op@host" change=c2',
        'event=revoked identity="token:etl" right=read log="shop.*" by="op@host" change=c2',
    ]


def test_a_gateway_that_stops_tells_what_it_has_counted(world: World) -> None:
    for _ in range(3):
        world.audit.unknown_caller("it shows nothing", CLIENT)
    world.lines()
    world.audit.close()
    assert world.lines() == ['event=refused reason="it shows nothing" peer=10.0.0.9:41234 certificate=none times=2 within_s=60']
