"""The rows and the page of bookies."""

from __future__ import annotations

from typing import Any

from bk_spark.dashboard.bookies import MAX_MARKED, bookie_page, registered_row
from bk_spark.dashboard.cluster import ClusterLook
from bk_spark.dashboard.copies import MarksKnown
from bk_spark.dashboard.snapshots import Snapshot
from bk_spark.metadata.cookies import CookieFacts
from bk_spark.metadata.registration import ApachePort, BookieAddress, RegisteredBookie
from bk_spark.metadata.under_replication import Mark
from bk_spark.replication.absent_bookies import AbsentBookie

LIVE = RegisteredBookie("live", BookieAddress("live", "fd00::7", 3181, "/r", apache=ApachePort(3182)), False, 77)
GONE = AbsentBookie("gone", True, False, 5000, 9000, True, None)


def _cluster(**changed: Any) -> ClusterLook:
    marks = tuple(Mark(ledger_id, ("gone",), 9000, 0) for ledger_id in range(MAX_MARKED + 5))
    cookies = {"live": CookieFacts("live", 3, 9, 1, 88), "gone": CookieFacts("gone", 2, 4, 1, 5000)}
    fields = {
        "instance_id": "i",
        "registered": (LIVE,),
        "absent": (GONE, AbsentBookie("new", True, True, None, None, None, None)),
        "cookies": cookies,
        "marks": marks,
        "marked": len(marks) + 100,
        "locks": {},
        "autorecovery_enabled": True,
        "auditor": "a",
        "marks_known": MarksKnown("", 7000),
        "read_s": 0.001,
    }
    return ClusterLook(**{**fields, **changed})


def _figures(file_system: str = "boot:1") -> dict[str, Any]:
    directory = {
        "path": "/d",
        "uses": "data",
        "file_system": file_system,
        "free_bytes": 1,
        "total_bytes": 2,
        "holds_entries": False,
    }
    return {"free_bytes": 1, "total_bytes": 2, "directories": [directory], "version": "1.0"}


def test_the_page_of_a_registered_bookie_has_both_ports_its_boot_and_since_when() -> None:
    page = bookie_page(_cluster(), "live", {"live": Snapshot(_figures(), 0.1), "other": Snapshot(_figures(), 0.1)})
    assert (page["address"], page["apache_address"]) == ("[fd00::7]:3181", "[fd00::7]:3182")
    assert (page["mode"], page["registered_ms"], page["version"]) == ("writable", 77, "1.0")
    assert page["cookie"] == {"bookie_id": "live", "boot": 3, "epoch": 9, "directories": 1, "changed_ms": 88}
    assert page["shared"] == {"boot:1": ("live", "other")}
    assert (page["advice"], page["marked"]) == ([], 0)


def test_the_page_of_a_lost_bookie_says_since_when_and_lists_some_of_what_lacks_its_copies() -> None:
    page = bookie_page(_cluster(), "gone", {})
    assert (page["mode"], page["last_seen_ms"], page["marked_ms"], page["is_lost"]) == ("lost", 5000, 9000, True)
    listed = page["marked_ledgers"]
    assert isinstance(listed, list)
    assert (page["marked"], len(listed), page["marks_unread"]) == (MAX_MARKED + 5, MAX_MARKED, 100)
    assert listed[0] == {"id": "0", "marked_ms": 9000}
    assert "decommission gone" in str(page["advice"])


def test_a_bookie_that_was_never_started_is_not_lost() -> None:
    assert bookie_page(_cluster(), "new", {})["mode"] == "never started"
    assert _cluster().modes() == {"gone": "lost", "new": "never started", "live": "writable"}


def test_a_bookie_that_nothing_names_is_absent() -> None:
    assert "no bookie 'nobody'" in str(bookie_page(_cluster(), "nobody", {})["absent"])


def test_a_bookie_that_was_not_asked_yet_has_a_row_without_figures() -> None:
    row = registered_row(LIVE, None)
    assert (row["id"], row["age_s"], "free_bytes" in row) == ("live", None, False)
    assert "directories" not in registered_row(LIVE, Snapshot(_figures(), 0.1))
