"""What an operator is told to do about a bookie, with the exact command."""

from __future__ import annotations

from typing import Any

import pytest

from bk_spark.bookie.admission import ORDERED
from bk_spark.dashboard.advice import START, Recovery, about_absent, about_registered
from bk_spark.replication.absent_bookies import AbsentBookie

WORKS = Recovery(is_enabled=True, has_auditor=True)


def _absent(name: str = "b1", *, has_cookie: bool = True, is_new: bool = False) -> AbsentBookie:
    return AbsentBookie(name, has_cookie, is_new, 1000, None, None, None)


def _commands(name: str = "b1", **state: Any) -> list[str]:
    return [one.command for one in about_registered(name, {"mode": "writable", "directories": [], **state})]


def test_a_lost_bookie_is_started_again_or_decommissioned() -> None:
    assert [one.command for one in about_absent(_absent(), WORKS)] == [START, "bk-spark bookie decommission b1"]


def test_what_stops_the_copying_is_said_before_the_bookie_is_given_up() -> None:
    commands = [one.command for one in about_absent(_absent(), Recovery(is_enabled=False, has_auditor=False))]
    assert commands[1:3] == ["bk-spark autorecovery enable", "bk-spark autorecovery run"]


def test_a_bookie_that_was_removed_is_neither_started_nor_decommissioned() -> None:
    assert [one.command for one in about_absent(_absent(has_cookie=False), WORKS)] == ["bk-spark underreplicated list"]


def test_a_bookie_that_was_never_started_is_started_or_its_cookie_deleted() -> None:
    assert [one.command for one in about_absent(_absent(is_new=True), WORKS)] == [START, "bk-spark cookie delete b1"]


def test_a_name_from_the_store_cannot_add_a_command_for_the_shell() -> None:
    [*_, last] = about_absent(_absent("b; rm -rf /"), WORKS)
    assert last.command == "bk-spark bookie decommission 'b; rm -rf /'"


def test_a_healthy_bookie_needs_nothing() -> None:
    assert _commands() == []


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ({"problem": "it does not answer"}, "bk-spark bookie status b1"),
        ({"failed": True}, "bk-spark cookie fix b1 --data-dir ITS_DIRECTORY"),
        ({"lapsed": True}, ""),
        ({"ids_given_out_again": True}, "bk-spark cluster raise-ledger-ids"),
        ({"limbo": True}, "bk-spark bookie limbo b1"),
        ({"mode": "read-only", "why": "too little free space in /data"}, "bk-spark bookie gc run b1"),
        ({"mode": "read-only", "why": f"this bookie is read-only: {ORDERED}"}, "bk-spark bookie read-only off b1"),
        ({"mode": "read-only", "why": ""}, "bk-spark bookie status b1"),
        ({"directories": [{"free_bytes": 9, "total_bytes": 100}]}, "bk-spark bookie gc run b1"),
    ],
)
def test_each_state_has_one_thing_to_do(state: dict[str, Any], command: str) -> None:
    assert _commands(**state) == [command]


def test_a_failed_bookie_is_not_told_to_collect_garbage_because_it_is_read_only() -> None:
    assert _commands(mode="read-only", failed=True, why="a write failed") == ["bk-spark cookie fix b1 --data-dir ITS_DIRECTORY"]


def test_a_disk_that_was_not_measured_is_not_nearly_full() -> None:
    assert _commands(directories=[{"free_bytes": 0, "total_bytes": 0}]) == []
