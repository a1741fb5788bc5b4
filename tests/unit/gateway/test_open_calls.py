"""Limits of calls: counted for each identity, given back, paced together."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from bk_spark.errors import AccessRefusedError, GatewayBusyError
from bk_spark.gateway.calls.call_watch import CallWatch
from bk_spark.gateway.calls.open_calls import GatewayCalls, OpenCall
from bk_spark.gateway.rights import CallerIdentity
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.telemetry.audit_lines import MOST_KINDS, MOST_OF_ONE, TELL_S
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER


class Context:
    """gRPC's, as far as it is used."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._rpc_event = self.call = self

    def is_active(self) -> bool:
        return not self.ended

    def cancel(self, code: int, details: str) -> None:
        self.ended.append(details)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _call(calls: GatewayCalls, name: str = "a") -> OpenCall:
    return OpenCall("DoGet", "ipv4:1.2.3.4:5", CallerIdentity("token", name), Context(), calls)


def test_calls_are_limited_in_all_and_for_each_identity_and_are_given_back() -> None:
    calls = GatewayCalls(GatewayConfig(max_calls=3, max_calls_per_identity=2))
    first, second = _call(calls), _call(calls)
    calls.begin(first)
    calls.begin(second)
    with pytest.raises(GatewayBusyError, match="token:a has 2 calls open"):
        calls.begin(_call(calls))
    calls.begin(_call(calls, "b"))
    with pytest.raises(GatewayBusyError, match="3 calls are open"):
        calls.begin(_call(calls, "c"))
    calls.end(first)
    calls.end(first)
    calls.begin(_call(calls))
    assert len(calls.all()) == 3


def test_tails_are_limited_for_each_identity_and_are_given_back() -> None:
    calls = GatewayCalls(GatewayConfig(max_tails_per_identity=1))
    first, second = _call(calls), _call(calls)
    for call in (first, second):
        calls.begin(call)
    calls.begin_tail(first)
    with pytest.raises(GatewayBusyError, match="token:a has 1 tails open"):
        calls.begin_tail(second)
    calls.end(first)
    calls.begin_tail(second)


def test_a_call_that_was_refused_gives_nothing_back() -> None:
    calls = GatewayCalls(GatewayConfig(max_calls_per_identity=1))
    calls.begin(_call(calls))
    refused = _call(calls)
    with pytest.raises(GatewayBusyError):
        calls.begin(refused)
    calls.end(refused)
    with pytest.raises(GatewayBusyError):
        calls.begin(_call(calls))


def test_a_rate_counts_all_calls_of_one_identity_and_no_others() -> None:
    clock = Clock()
    calls = GatewayCalls(GatewayConfig(bytes_per_s=1000), clock)
    first, second, other = _call(calls), _call(calls), _call(calls, "b")
    for call in (first, second, other):
        calls.begin(call)
    assert calls.wait_s(first.identity, 500) == pytest.approx(0.5, abs=0.01)
    assert calls.wait_s(second.identity, 500) == pytest.approx(1.0, abs=0.01)
    assert calls.wait_s(other.identity, 0) == 0
    clock.now_s += 1.0
    assert calls.wait_s(first.identity, 0) == 0


def test_without_a_rate_nobody_waits() -> None:
    calls = GatewayCalls(GatewayConfig())
    call = _call(calls)
    calls.begin(call)
    assert calls.wait_s(call.identity, 1 << 40) == 0


def test_a_gateway_that_stops_takes_no_call_and_open_ones_end_at_their_next_look() -> None:
    calls = GatewayCalls(GatewayConfig())
    call = _call(calls)
    calls.begin(call)
    calls.stop()
    with pytest.raises(GatewayBusyError, match="it stops"):
        call.look()
    with pytest.raises(GatewayBusyError, match="it stops"):
        calls.begin(_call(calls))


def test_a_call_whose_caller_stands_still_is_named_once_and_then_ended(caplog) -> None:
    clock = Clock()
    calls = GatewayCalls(GatewayConfig(), clock)
    watch, stalled, busy = CallWatch(calls, 100.0), _call(calls), _call(calls)
    for call in (stalled, busy):
        calls.begin(call)
    with stalled.waiting_for_caller():
        for passed_s in (10.0, 20.0, 10.0):
            clock.now_s += passed_s
            watch.look()
        assert [record.message.count("has stood still for 30 s") for record in caplog.records] == [1]
        assert stalled.context.is_active()
        clock.now_s += 60.0
        watch.look()
        watch.look()
    assert stalled.context.ended == ["the gateway ended this call: its caller took nothing for 100 s"]
    assert busy.context.ended == []


def test_a_call_that_waits_for_its_caller_ends_with_the_right_to_it() -> None:
    clock = Clock()
    calls = GatewayCalls(GatewayConfig(), clock)
    call = _call(calls)
    calls.begin(call)

    def refuse() -> None:
        raise AccessRefusedError("token:a", "read", "orders")

    call.check = refuse
    with call.waiting_for_caller():
        clock.now_s += 2.0
        CallWatch(calls, 100.0).look()
    assert "token:a has no right to read log 'orders'" in call.context.ended[0]


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the audit log was told since the last call."""
    caplog.set_level(logging.INFO, AUDIT_LOGGER)

    def lines() -> list[str]:
        found = [one.message for one in caplog.records if one.name == AUDIT_LOGGER]
        caplog.clear()
        return found

    return lines


def test_each_limit_that_a_call_reaches_has_an_audit_line_with_its_name_and_then_is_counted(audited) -> None:
    clock = Clock()
    calls = GatewayCalls(GatewayConfig(max_calls=3, max_calls_per_identity=2, max_tails_per_identity=1), clock)
    first, second, other = _call(calls), _call(calls), _call(calls, "b")
    for call in (first, second):
        calls.begin(call)
    with pytest.raises(GatewayBusyError):
        calls.begin(_call(calls))
    calls.begin(other)
    for _ in range(5):
        with pytest.raises(GatewayBusyError):
            calls.begin(_call(calls, "c"))
    first.log = second.log = "orders"
    calls.begin_tail(first)
    with pytest.raises(GatewayBusyError):
        calls.begin_tail(second)
    full = 'event=limited limit=max_calls identity="token:c" peer=1.2.3.4:5 certificate=none'
    assert audited() == [
        'event=limited limit=max_calls_per_identity identity="token:a" peer=1.2.3.4:5 certificate=none',
        full,
        'event=limited limit=max_tails_per_identity identity="token:a" log="orders" peer=1.2.3.4:5 certificate=none',
    ]
    clock.now_s += TELL_S
    calls.audit.tick()
    assert audited() == [f"{full} times=4 within_s=60"]


def test_a_caller_that_is_slowed_down_by_its_rate_is_told_once_a_minute(audited) -> None:
    clock = Clock()
    calls = GatewayCalls(GatewayConfig(bytes_per_s=1000), clock)
    call = OpenCall("DoGet", "ipv4:1.2.3.4:5", CallerIdentity("certificate", "etl"), Context(), calls, "orders")
    calls.begin(call)
    call.check = lambda: setattr(clock, "now_s", clock.now_s + 1.0)
    for _ in range(3):
        call.pace(20)
    line = 'event=limited limit=bytes_per_s identity="certificate:etl" log="orders" peer=1.2.3.4:5 certificate="etl"'
    assert audited() == [line]
    calls.audit.close()
    assert audited() == [f"{line} times=2 within_s=60"]


def test_a_reader_that_is_ended_because_it_stands_still_has_one_audit_line(audited) -> None:
    clock = Clock()
    calls = GatewayCalls(GatewayConfig(), clock)
    watch, call = CallWatch(calls, 100.0), _call(calls)
    calls.begin(call)
    with call.waiting_for_caller():
        clock.now_s += 100.0
        watch.look()
        watch.look()
    assert audited() == ['event=limited limit=stall_s identity="token:a" peer=1.2.3.4:5 certificate=none']
    calls.audit.close()
    assert audited() == []


def test_one_caller_at_his_limits_has_fifty_kinds_of_lines_however_many_logs_he_reads(audited) -> None:
    calls = GatewayCalls(GatewayConfig())
    for number in range(2 * MOST_OF_ONE):
        calls.audit.reached("bytes_per_s", CallerIdentity("token", "etl"), "ipv4:1.2.3.4:5", f"log-{number}")
    assert len(audited()) == MOST_OF_ONE + 1


def test_callers_at_their_limits_cannot_fill_the_audit_log(audited) -> None:
    calls = GatewayCalls(GatewayConfig(max_calls=1))
    calls.begin(_call(calls))
    for number in range(MOST_KINDS + 500):
        with pytest.raises(GatewayBusyError):
            calls.begin(_call(calls, f"name-{number}"))
    assert len(audited()) == MOST_KINDS + 1
