"""The routes of the dashboard, asked over HTTP against a real cluster."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.dashboard.server import Dashboard
from bk_spark.errors import ConfigError
from bk_spark.metadata.store import ANY_VERSION
from tests.cluster.dashboard.lively_cluster import LOG, MARKUP, SECRET, Lively
from tests.cluster.dashboard.tiered_log import SETTING, tiered_log

MAX_ASSETS_BYTES = 66_000
MODULE_S = 6 * 3600
"""Longer than the tests of this file ever take: what they did is not older."""
ROUTES = ("cluster", "bookies", "underreplicated", "ledgers", "logs", f"log?name={LOG}", "bookie?id=b")


def _get(dashboard: Dashboard, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str, dict[str, str]]:
    address = urlsplit(dashboard.url)
    connection = http.client.HTTPConnection(str(address.hostname), int(address.port or 0), timeout=30)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        reply = connection.getresponse()
        return reply.status, reply.read().decode(), dict(reply.getheaders())
    finally:
        connection.close()


def _api(dashboard: Dashboard, route: str) -> Any:
    status, body, _ = _get(dashboard, f"/api/{route}")
    assert status == 200, body
    return json.loads(body)["value"]


def _until(ask: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (found := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def _answering(dashboard: Dashboard, count: int) -> dict[str, Any] | None:
    """The bookies by id, once so many of them have answered."""
    rows = {row["id"]: row for row in (_api(dashboard, "bookies") or {"rows": []})["rows"]}
    return rows if sum("free_bytes" in row for row in rows.values()) == count else None


def test_the_overview_counts_bookies_space_and_what_lacks_copies(dashboard: Dashboard, lively: Lively) -> None:
    value = _until(lambda: (found := _api(dashboard, "cluster")) and found["space"]["bookies"] == 3 and found)
    assert (value["writable"], value["read_only"], value["lost"], value["under_replicated"]) == (3, 0, 1, 1)
    assert value["metadata"] == lively.cluster.metadata_uri
    assert 0 < value["space"]["free_bytes"] < value["space"]["total_bytes"]
    assert (value["space"]["file_systems"], value["space"]["untold"]) == (1, 0)  # all of them are on one disk
    assert value["autorecovery_enabled"] is True
    assert (value["silent"], value["marks_known"]["why_not"]) == (0, "no auditor runs")


def test_every_bookie_is_there_and_the_lost_one_too(dashboard: Dashboard, lively: Lively) -> None:
    rows = _until(lambda: _answering(dashboard, 3))
    assert set(rows) == {bookie.bookie_id for bookie in lively.cluster.bookies}
    assert rows.pop(lively.lost)["mode"] == "lost"
    assert {row["mode"] for row in rows.values()} == {"writable"}
    assert all(row["free_bytes"] > 0 and row["metrics"] and not row["problem"] for row in rows.values())


def test_the_overview_tells_of_zookeeper_and_since_when_it_knows_of_marks(dashboard: Dashboard, lively: Lively) -> None:
    value = _until(lambda: (found := _api(dashboard, "cluster")) and found["marks"]["rows"] and found)
    zookeeper, marks = value["zookeeper"], value["marks"]
    address = f"127.0.0.1:{lively.cluster.zookeeper.port}"
    assert (zookeeper["servers"], zookeeper["server"]) == ([address], address)
    assert re.fullmatch(r"0x[0-9a-f]+", zookeeper["session_id"])
    assert 0 < zookeeper["read_s"] < zookeeper["connected_s"] <= zookeeper["session_s"]
    assert marks["rows"][-1][1] == 1
    assert 0 <= marks["known_s"] < MODULE_S


def test_a_bookie_has_a_page_with_its_ports_its_boot_and_its_disks(dashboard: Dashboard, lively: Lively) -> None:
    rows = _until(lambda: _answering(dashboard, 3))
    name = next(name for name in rows if name != lively.lost)
    value = _api(dashboard, f"bookie?id={quote(name)}")
    assert (value["id"], value["mode"], value["cookie"]["boot"]) == (name, "writable", 1)
    assert value["address"] != value["apache_address"]
    assert abs(value["registered_ms"] / 1000 - time.time()) < MODULE_S
    [directory] = value["directories"]
    assert value["shared"][directory["file_system"]] == sorted(set(rows) - {lively.lost})
    assert (value["advice"], value["marked"]) == ([], 0)


def test_a_lost_bookie_has_a_page_that_says_since_when_and_what_to_do(dashboard: Dashboard, lively: Lively) -> None:
    _until(lambda: _api(dashboard, "bookies"))
    value = _api(dashboard, f"bookie?id={quote(lively.lost)}")
    assert (value["mode"], value["cookie"]["boot"], value["is_lost"]) == ("lost", 1, None)
    assert value["last_seen_ms"] <= value["marked_ms"] <= time.time() * 1000
    assert [one["id"] for one in value["marked_ledgers"]] == [str(lively.fragmented)]
    assert f"bk-spark bookie decommission {lively.lost}" in {one["command"] for one in value["advice"]}
    assert "bk-spark autorecovery run" in {one["command"] for one in value["advice"]}


def test_ledgers_can_be_those_that_name_a_bookie(dashboard: Dashboard, lively: Lively) -> None:
    found = _api(dashboard, f"ledgers?bookie={quote(lively.lost)}&limit=499")
    named = [one for one in lively.client.list_ledgers() if lively.lost in lively.client.ledger_metadata(one).bookies]
    assert [int(row["id"]) for row in found["rows"]] == sorted(named)
    assert lively.fragmented in named


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/cluster"])
def test_a_request_under_another_host_name_is_refused_in_one_sentence(dashboard: Dashboard, path: str) -> None:
    """A page of evil.example whose name was made to resolve to this address must not read anything."""
    status, body, _ = _get(dashboard, path, host="evil.example:80")
    assert (status, "'evil.example'" in body, body.count("\n")) == (403, True, 1)
    port = urlsplit(dashboard.url).port
    assert {_get(dashboard, path, host=name)[0] for name in (f"localhost:{port}", f"[::1]:{port}", f"127.0.0.1:{port}")} == {
        200
    }


def test_a_further_host_name_is_answered_if_it_was_given(lively: Lively) -> None:
    with Dashboard(lively.client, further_hosts=["dash.example"]) as dashboard:
        assert _get(dashboard, "/", host="dash.example")[0] == 200
        assert _get(dashboard, "/", host="other.example")[0] == 403


def test_a_ledger_is_shown_with_its_fragments_and_its_custom_metadata(dashboard: Dashboard, lively: Lively) -> None:
    value = _api(dashboard, f"ledger?id={lively.fragmented}")
    assert (value["state"], value["entries"], value["last_entry_id"], value["missing"]) == ("CLOSED", 120, 119, [lively.lost])
    first, second = value["drawn"]
    assert (first["first"], first["last"] + 1, second["last"]) == (0, second["first"], 119)
    assert lively.lost in first["ensemble"]
    assert lively.lost not in second["ensemble"]
    assert {one["id"]: one["mode"] for one in value["bookies"]}[lively.lost] == "lost"
    assert {one["key"]: (one["value"], one["is_text"]) for one in value["custom"]} == {
        "note": (MARKUP, True),
        "raw": ("00ff", False),
    }


def test_an_open_ledger_has_no_end(dashboard: Dashboard, lively: Lively) -> None:
    with lively.client.create_ledger(2, 2, 2) as writer:
        writer.append(b"one")
        value = _api(dashboard, f"ledger?id={writer.ledger_id}")
    assert (value["state"], value["entries"], value["drawn"][-1]["last"]) == ("OPEN", None, None)


def test_ledgers_come_in_pages_that_join_without_gap_or_overlap(dashboard: Dashboard, lively: Lively) -> None:
    seen: list[int] = []
    after: str | None = "-1"
    while after is not None:
        page = _api(dashboard, f"ledgers?limit=5&after={after}")
        assert 1 <= len(page["rows"]) <= 5
        seen += [int(row["id"]) for row in page["rows"]]
        after = page["next"]
    assert seen == sorted(set(seen))
    assert set(seen) == set(lively.client.list_ledgers())


def test_ledgers_can_be_those_in_one_state(dashboard: Dashboard, lively: Lively) -> None:
    writer = lively.client.create_ledger(2, 2, 2)
    open_ones = _api(dashboard, "ledgers?state=OPEN&limit=499")["rows"]
    assert str(writer.ledger_id) in {row["id"] for row in open_ones}
    assert {row["state"] for row in open_ones} == {"OPEN"}
    writer.close()


def test_a_log_is_shown_with_its_ledgers_commits_and_streams(dashboard: Dashboard, lively: Lively) -> None:
    [row] = [row for row in _api(dashboard, "logs")["rows"] if row["name"] == LOG]
    assert (row["ledgers"], row["open"], row["content"], row["version"]) == (12, 0, "entries", 12)
    value = _api(dashboard, f"log?name={LOG}")
    assert [int(one["id"]) for one in value["drawn"]] == [one.ledger_id for one in lively.client.open_log(LOG).ledgers()]
    assert sum(one["bytes"] for one in value["drawn"]) == value["bytes"] == row["bytes"]
    assert [one["version"] for one in value["commits"]] == list(range(12, 0, -1))
    [stream] = value["streams"]
    assert stream["name"] == "dashboard-stream"
    assert 0 < stream["lag_rows"] < value["rows"]
    assert 0 < stream["lag_bytes"] < value["bytes"]
    assert stream["unread_since_ms"] in [one["time_ms"] for one in value["commits"]]
    assert _api(dashboard, f"ledger?id={value['drawn'][0]['id']}")["log"] == LOG


def test_logs_come_in_pages_by_name(dashboard: Dashboard, lively: Lively) -> None:
    for name in ("a-log", "z log / 100 %".replace("/", "|")):
        lively.client.open_log(name, create=True)
    first = _api(dashboard, "logs?limit=1")
    assert ([row["name"] for row in first["rows"]], first["next"]) == (["a-log"], "a-log")
    rest = _api(dashboard, f"logs?limit=2&after={quote(first['next'])}")
    assert ([row["name"] for row in rest["rows"]], rest["next"]) == ([LOG, "z log | 100 %"], None)
    assert _api(dashboard, f"log?name={quote('z log | 100 %')}")["drawn"] == []


def test_marks_say_what_is_missing_since_when_and_who_works_on_it(dashboard: Dashboard, lively: Lively) -> None:
    value = _until(lambda: _api(dashboard, "underreplicated"))
    [row] = value["rows"]
    assert (row["id"], row["missing"], row["worker"], value["count"]) == (str(lively.fragmented), [lively.lost], "worker-1", 1)
    assert abs(row["marked_ms"] / 1000 - time.time()) < MODULE_S
    assert (value["known"]["why_not"], value["lost"]) == ("no auditor runs", [lively.lost])


def test_no_route_tells_a_password(dashboard: Dashboard, lively: Lively) -> None:
    """Rule: passwords never appear in JSON or pages."""
    hidden = [SECRET.decode(), SECRET.hex(), base64.b64encode(SECRET).decode(), hashlib.sha256(SECRET).hexdigest()]
    for path in ("/", "/app.js", *(f"/api/{route}" for route in (*ROUTES, f"ledger?id={lively.fragmented}"))):
        _, body, _ = _get(dashboard, path)
        assert not [secret for secret in hidden if secret in body], path
    assert lively.client.ledger_metadata(lively.fragmented).password == SECRET


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(dashboard: Dashboard, method: str) -> None:
    assert _get(dashboard, "/api/cluster", method)[0] == 405


@pytest.mark.parametrize(
    ("route", "named"),
    [
        ("ledger", "id is missing"),
        ("ledger?id=", "id is missing"),
        ("ledger?id=-1", "'-1'"),
        ("ledger?id=%C2%B2", "whole number"),
        ("ledger?id=9223372036854775808", "9223372036854775807"),
        ("ledgers?limit=501", "'501'"),
        ("ledgers?limit=0", "'0'"),
        ("ledgers?after=x", "'x'"),
        ("ledgers?state=closed", "OPEN, IN_RECOVERY, CLOSED"),
        ("logs?limit=1e3", "'1e3'"),
        ("log", "name is missing"),
        ("bookie", "id is missing"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(dashboard: Dashboard, route: str, named: str) -> None:
    status, body, _ = _get(dashboard, f"/api/{route}")
    assert (status, named in json.loads(body)["problem"]) == (400, True)


@pytest.mark.parametrize(
    ("route", "named"),
    [
        ("ledger?id=424242", "424242"),
        ("log?name=nobody", "nobody"),
        ("log?name=%2E%2E", "log name"),
        ("bookie?id=nobody", "nobody"),
    ],
)
def test_what_is_not_there_is_told_as_such(dashboard: Dashboard, route: str, named: str) -> None:
    status, body, _ = _get(dashboard, f"/api/{route}")
    assert (status, named in json.loads(body)["value"]["absent"]) == (404, True)


def test_the_page_comes_in_one_request_with_the_newest_overview_and_lets_only_its_own_script_run(dashboard: Dashboard) -> None:
    _until(lambda: _api(dashboard, "cluster"))
    status, page, headers = _get(dashboard, "/")
    assert status == 200
    embedded = re.search(r'<script id="first" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1])["value"]["lost"] == 1
    policy = headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'; script-src 'self';" in policy
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)


def _tiers(dashboard: Dashboard) -> dict[str, Any]:
    """Of each log, as the page of logs has it."""
    return {row["name"]: row["tier"] for row in (_api(dashboard, "logs") or {"rows": []})["rows"]}


def test_the_tier_of_a_log_is_told_with_what_its_table_has_what_waits_and_what_left_the_bookies(
    dashboard: Dashboard, lively: Lively
) -> None:
    with tiered_log(lively.client, "tiered", waiting=2) as tier:
        found = _until(lambda: (log := _api(dashboard, "log?name=tiered")) and log["tier"])
        assert _until(lambda: _tiers(dashboard).get("tiered")) == found
        assert (found["table"], found["location"], found["problem"], found["behind"]) == (tier.table, tier.location, "", False)
        assert (found["tiered"]["ledgers"], found["tiered"]["rows"]) == (3, 30)
        assert found["released"] == found["tiered"]
        assert (found["waiting"]["ledgers"], found["waiting"]["rows"]) == (2, 20)
        assert 0 <= time.time() - found["since_ms"] / 1000 < 300
        assert _api(dashboard, f"log?name={LOG}")["tier"] is None
        assert SETTING not in json.dumps(_api(dashboard, "logs"))


def test_a_tier_that_cannot_be_read_is_told_and_holds_up_no_other_log(dashboard: Dashboard, lively: Lively) -> None:
    with tiered_log(lively.client, "damaged"):
        paths = lively.client.logs.names.paths(lively.client.logs.names.uid("damaged"))
        lively.client.metadata_store.set(paths.tier_settings, b"{", ANY_VERSION)
        problem = _until(lambda: (_tiers(dashboard).get("damaged") or {}).get("problem"))
        assert "the settings of the tier of log 'damaged'" in problem
        assert _tiers(dashboard)[LOG] is None


def test_the_page_and_its_script_are_light(dashboard: Dashboard) -> None:
    assert sum(len(_get(dashboard, path)[1].encode()) for path in ("/", "/app.js")) < MAX_ASSETS_BYTES


def test_a_taken_port_is_one_clear_sentence(dashboard: Dashboard, lively: Lively) -> None:
    port = int(urlsplit(dashboard.url).port or 0)
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        Dashboard(lively.client, port=port)


def test_a_dashboard_leaves_no_thread_behind_and_the_client_open(lively: Lively) -> None:
    with Dashboard(lively.client) as dashboard:
        assert _get(dashboard, "/api/logs")[0] == 200
    assert isinstance(lively.client, BookKeeper)
    assert lively.client.list_logs()
