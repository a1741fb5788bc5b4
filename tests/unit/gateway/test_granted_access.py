"""A call is whose its token or certificate says, and may do what was granted: not more, not longer, and never by default."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from queue import Queue

import pytest

from bk_spark.errors import AccessRefusedError, ConfigError, MetadataUnavailableError, UnauthenticatedError
from bk_spark.gateway.access import Access
from bk_spark.gateway.gateway_audit import GatewayAudit
from bk_spark.gateway.granted_access import GrantedAccess
from bk_spark.gateway.guesses import MANY
from bk_spark.gateway.held_access import HeldAccess
from bk_spark.gateway.rights import ANONYMOUS, Right, parse_identity
from bk_spark.gateway.tokens import BearerToken
from bk_spark.metadata.znodes import Znodes
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.gateway.access_world import Operator

PEER = "ipv4:10.0.0.9:41234"
DEADLINE_S = 20.0


class World:
    """A gateway's access, and an operator; time passes when a test says so."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, AUDIT_LOGGER)
        self.caplog = caplog
        tree, znodes = MemoryTree(lambda: 1), Znodes("/ledgers")
        self.operator, self.reader = Operator(MemoryStore(tree), znodes), Operator(MemoryStore(tree), znodes)
        self.now_s = 1.0
        self.looks: Queue[object] = Queue()
        self.held = HeldAccess(self.reader.access, self.looks.put, confirm_s=3600.0, clock=lambda: self.now_s)
        self.looks.get(timeout=DEADLINE_S)
        self.granted = GrantedAccess(self.held, GatewayAudit(lambda: self.now_s), lambda: self.now_s)
        self.access: Access = self.granted

    def seen(self) -> None:
        """Wait until the gateway has seen the last change."""
        self.looks.get(timeout=DEADLINE_S)

    def token(self, name: str = "etl", *, ends_ms: int | None = None) -> BearerToken:
        made = self.operator.create(name, ends_ms=ends_ms)
        self.seen()
        return made

    def grant(self, identity: str, logs: str, *rights: Right) -> None:
        self.operator.grant(identity, logs, *rights)
        self.seen()

    def events(self) -> list[str]:
        return [line.split()[0].removeprefix("event=") for line in self.caplog.messages]


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    built = World(caplog)
    yield built
    built.granted.close()


def test_a_call_with_a_token_is_the_token_s(world: World) -> None:
    made = world.token()
    identity = world.access.identify(made.text, None, PEER)
    assert (str(identity), identity.token_id) == ("token:etl", made.token_id)
    assert world.events() == ["token-used"]


def test_a_call_with_a_certificate_alone_is_the_certificate_s(world: World) -> None:
    assert str(world.access.identify(None, "spark-client", PEER)) == "certificate:spark-client"


def test_a_token_goes_before_a_certificate_and_a_wrong_one_is_not_made_good_by_it(world: World) -> None:
    made = world.token()
    assert str(world.access.identify(made.text, "spark-client", PEER)) == "token:etl"
    for wrong in ("", "bks_x", made.text[:-2] + "AA", made.text.upper()):
        with pytest.raises(UnauthenticatedError, match="its token is not known here"):
            world.access.identify(wrong, "spark-client", PEER)


@pytest.mark.parametrize("certificate", [None, ""])
def test_a_call_that_shows_nothing_is_refused_and_told_what_to_show(world: World, certificate: str | None) -> None:
    with pytest.raises(UnauthenticatedError, match="send the header 'authorization: Bearer bks_…'"):
        world.access.identify(None, certificate, PEER)
    assert world.events() == ["refused"]


def test_a_certificate_whose_name_no_grant_can_hold_is_nobody_s(world: World) -> None:
    for name in ("a\nb", "x" * 257, " a", "\udc80"):
        with pytest.raises(UnauthenticatedError, match="characters that cannot be printed, or too many"):
            world.access.identify(None, name, PEER)


def test_a_right_is_refused_with_identity_right_and_log_until_it_is_granted(world: World) -> None:
    identity = world.access.identify(world.token().text, None, PEER)
    with pytest.raises(AccessRefusedError, match=r"^token:etl has no right to append log 'orders': an operator may grant it"):
        world.access.check(identity, Right.APPEND, "orders", PEER)
    line = 'event=refused identity="token:etl" right=append log="orders" peer=10.0.0.9:41234 certificate=none'
    assert world.caplog.messages[-1] == line
    world.grant("token:etl", "orders", Right.APPEND)
    world.access.check(identity, Right.APPEND, "orders", PEER)
    with pytest.raises(AccessRefusedError):
        world.access.check(identity, Right.READ, "orders", PEER)
    assert world.access.may_see(identity, "orders")
    assert not world.access.may_see(identity, "customers")


def test_a_refusal_of_a_certificate_names_it_in_the_audit_log(world: World) -> None:
    with pytest.raises(AccessRefusedError):
        world.access.check(parse_identity("certificate:spark"), Right.READ, "orders", PEER)
    assert world.caplog.messages[-1].endswith('certificate="spark"')


def test_nobody_may_do_anything_without_an_identity(world: World) -> None:
    world.grant("token:etl", "*")
    with pytest.raises(AccessRefusedError):
        world.access.check(ANONYMOUS, Right.READ, "orders")
    assert not world.access.may_see(ANONYMOUS, "orders")


def test_a_revoked_token_is_not_known_and_ends_what_it_began(world: World) -> None:
    made = world.token()
    world.grant("token:etl", "*")
    identity = world.access.identify(made.text, None, PEER)
    world.access.check(identity, Right.READ, "orders")
    world.operator.revoke("etl")
    world.seen()
    with pytest.raises(UnauthenticatedError, match="its token was revoked, or has ended, since the call began"):
        world.access.check(identity, Right.READ, "orders")
    assert not world.access.may_see(identity, "orders")
    with pytest.raises(UnauthenticatedError, match="not known here"):
        world.access.identify(made.text, None, PEER)


def test_the_next_token_of_a_name_has_its_grants_and_the_calls_of_the_former_one_stay_ended(world: World) -> None:
    former = world.access.identify(world.token().text, None, PEER)
    world.grant("token:etl", "*")
    world.operator.revoke("etl")
    world.seen()
    identity = world.access.identify(world.token().text, None, PEER)
    world.access.check(identity, Right.READ, "orders")
    with pytest.raises(UnauthenticatedError):
        world.access.check(former, Right.READ, "orders")


def test_a_token_ends_at_its_time_and_so_do_its_calls(world: World) -> None:
    made = world.token(ends_ms=5_000)
    world.grant("token:etl", "*")
    identity = world.access.identify(made.text, None, PEER)
    world.now_s = 4.9
    world.access.check(identity, Right.READ, "orders")
    world.now_s = 5.0
    with pytest.raises(UnauthenticatedError, match="its token has ended: an operator makes another one"):
        world.access.identify(made.text, None, PEER)
    with pytest.raises(UnauthenticatedError, match="since the call began"):
        world.access.check(identity, Right.READ, "orders")


def test_a_right_that_is_removed_ends_what_it_allowed(world: World) -> None:
    world.grant("certificate:spark", "orders")
    identity = world.access.identify(None, "spark", PEER)
    world.access.check(identity, Right.READ, "orders")
    world.operator.remove("certificate:spark", "orders", Right.READ)
    world.seen()
    with pytest.raises(AccessRefusedError):
        world.access.check(identity, Right.READ, "orders")


def test_while_the_store_is_away_too_long_nothing_is_allowed_and_nothing_is_refused_as_forbidden(world: World) -> None:
    made = world.token()
    identity = world.access.identify(made.text, None, PEER)
    assert world.granted.why_not_ready() == ""
    world.now_s += 11.0
    assert "tokens and grants were confirmed last 11 s ago" in world.granted.why_not_ready()
    for call in (
        lambda: world.access.identify(made.text, None, PEER),
        lambda: world.access.identify("bks_wrong", None, PEER),
        lambda: world.access.identify(None, None, PEER),
        lambda: world.access.check(identity, Right.READ, "orders"),
        lambda: world.access.may_see(identity, "orders"),
    ):
        with pytest.raises(MetadataUnavailableError):
            call()


def test_guesses_ask_the_store_for_nothing_and_do_not_shut_out_who_shares_their_address(world: World) -> None:
    made = world.token()
    world.reader.store.calls.clear()
    draw = random.Random(1)
    problems = []
    for _ in range(MANY + 10):
        wrong = BearerToken(made.token_id, draw.randbytes(32)).text
        with pytest.raises(UnauthenticatedError) as caught:
            world.access.identify(wrong, None, PEER)
        problems.append(caught.value.problem)
    assert [len(list(same)) for _, same in itertools.groupby(problems)] == [MANY, 10]
    assert problems[-1] == "its address has sent more than 20 wrong tokens within a minute, and so has this call"
    assert world.events() == ["refused", "guessing"]
    assert world.reader.store.calls == []
    assert str(world.access.identify(made.text, None, PEER)) == "token:etl"


def test_no_line_and_no_error_shows_a_secret(world: World) -> None:
    made = world.token()
    world.access.identify(made.text, None, PEER)
    with pytest.raises(UnauthenticatedError) as caught:
        world.access.identify(made.text[:-2] + "AA", None, PEER)
    assert made.text[16:50] not in "".join(world.caplog.messages) + str(caught.value) + repr(caught.value)


def covers(pattern: str, log: str) -> bool:
    return log.startswith(pattern[:-1]) if pattern[-1] == "*" else log == pattern


@pytest.mark.parametrize("seed", range(5))
def test_drawn_operations_are_allowed_exactly_where_granted(world: World, seed: int) -> None:
    draw = random.Random(seed)
    callers = {"token:a": world.token("a").text, "token:b": world.token("b").text, "certificate:a": None}
    for _ in range(12):
        act = world.operator.grant if draw.random() < 0.6 else world.operator.remove
        with suppress(ConfigError):
            act(draw.choice(list(callers)), draw.choice(["x", "x*", "y*", "*"]), draw.choice(list(Right)))
    last = world.operator.access.read()
    while world.held.now().content.head != last.head:
        world.seen()
    for (name, text), log, right in itertools.product(callers.items(), ["x", "xy", "y", "yx"], Right):
        identity = world.access.identify(text, None if text else name.partition(":")[2], PEER)
        of_it = [one for one in last.grants.values() if str(one.identity) == name]
        is_granted = any(one.right is right and covers(one.logs, log) for one in of_it)
        with nullcontext() if is_granted else pytest.raises(AccessRefusedError):
            world.access.check(identity, right, log)
