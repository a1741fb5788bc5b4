"""Tokens and grants on a real ZooKeeper: changes of operators at once, and what a gateway knows of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bk_spark.errors import AccessRefusedError, ConfigError, MetadataUnavailableError, UnauthenticatedError
from bk_spark.gateway.gateway_audit import GatewayAudit
from bk_spark.gateway.granted_access import GrantedAccess, granted_access
from bk_spark.gateway.held_access import HeldAccess
from bk_spark.gateway.rights import Right
from bk_spark.gateway.stored_access import StoredAccess
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from tests.unit.gateway.access_world import Operator
from tests.unit.gateway.test_stored_access import (
    hire,
    operator,
    test_a_change_that_arrives_late_does_not_undo_what_was_decided_since,
    test_a_change_while_all_is_read_has_it_read_again,
    test_a_change_whose_answer_is_lost_is_made_once_and_told_as_made,
    test_a_directory_that_is_missing_is_damage,
    test_a_grant_that_is_removed_meanwhile_is_granted_again_and_not_undone,
    test_each_change_is_recorded_with_who_made_it_and_without_a_secret,
    test_nobody_has_tokens_or_grants_before_the_first_change,
    test_the_records_of_the_last_changes_stay_and_no_more,
    test_two_operators_at_once_make_one_token_of_a_name,
    test_two_operators_at_once_make_the_very_first_change_once_each,
    test_what_one_operator_changes_another_one_reads,
)

__all__ = [
    "hire",
    "operator",
    "test_a_change_that_arrives_late_does_not_undo_what_was_decided_since",
    "test_a_change_while_all_is_read_has_it_read_again",
    "test_a_change_whose_answer_is_lost_is_made_once_and_told_as_made",
    "test_a_directory_that_is_missing_is_damage",
    "test_a_grant_that_is_removed_meanwhile_is_granted_again_and_not_undone",
    "test_each_change_is_recorded_with_who_made_it_and_without_a_secret",
    "test_nobody_has_tokens_or_grants_before_the_first_change",
    "test_the_records_of_the_last_changes_stay_and_no_more",
    "test_two_operators_at_once_make_one_token_of_a_name",
    "test_two_operators_at_once_make_the_very_first_change_once_each",
    "test_what_one_operator_changes_another_one_reads",
]

DEADLINE_S = 60.0
PEER = "ipv4:10.0.0.9:41234"


@pytest.fixture
def new_session(metadata_uri: str) -> Iterator[Callable[[], MetadataStore]]:
    with contextlib.ExitStack() as sessions:
        yield lambda: sessions.enter_context(connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_refused(access: GrantedAccess, call: Callable[[GrantedAccess], object]) -> bool:
    try:
        call(access)
    except (AccessRefusedError, UnauthenticatedError):
        return True
    return False


def is_unavailable(call: Callable[[], object]) -> bool:
    try:
        call()
    except MetadataUnavailableError:
        return True
    return False


def test_operators_on_many_threads_lose_none_of_their_changes_and_make_each_once(
    new_session: Callable[[], MetadataStore], znodes: Znodes
) -> None:
    operators = [Operator(new_session(), znodes, f"op-{number}") for number in range(4)]
    begin = threading.Barrier(len(operators))

    def work(operator: Operator) -> int:
        begin.wait(DEADLINE_S)
        made = 0
        for number in range(5):
            operator.grant("token:etl", f"{operator.name}-{number}", Right.READ)
            with contextlib.suppress(ConfigError):
                operator.create(f"shared-{number}")
                made += 1
        return made

    with ThreadPoolExecutor(len(operators)) as pool:
        made = sum(pool.map(work, operators))
    content = operators[0].access.read()
    assert len(content.grants) == 20
    assert sorted(token.name for token in content.tokens.values()) == [f"shared-{number}" for number in range(5)]
    assert (made, content.head.number) == (5, 25)
    assert [number for number, _ in operators[0].access.changes(0, 25)] == list(range(1, 26))


def test_a_gateway_sees_tokens_grants_and_revocations_without_being_asked(
    new_session: Callable[[], MetadataStore], znodes: Znodes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bk_spark.audit")
    operator = Operator(new_session(), znodes)
    access = granted_access(new_session(), znodes)
    try:
        made = operator.create("etl")
        eventually(lambda: not is_refused(access, lambda it: it.identify(made.text, None, PEER)))
        identity = access.identify(made.text, None, PEER)
        operator.grant("token:etl", "orders*", Right.READ)
        eventually(lambda: not is_refused(access, lambda it: it.check(identity, Right.READ, "orders-1", PEER)))
        operator.revoke("etl")
        eventually(lambda: is_refused(access, lambda it: it.check(identity, Right.READ, "orders-1", PEER)))
        assert is_refused(access, lambda it: it.identify(made.text, None, PEER))

        def told() -> list[str]:
            lines = [line for line in caplog.messages if " change=" in line]
            return [line.split()[0] for line in lines]

        eventually(lambda: told() == ["event=token-created", "event=granted", "event=token-revoked"])
    finally:
        access.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[LocalCluster]:
    """A ZooKeeper that these tests may stop and suspend."""
    with LocalCluster(bookies=0) as cluster:
        yield cluster


def test_without_zookeeper_answers_hold_for_their_time_then_calls_are_unavailable_until_it_is_back(
    own_server: LocalCluster,
) -> None:
    """Never allowed on what was known long ago, and never refused as if there were no right."""
    znodes = Znodes("/ledgers")
    with contextlib.ExitStack() as sessions:
        ours, others = (
            sessions.enter_context(connect(own_server.metadata_uri, connect_timeout_s=10.0, session_timeout_s=4.0))
            for _ in range(2)
        )
        operator = Operator(others, znodes)
        made = operator.create("etl")
        operator.grant("token:etl", "orders", Right.READ)
        held = HeldAccess(StoredAccess(ours, znodes), confirm_s=0.2, hold_s=3.0)
        access = GrantedAccess(held, GatewayAudit(time.monotonic))
        sessions.callback(access.close)
        identity = access.identify(made.text, None, PEER)
        own_server.zookeeper.suspend()
        try:
            stopped_s = time.monotonic()
            eventually(lambda: is_unavailable(lambda: access.check(identity, Right.READ, "orders", PEER)))
            assert time.monotonic() - stopped_s < 3.0 + 2.0
            for call in (
                lambda: access.identify(made.text, None, PEER),
                lambda: access.identify("bks_wrong", None, PEER),
                lambda: access.check(identity, Right.MANAGE, "orders", PEER),
            ):
                assert is_unavailable(call)
        finally:
            own_server.zookeeper.resume()

        eventually(lambda: not is_unavailable(lambda: access.check(identity, Right.READ, "orders", PEER)))
