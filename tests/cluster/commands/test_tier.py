"""``bk-spark tier`` and ``bk-spark log set --tier-…``, run for real."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


def test_a_log_gets_a_tier_and_is_tiered_by_commands(run, fails, client, log, tmp_path: Path) -> None:
    client.append_rows(log, pa.table({"id": range(100)}), create=True)
    assert "give --tier-location and --tier-table, too" in fails(2, "log", "set", log, "--tier-after-s", "5")
    where = ["--tier-location", f"file://{tmp_path}/lake", "--tier-table", f"shop.{log.replace('-', '_')}"]
    [settings] = run("log", "set", log, *where)
    assert (settings["tier_location"], settings["tier_keep_on_bookies_s"]) == (f"file://{tmp_path}/lake", 86_400)
    [report] = run("tier", "run", log)
    assert (report["tiered_ledgers"], report["tiered_rows"], report["released_ledgers"], report["waiting_ledgers"]) == (
        1,
        100,
        0,
        1,
    )
    run("log", "set", log, "--tier-keep-on-bookies-s", "0")
    assert [(one["log"], one["released_ledgers"]) for one in run("tier", "run", "--all") if one["log"] == log] == [(log, 1)]
    client.append_rows(log, pa.table({"id": range(7)}))
    [shown] = run("log", "show", log)
    assert (shown["tiered_ledgers"], shown["tiered_rows"], shown["tier_lag_rows"]) == (1, 100, 7)
    assert len(run("log", "read", log, "--limit", "1000")) == 107


def test_a_log_without_a_tier_is_told_how_to_get_one(fails, client, log) -> None:
    client.append_rows(log, pa.table({"id": range(3)}), create=True)
    assert f"the tier of log '{log}' is missing: set one first" in fails(1, "tier", "run", log)


def test_a_location_that_is_none_is_refused_in_one_sentence(fails, client, log) -> None:
    client.append_rows(log, pa.table({"id": range(3)}), create=True)
    told = fails(1, "log", "set", log, "--tier-location", "/data", "--tier-table", "shop.orders")
    assert "the location of a tier is '/data': it must be the address of a folder" in told
