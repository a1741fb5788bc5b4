"""The ``bk-spark`` command, as a person or a script calls it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.cli import main
from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def ledger_id(cluster: LocalCluster) -> int:
    with BookKeeper(cluster.metadata_uri) as client, client.create_ledger() as writer:
        writer.append_batch([b"one", b"two", b"\x00\xff"])
        return writer.ledger_id


@pytest.fixture(scope="module")
def log_name(cluster: LocalCluster) -> str:
    with BookKeeper(cluster.metadata_uri) as client:
        with client.create_ledger() as writer:
            writer.append_batch([b"one", b"two"])
        client.open_log("cli-entries", create=True).append_ledgers([writer.ledger_id])
    return "cli-entries"


@pytest.fixture(autouse=True)
def _environment(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BK_SPARK_METADATA", cluster.metadata_uri)
    return


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main([*arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_bookie_list_shows_every_bookie_with_its_space(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    assert main(["bookie", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(bookie.bookie_id in shown for bookie in cluster.bookies)
    records = _json(capsys, "bookie", "list")
    assert {record["bookie_id"] for record in records} == {bookie.bookie_id for bookie in cluster.bookies}
    assert all(record["mode"] == "writable" and record["answers"] for record in records)
    assert all(isinstance(record["free"], int) and record["free"] > 0 for record in records)


def test_ledger_list_shows_it(capsys: pytest.CaptureFixture[str], ledger_id: int) -> None:
    [record] = [r for r in _json(capsys, "ledger", "list") if r["ledger_id"] == ledger_id]
    assert (record["state"], record["entries"], record["length"]) == ("CLOSED", 3, 8)


def test_ledger_show_prints_its_metadata_without_the_password(capsys: pytest.CaptureFixture[str], ledger_id: int) -> None:
    [record] = _json(capsys, "ledger", "show", str(ledger_id))
    assert record["quorums"] == "E=3 Qw=3 Qa=2"
    assert "password" not in record
    assert main(["ledger", "show", str(ledger_id)]) == 0


def test_ledger_read_prints_text_as_text_and_bytes_in_hexadecimal(capsys: pytest.CaptureFixture[str], ledger_id: int) -> None:
    assert main(["ledger", "read", str(ledger_id)]) == 0
    assert capsys.readouterr().out.splitlines() == ["0\tone", "1\ttwo", "2\t00ff"]
    records = _json(capsys, "ledger", "read", str(ledger_id), "--first", "1", "--last", "1")
    assert records == [{"entry_id": 1, "payload": "dHdv"}]


def test_ledger_recover_closes_what_a_vanished_writer_left_open(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster
) -> None:
    with BookKeeper(cluster.metadata_uri) as client:
        ledger_id = str(client.create_ledger(password=b"secret").ledger_id)
        writer = client.create_ledger()
        writer.append(b"one")
    assert main(["ledger", "recover", ledger_id, "--password", "wrong"]) == 1
    assert "wrong password" in capsys.readouterr().err
    [record] = _json(capsys, "ledger", "recover", ledger_id, "--password", "secret")
    assert (record["state"], record["entries"]) == ("CLOSED", 0)
    assert main(["ledger", "read", str(writer.ledger_id)]) == 0
    assert _json(capsys, "ledger", "show", str(writer.ledger_id))[0]["state"] == "OPEN"
    assert main(["ledger", "read", str(writer.ledger_id), "--recover"]) == 0
    assert capsys.readouterr().out == "0\tone\n"
    assert _json(capsys, "ledger", "show", str(writer.ledger_id))[0]["state"] == "CLOSED"


def test_ledger_delete_deletes_it(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_uri) as client, client.create_ledger() as writer:
        writer.append(b"x")
    assert main(["ledger", "delete", str(writer.ledger_id)]) == 0
    assert main(["ledger", "show", str(writer.ledger_id)]) == 1
    assert f"there is no ledger {writer.ledger_id}" in capsys.readouterr().err


def test_log_list_show_and_read(capsys: pytest.CaptureFixture[str], log_name: str) -> None:
    [record] = [r for r in _json(capsys, "log", "list") if r["log"] == log_name]
    assert (record["content"], record["version"], record["ledgers"], record["rows"]) == ("entries", 1, 1, 2)
    [shown] = _json(capsys, "log", "show", log_name)
    assert shown["version"] == 1
    assert main(["log", "read", log_name]) == 0
    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()] == ["one", "two"]


def test_log_delete_deletes_it_with_its_ledgers(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_uri) as client:
        with client.create_ledger() as writer:
            writer.append(b"x")
        client.open_log("cli-deleted", create=True).append_ledgers([writer.ledger_id])
        assert main(["log", "delete", "cli-deleted"]) == 0
        assert writer.ledger_id not in list(client.list_ledgers())
    assert main(["log", "show", "cli-deleted"]) == 1
    assert "there is no log 'cli-deleted'" in capsys.readouterr().err


def test_cluster_show_and_init(capsys: pytest.CaptureFixture[str], metadata_uri: str) -> None:
    [record] = _json(capsys, "cluster", "show")
    assert record["writable_bookies"] == 3
    assert main(["cluster", "show", "--metadata", metadata_uri]) == 1
    assert "bk-spark cluster init" in capsys.readouterr().err
    [made] = _json(capsys, "cluster", "init", "--metadata", metadata_uri)
    [found] = _json(capsys, "cluster", "show", "--metadata", metadata_uri)
    assert found["instance_id"] == made["instance_id"]


def test_bookie_format_and_id(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    [made] = _json(capsys, "bookie", "format", "--data-dir", str(tmp_path / "b"), "--port", "4000")
    [found] = _json(capsys, "bookie", "id", "--data-dir", str(tmp_path / "b"))
    assert made["bookie_id"] == found["bookie_id"]
    assert main(["bookie", "format", "--data-dir", str(tmp_path / "b")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ledger", "show", "99999"], "there is no ledger 99999"),
        (["log", "read", "nowhere"], "there is no log 'nowhere'"),
        (["bookie", "start", "--data-dir", "/nowhere"], "/nowhere"),
        (["bookie", "list", "--metadata", "nonsense"], "nonsense"),
        (["local", "--bookies", "-1"], "-1"),
    ],
)
def test_a_failure_is_one_line_on_stderr_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_without_a_cluster_the_way_to_name_one_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BK_SPARK_METADATA")
    assert main(["bookie", "list"]) == 1
    assert "BK_SPARK_METADATA" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["ledger"], ["ledger", "show", "x"], ["nonsense"], ["log", "read"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("arguments", [["--help"], ["bookie", "start", "--help"], ["log", "read", "--help"]])
def test_help_is_there(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert "usage: bk-spark" in capsys.readouterr().out


def test_doctor_finds_nothing_wrong_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    records = _json(capsys, "doctor")
    assert [record["check"] for record in records if record["result"] != "ok"] == []


def test_doctor_names_a_package_that_hides_the_format(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('broken on purpose')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "pyspark_broken" in captured.out
    assert "bk_spark.register(spark)" in captured.out


def test_local_runs_a_cluster_until_it_is_told_to_stop() -> None:
    command = [sys.executable, "-m", "bk_spark.cli", "local", "--bookies", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as local:
        assert local.stdout is not None
        record = json.loads(local.stdout.readline())
        assert main(["bookie", "list", "--metadata", record["metadata"]]) == 0
        os.kill(local.pid, signal.SIGINT)
        assert local.wait(30) == 0
    port = int(record["metadata"].rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
