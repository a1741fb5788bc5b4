"""``bk-spark tier`` and ``bk-spark log set --tier-…``, run for real."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow as pa

from bk_spark import BookKeeperError, CorruptionError, Tier
from bk_spark.cli import main
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.telemetry.metrics import TIER
from tests.checkout import ROOT

PATIENCE_S = 240.0


def test_a_log_gets_a_tier_and_is_tiered_by_commands(run, fails, client, log, tmp_path: Path, capsys) -> None:
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
    capsys.readouterr()
    main(["tier", "run", "--all", "--json"])  # other tests' logs may have tiers that are gone
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["released_ledgers"] for one in reports if one["log"] == log] == [1]
    client.append_rows(log, pa.table({"id": range(7)}))
    [shown] = run("log", "show", log)
    assert (shown["tiered_ledgers"], shown["tiered_rows"], shown["tier_lag_rows"]) == (1, 100, 7)
    assert (shown["released_ledgers"], shown["released_bytes"], shown["tiered_bytes"] > 0) == (1, shown["tiered_bytes"], True)
    assert shown["tier_waits_since"].endswith("+00:00")
    assert len(run("log", "read", log, "--limit", "1000")) == 107
    [deleted] = run("log", "delete", log, "--drop-table")
    assert (deleted["table"], deleted["table_dropped"]) == (f"shop.{log.replace('-', '_')}", True)
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_a_log_without_a_tier_is_told_how_to_get_one(fails, client, log) -> None:
    client.append_rows(log, pa.table({"id": range(3)}), create=True)
    assert f"the tier of log '{log}' is missing: set one first" in fails(1, "tier", "run", log)


def test_a_location_that_is_none_is_refused_in_one_sentence(fails, client, log) -> None:
    client.append_rows(log, pa.table({"id": range(3)}), create=True)
    told = fails(1, "log", "set", log, "--tier-location", "/data", "--tier-table", "shop.orders")
    assert "the location of a tier is '/data': it must be the address of a folder" in told


def test_a_server_tiers_what_is_due_until_it_is_told_to_end(cluster, client, log, tmp_path: Path) -> None:
    for name, after_s in ((log, 0), (f"{log}-later", 100_000)):
        client.append_rows(name, pa.table({"id": range(10)}), create=True)
        table = f"served.{name.replace('-', '_')}"
        client.open_log(name).set_tier(Tier(f"file://{tmp_path}/lake", table, tier_after_s=after_s, keep_on_bookies_s=0))

    def on_bookies(name: str) -> int:
        return len(client.existing_ledgers([one.ledger_id for one in client.open_log(name).ledgers()]))

    arguments = [sys.executable, "-m", "bk_spark.cli", "tier", "serve", "--interval-s", "0.2"]
    environment = {**os.environ, "BK_SPARK_METADATA": cluster.metadata_uri}
    with subprocess.Popen(arguments, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            for _ in range(2):  # what comes later is tiered, too
                while on_bookies(log) and time.monotonic() < deadline_s:
                    time.sleep(0.1)
                assert on_bookies(log) == 0
                client.append_rows(log, pa.table({"id": range(10)}))
        finally:
            server.send_signal(signal.SIGTERM)
            told = server.communicate(timeout=PATIENCE_S)[1]
        assert server.returncode == 0, told
    assert f"log '{log}': 10 rows of 1 ledgers were tiered, 1 ledgers left the bookies" in told
    assert on_bookies(f"{log}-later") == 1


def test_a_log_that_somebody_else_tiers_is_left_to_them(client, log, tmp_path: Path) -> None:
    from bk_spark.lake.serve import TierServer

    client.append_rows(log, pa.table({"id": range(10)}), create=True)
    opened = client.open_log(log)
    opened.set_tier(Tier(f"file://{tmp_path}/lake", f"served.{log.replace('-', '_')}", tier_after_s=0, keep_on_bookies_s=0))
    worker = client.logs.names.paths(opened.uid).tier_worker
    client.metadata_store.create(worker, b"another", ephemeral=True)
    tried: list[tuple[str, BookKeeperError | None]] = []
    server = TierServer(client.logs, "me", client.log_opener, lambda *one: tried.append(one))
    server.tier(log, opened.uid)
    assert tried == [(log, None)]
    assert client.existing_ledgers([one.ledger_id for one in opened.ledgers()])
    client.metadata_store.delete(worker, 0)
    server.tier(log, opened.uid)
    assert not client.existing_ledgers([one.ledger_id for one in opened.ledgers()])
    assert tried == [(log, None)] * 2
    client.metadata_store.set(client.logs.names.paths(opened.uid).tier_settings, b"{", ANY_VERSION)
    server.tier(log, opened.uid)
    assert isinstance(tried[-1][1], CorruptionError)


def test_a_disk_that_takes_no_whole_file_is_named_keeps_no_rest_and_costs_no_row(cluster, client, log, tmp_path: Path) -> None:
    """A limit for the size of a file stands for a full disk: the kernel refuses a write in the middle of one."""
    client.append_rows(log, pa.table({"text": [os.urandom(50).hex() for _ in range(5000)]}), create=True)
    client.open_log(log).set_tier(Tier(f"file://{tmp_path}/lake", "shop.full", keep_on_bookies_s=0))
    command = [sys.executable, "-m", "bk_spark.cli", "tier", "run", log, "--metadata", cluster.metadata_uri]
    limited = ["bash", "-c", 'ulimit -f 64; exec "$@"', "-", *command]
    failed = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert failed.returncode == 1
    [told] = failed.stderr.splitlines()
    assert f"writing file://{tmp_path}/lake/data/" in told
    assert "File too large" in told
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    assert client.open_log(log).read_rows().read_all().num_rows == 5000
    assert client.tier_log(log).released.rows == 5000
    assert client.open_log(log).read_rows().read_all().num_rows == 5000


def test_a_run_counts_what_it_did_in_the_metrics_of_its_process(client, log, tmp_path: Path) -> None:
    names = ("rows", "ledgers", "steps", "files_written", "ledgers_released", "bytes", "released_bytes", "file_bytes_written")

    def counted() -> dict[str, float]:
        return {name: TIER.get_sample_value(f"bk_spark_tier_{name}_total") or 0.0 for name in names}

    for number in range(2):
        client.append_rows(log, pa.table({"id": range(10 * number, 10 * number + 10)}), create=True)
    opened = client.open_log(log)
    opened.set_tier(Tier(f"file://{tmp_path}/lake", f"served.{log.replace('-', '_')}", keep_on_bookies_s=0))
    before = counted()
    client.tier_log(log)
    done = {name: count - before[name] for name, count in counted().items()}
    nbytes = sum(one.length for one in opened.ledgers())
    [file] = (tmp_path / "lake").rglob("*.parquet")
    assert done == {
        "rows": 20,
        "ledgers": 2,
        "steps": 1,
        "files_written": 1,
        "ledgers_released": 2,
        "bytes": nbytes,
        "released_bytes": nbytes,
        "file_bytes_written": file.stat().st_size,
    }
    client.tier_log(log)
    assert {name: count - before[name] for name, count in counted().items()} == done


def test_a_server_tells_how_far_tiers_are_and_which_of_them_it_fails_to_tier(cluster, client, log, tmp_path: Path) -> None:
    for name in (log, f"{log}-broken"):
        client.append_rows(name, pa.table({"id": range(10)}), create=True)
        table = f"served.{name.replace('-', '_')}"
        tier = Tier(f"file://{tmp_path}/{name}", table, tier_after_s=0, keep_on_bookies_s=0)
        client.open_log(name).set_tier(tier)
    (tmp_path / f"{log}-broken" / "_catalog.db").write_bytes(b"no database")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["tier", "serve", "--interval-s", "0.2", "--http-port", str(port)]
    environment = {**os.environ, "BK_SPARK_METADATA": cluster.metadata_uri}
    command = [sys.executable, "-m", "bk_spark.cli", *arguments]

    def asked(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            return str(answer.read().decode())

    def figures() -> dict[str, float]:
        try:
            samples = [one.rpartition(" ") for one in asked("metrics").splitlines() if one.startswith("bk_spark_tier_")]
        except OSError:
            return {}  # it does not serve yet
        return {name.removeprefix("bk_spark_tier_"): float(value) for name, _, value in samples}

    failing = f'log_failures{{log="{log}-broken"}}'
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while (found := figures()).get(failing, 0) < 2 or found.get("rows_total", 0) < 10:
                assert time.monotonic() < deadline_s, found
                time.sleep(0.1)
            assert asked("health") == "alive\n"
        finally:
            server.send_signal(signal.SIGTERM)
            told = server.communicate(timeout=PATIENCE_S)[1]
    assert server.returncode == 0, told
    assert found["logs"] >= 2
    assert found["waiting_rows"] >= 10
    assert found["lag_seconds"] > 0
    assert found["looked_seconds"] < 30
    assert (found["failing_logs"] >= 1, found["failures_total"] >= 2) == (True, True)
    assert f'log_failures{{log="{log}"}}' not in found
