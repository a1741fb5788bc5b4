"""The ``bk-spark`` command, as a person or a script calls it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bk_spark.bookie.identity.cookie_file import BootNumber, DirectoryPlace, StoredCookie, encode_stored
from bk_spark.bookie.log_files.record import RecordKind
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.commands import doctor
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.metadata.under_replication import UnderReplication


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
    assert {record["bookie_id"] for record in records} >= {bookie.bookie_id for bookie in cluster.bookies}
    running = [record for record in records if record["mode"] == "writable"]
    assert [record["bookie_id"] for record in running] == sorted(bookie.bookie_id for bookie in cluster.bookies)
    assert all(isinstance(record["free"], int) and record["free"] > 0 and record["answers"] for record in running)
    assert all(abs(float(str(record["registered_ms"])) / 1000 - time.time()) < 3600 for record in running)


@pytest.fixture
def absent(cluster: LocalCluster) -> Iterator[dict[str, str]]:
    """What a bookie that is lost, one of Apache's, and one that was removed leave in the metadata store."""
    ids = {"lost": "lost:1-cli", "apache": "apache:2-cli", "removed": "removed:3-cli"}
    with BookKeeper(cluster.metadata_uri) as client:
        store, znodes, marks = client.metadata_store, client.znodes, UnderReplication(client.metadata_store, client.znodes)
        text = '4\nbookieHost: "lost:1-cli"\ninstanceId: "i"\n'
        cookie = StoredCookie(ids["lost"], "i", (DirectoryPlace("data", "d1"),), BootNumber(3, "token", 7), text)
        store.create(znodes.cookie(ids["lost"]), encode_stored(cookie))
        store.create(znodes.cookie(ids["apache"]), text.encode())
        marks.mark(4_000_000, [ids["removed"]])
        try:
            yield ids
        finally:
            for name in ("lost", "apache"):
                store.delete(znodes.cookie(ids[name]), ANY_VERSION)
            mark = marks.mark_of(4_000_000)
            assert mark is not None
            marks.remove(mark)


def test_bookie_list_shows_lost_bookies_and_since_when_as_far_as_that_is_known(
    capsys: pytest.CaptureFixture[str], absent: dict[str, str]
) -> None:
    records = {record["bookie_id"]: record for record in _json(capsys, "bookie", "list")}
    lost, apache, removed = (records[absent[name]] for name in ("lost", "apache", "removed"))
    assert {one["mode"] for one in (lost, apache, removed)} == {"lost"}
    assert (lost["has_cookie"], removed["has_cookie"], lost["answers"]) == (True, False, False)
    assert abs(float(str(lost["last_seen_ms"])) / 1000 - time.time()) < 600
    assert (apache["last_seen_ms"], apache["marked_ms"], removed["last_seen_ms"]) == (None, None, None)
    assert abs(float(str(removed["marked_ms"])) / 1000 - time.time()) < 600
    assert main(["bookie", "list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert re.search(r"lost +after \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", lines[absent["lost"]])
    assert re.search(r"lost +unknown ", lines[absent["apache"]])
    assert re.search(r"lost +before \d{4}-", lines[absent["removed"]])


def test_cookie_list_shows_every_bookie_that_was_ever_formatted(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster, absent: dict[str, str], tmp_path: Path
) -> None:
    [made] = _json(capsys, "bookie", "format", "--data-dir", str(tmp_path / "b"))
    records = {str(record["bookie_id"]): record for record in _json(capsys, "cookie", "list")}
    assert {records[bookie.bookie_id]["mode"] for bookie in cluster.bookies} == {"writable"}
    new, lost, apache = (records[name] for name in (str(made["bookie_id"]), absent["lost"], absent["apache"]))
    assert (new["mode"], new["boot"], new["last_seen_ms"], new["directories"]) == ("never started", 0, None, 1)
    assert (lost["mode"], lost["boot"], lost["epoch"], lost["kind"]) == ("lost", 3, 7, "bk_spark")
    assert (apache["mode"], apache["boot"], apache["kind"]) == ("lost", None, "other")
    assert absent["removed"] not in records
    assert _json(capsys, "cookie", "delete", str(made["bookie_id"]))
    assert main(["cookie", "list"]) == 0
    assert str(made["bookie_id"]) not in capsys.readouterr().out


def test_the_garbage_collection_of_a_bookie_is_suspended_resumed_and_run_by_command(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster
) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    [suspended] = _json(capsys, "bookie", "gc", "suspend", bookie_id)
    assert (suspended["bookie_id"], suspended["is_suspended"]) == (bookie_id, 1)
    [resumed] = _json(capsys, "bookie", "gc", "resume", bookie_id)
    assert resumed["is_suspended"] == 0
    runs = resumed["runs"]
    _json(capsys, "bookie", "gc", "run", bookie_id)
    deadline = time.monotonic() + 30
    while _json(capsys, "bookie", "gc", "status", bookie_id)[0]["runs"] == runs:
        assert time.monotonic() < deadline


def test_a_bookie_scrubs_by_command_and_tells_its_state(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    [scrub] = _json(capsys, "bookie", "scrub", bookie_id)
    assert scrub["bookie_id"] == bookie_id
    [status] = _json(capsys, "bookie", "status", bookie_id)
    assert [status[name] for name in ("read_only", "failed", "limbo")] == [0, 0, 0]


def test_the_limbo_of_a_bookie_is_shown_and_ended_by_command(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    assert _json(capsys, "bookie", "limbo", bookie_id) == []
    assert main(["bookie", "limbo", bookie_id]) == 0
    assert f"bookie {bookie_id} is not in limbo" in "".join(capsys.readouterr())
    with pytest.raises(SystemExit, match="2"):
        main(["bookie", "limbo", bookie_id, "--end", "5"])
    assert "give --accept-loss, too" in capsys.readouterr().err
    assert main(["bookie", "limbo", bookie_id, "--end", "5", "--accept-loss"]) == 1
    assert "is not in limbo" in capsys.readouterr().err


def test_an_operation_of_a_bookie_that_is_not_there_fails_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bookie", "gc", "run", "nobody"]) == 1
    assert "'nobody'" in capsys.readouterr().err


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
    assert capsys.readouterr().out.splitlines() == ["0\tone", "1\ttwo", "2\t0x00ff"]
    records = _json(capsys, "ledger", "read", str(ledger_id), "--first", "1", "--last", "1")
    assert records == [{"entry_id": 1, "payload": "dHdv"}]


def test_ledger_read_refuses_a_range_that_ends_before_it_starts(capsys: pytest.CaptureFixture[str], ledger_id: int) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["ledger", "read", str(ledger_id), "--first", "1", "--last", "0"])
    assert "--last 0 is before --first 1" in capsys.readouterr().err


def test_ledger_recover_closes_what_a_vanished_writer_left_open(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster, tmp_path: Path
) -> None:
    with BookKeeper(cluster.metadata_uri) as client:
        ledger_id = str(client.create_ledger(password=b"secret").ledger_id)
        writer = client.create_ledger()
        writer.append(b"one")
    assert main(["ledger", "recover", ledger_id, "--password", "wrong"]) == 1
    assert "wrong password" in capsys.readouterr().err
    file = tmp_path / "password"
    file.touch(mode=0o600)
    file.write_text("secret\n")
    [record] = _json(capsys, "ledger", "recover", ledger_id, "--password-file", str(file))
    assert (record["state"], record["entries"]) == ("CLOSED", 0)
    assert main(["ledger", "read", str(writer.ledger_id)]) == 0
    assert capsys.readouterr().out in ("", "0\tone\n")  # as far as it is known to be confirmed
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
    assert (shown["version"], shown["partition_key"], shown["lanes"]) == (1, [], 1)
    assert main(["log", "read", log_name]) == 0
    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()] == ["one", "two"]


def test_log_show_names_the_key_and_the_lanes(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_uri) as client:
        log = client.open_log("cli-lanes", create=True)
        log.append_rows(pa.table({"customer": ["a", "b"], "day": [1, 2]}), partition_key=["customer", "day"], lanes=3)
    [shown] = _json(capsys, "log", "show", "cli-lanes")
    assert (shown["partition_key"], shown["lanes"]) == (["customer", "day"], 3)
    assert {ledger["lane"] for ledger in shown["in_ledgers"]} <= {0, 1, 2}
    assert main(["log", "show", "cli-lanes"]) == 0
    text = capsys.readouterr().out
    assert "3 lanes by customer, day" in text
    assert re.search(r"LEDGER_ID +LANE +STATE", text)


def test_log_delete_deletes_it_with_its_ledgers(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_uri) as client:
        with client.create_ledger() as writer:
            writer.append(b"x")
        client.open_log("cli-deleted", create=True).append_ledgers([writer.ledger_id])
        deleted = {"log": "cli-deleted", "deleted": True, "ledgers": 1, "rows": 1}
        assert _json(capsys, "log", "delete", "cli-deleted") == [deleted]
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
    assert found["members"] == ["world:anyone"]


def test_an_open_cluster_is_protected_by_command(capsys: pytest.CaptureFixture[str], metadata_uri: str, tmp_path: Path) -> None:
    (tmp_path / "auth").write_text("digest:ann:s3cret")
    (tmp_path / "auth").chmod(0o600)
    cluster = ["--metadata", metadata_uri]
    _json(capsys, "cluster", "init", *cluster)
    assert main(["cluster", "protect", *cluster]) == 1
    assert "whoever protects a cluster must be one of its members" in capsys.readouterr().err
    member = [*cluster, "--zookeeper-auth-file", str(tmp_path / "auth")]
    [done] = _json(capsys, "cluster", "protect", *member, "--member", "digest:bob:ZkhDbDOxcsOtSzqxm2TE0G4Wc3Q=")
    assert [one.partition(":")[2].partition(":")[0] for one in done["members"]] == ["ann", "bob"]
    assert done["changed"] > 5
    assert main(["cluster", "show", *cluster]) == 1
    assert "ZooKeeper refuses access" in capsys.readouterr().err
    [again] = _json(capsys, "cluster", "protect", *member, "--member", "digest:bob:ZkhDbDOxcsOtSzqxm2TE0G4Wc3Q=")
    assert again == {**done, "changed": 0}


def test_bookie_format_and_id(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    [made] = _json(capsys, "bookie", "format", "--data-dir", str(tmp_path / "b"), "--port", "4000")
    [found] = _json(capsys, "bookie", "id", "--data-dir", str(tmp_path / "b"))
    assert made["bookie_id"] == found["bookie_id"]
    assert main(["bookie", "format", "--data-dir", str(tmp_path / "b")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_bookie_format_and_start_take_a_file_of_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bookie.toml").write_text(f'journal_dirs = "{tmp_path}/j"\nread_thread = 1\n')
    arguments = ["--data-dir", str(tmp_path / "b"), "--config", str(tmp_path / "bookie.toml")]
    assert main(["bookie", "start", *arguments]) == 1
    assert "is 'read_thread': there is none of this name" in capsys.readouterr().err
    (tmp_path / "bookie.toml").write_text(f'journal_dirs = "{tmp_path}/j"')
    [made] = _json(capsys, "bookie", "format", *arguments)
    records = _json(capsys, "cookie", "show", str(made["bookie_id"]), *arguments)
    assert [record["use"] for record in records] == ["data", "entry_log-0", "journal-0", "data entry_log-0", "journal-0"]


def test_cookie_show_fix_and_delete(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data_dir = tmp_path / "b"
    [made] = _json(capsys, "bookie", "format", "--data-dir", str(data_dir))
    arguments = [str(made["bookie_id"]), "--data-dir", str(data_dir)]
    *stored, directory = _json(capsys, "cookie", "show", *arguments)
    assert {record["boot"] for record in stored} == {"0"} == {directory["boot"]}
    assert {record["directory_id"] for record in stored} == {directory["directory_id"]}
    assert _json(capsys, "cookie", "fix", *arguments)[0]["repaired"] == "nothing, all fits"
    shutil.rmtree(data_dir)
    data_dir.mkdir()
    *_, problem = _json(capsys, "cookie", "show", *arguments)
    assert "it is empty" in str(problem["state"])
    [fixed] = _json(capsys, "cookie", "fix", *arguments)
    assert "starts in limbo" in str(fixed["consequence"])
    *stored, directory = _json(capsys, "cookie", "show", *arguments)
    assert ({record["boot"] for record in stored}, directory["boot"], directory["state"]) == ({"1"}, "1", "running")
    [deleted] = _json(capsys, "cookie", "delete", str(made["bookie_id"]))
    assert "its directories start no more" in str(deleted["consequence"])
    assert main(["cookie", "delete", str(made["bookie_id"])]) == 1
    assert "there is no cookie of it" in capsys.readouterr().err
    assert main(["bookie", "start", "--data-dir", str(data_dir)]) == 1
    assert "was removed from the cluster" in capsys.readouterr().err


def test_an_empty_directory_is_not_given_to_a_bookie_id_that_nothing_knows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["cookie", "fix", "no-such-bookie", "--data-dir", str(tmp_path)]) == 1
    assert "the bookie id is 'no-such-bookie': there is no cookie of it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_cookie_of_a_running_bookie_is_shown_and_neither_fixed_nor_deleted(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster
) -> None:
    bookie = cluster.bookies[0]
    arguments = [bookie.bookie_id, "--data-dir", str(bookie.data_dir)]
    *_, directory = _json(capsys, "cookie", "show", *arguments)
    assert directory["state"] == "running"
    assert main(["cookie", "fix", *arguments]) == 1
    assert "another process uses it: stop that one first" in capsys.readouterr().err
    assert main(["cookie", "delete", bookie.bookie_id]) == 1
    assert f"is registered at {bookie.address}: stop it first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ledger", "show", "99999"], "there is no ledger 99999"),
        (["log", "read", "nowhere"], "there is no log 'nowhere'"),
        (["bookie", "start", "--data-dir", "/nowhere"], "/nowhere"),
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


def test_what_names_no_cluster_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bookie", "list", "--metadata", "nonsense"])
    assert "--metadata 'nonsense' names no cluster: write it as zk://host:port" in capsys.readouterr().err


def test_without_a_cluster_the_way_to_name_one_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BK_SPARK_METADATA")
    with pytest.raises(SystemExit) as ended:
        main(["bookie", "list"])
    assert ended.value.code == 2
    assert "BK_SPARK_METADATA" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["ledger"], ["ledger", "show", "x"], ["nonsense"], ["log", "read"], ["local", "--bookies", "-1"]]
)
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
    for name in ("_java", "_workers", "_stream_start"):  # which start programs
        monkeypatch.setattr(doctor, name, lambda name=name: doctor.Diagnosis(name, True, ""))
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('broken on purpose')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "pyspark_broken" in captured.out
    assert "bk_spark.register(spark)" in captured.out


@pytest.mark.nightly(
    held_by="tests/cluster/local/test_directories.py::test_a_bookie_of_the_command_that_dies_is_named_and_started_again"
)
def test_local_runs_a_cluster_until_it_is_told_to_stop() -> None:
    command = [sys.executable, "-m", "bk_spark.cli", "local", "--bookies", "1", "--json"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=buffered) as local:
        assert local.stdout is not None
        record = json.loads(local.stdout.readline())
        assert main(["bookie", "list", "--metadata", record["metadata"]]) == 0
        os.kill(local.pid, signal.SIGINT)
        assert local.wait(30) == 0
    port = int(record["metadata"].rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def _data_dir(cluster: LocalCluster) -> Path:
    return Path(cluster.data_dir) / "bookie-1" / "data"


@pytest.mark.parametrize("name", ["journal", "entry-log", "index", "mark"])
def test_inspect_shows_the_files_of_a_running_bookie_as_text_and_as_json(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster, ledger_id: int, name: str
) -> None:
    with BookKeeper(cluster.metadata_uri) as client, client.create_ledger() as writer:
        writer.append(bytes(100_000))  # large enough for the entry log
    arguments = ["inspect", name, "--data-dir", str(_data_dir(cluster))]
    records = _json(capsys, *arguments)
    assert main(arguments) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == len(records) > 0
    assert all(line.startswith(str(record["what"])) for line, record in zip(shown, records, strict=True))
    assert "problem" not in {key for record in records for key in record}


def test_inspect_shows_each_record_of_a_file_with_its_damage_and_the_total(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster, ledger_id: int, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(_data_dir(cluster), copy)
    arguments = ["inspect", "journal", "--data-dir", str(copy), "--records"]
    whole = _json(capsys, *arguments)
    first = next(record for record in whole if record["what"] == RecordKind.BATCH.name)
    journal = next(path for path in sorted((copy / "journal").iterdir()) if str(path) == whole[0]["path"])
    with journal.open("r+b") as file:
        file.seek(int(str(first["offset"])))
        file.write(b"damage")
    records = _json(capsys, *arguments, "--file", str(int(journal.stem)))
    (damage,) = (record for record in records if record["what"] == "damage")
    assert damage["offset"] == first["offset"]
    assert (records[-1]["what"], records[-1]["damaged_bytes"]) == (
        "total",
        int(str(damage["end"])) - int(str(damage["offset"])),
    )
    (note,) = _json(capsys, *arguments, "--file", "999")
    assert (note["what"], note["problem"]) == ("note", f"there is no such file in {copy / 'journal'}")
    assert {record["what"] for record in _json(capsys, *arguments[:-1])} == {"file", "damage", "total"}


def test_inspect_index_shows_one_ledger_with_its_rows_and_damage_as_a_line(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster, ledger_id: int, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(_data_dir(cluster), copy)
    records = _json(capsys, "inspect", "index", "--data-dir", str(copy), "--verify")
    assert records[-1] == {"what": "tallies", "fit": True, "rows_read": "all"}
    index = copy / "index" / "ledgers.sqlite"
    index.write_bytes(index.read_bytes()[:5000])
    (damage,) = _json(capsys, "inspect", "index", "--data-dir", str(copy))
    assert damage["what"] == "damage"


def test_inspect_index_of_a_ledger_that_is_not_there_says_so_and_shows_no_other_one(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster
) -> None:
    with BookKeeper(cluster.metadata_uri) as client, client.create_ledger() as empty, client.create_ledger() as writer:
        writer.append(bytes(100_000))
    cluster.bookies[0].stop()  # which flushes: the later ledger is in the index
    cluster.bookies[0].start()
    arguments = ["inspect", "index", "--data-dir", str(_data_dir(cluster)), "--ledger", str(empty.ledger_id)]
    records = _json(capsys, *arguments)
    assert [record["problem"] for record in records if record["what"] == "note"] == ["the index has no such ledger"]
    assert not {"ledger", "row"} & {record["what"] for record in records}


def test_inspect_of_a_directory_that_is_not_there_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["inspect", "mark", "--data-dir", str(tmp_path / "none")]) == 1
    assert "there is no such directory" in capsys.readouterr().err


def test_sanity_holds_a_stopped_bookie_against_the_metadata_store(
    capsys: pytest.CaptureFixture[str], cluster: LocalCluster
) -> None:
    bookie, sanity = cluster.bookies[0], ["bookie", "sanity", "--data-dir", str(_data_dir(cluster))]
    assert main(sanity) == 1
    assert "another process uses it" in capsys.readouterr().err
    bookie.stop()
    try:
        *checks, start = _json(capsys, *sanity)
    finally:
        bookie.start()
    assert [check["state"] for check in checks] == ["right"] * 4
    assert start["state"] == "serves everything at once"


def test_rebuild_index_is_refused_while_the_bookie_runs(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    assert main(["bookie", "rebuild-index", "--data-dir", str(_data_dir(cluster))]) == 1
    assert "another process uses it" in capsys.readouterr().err


def test_a_bookie_whose_index_was_lost_and_rebuilt_comes_back_through_limbo(capsys: pytest.CaptureFixture[str]) -> None:
    """Storage rule 13, with real processes: what it kept is served, and it settles itself with the other replicas."""
    with LocalCluster(bookies=2) as cluster, BookKeeper(cluster.metadata_uri) as client:
        with client.create_ledger(2, 2, 2) as writer:
            writer.append_batch([b"one", b"two"])
        data_dir = str(_data_dir(cluster))
        bookie, *others = cluster.bookies
        bookie.stop()
        shutil.rmtree(Path(data_dir) / "index")
        (totals,) = _json(capsys, "bookie", "rebuild-index", "--data-dir", data_dir)
        assert totals["skipped_places"] == 0
        bookie.start()
        deadline = time.monotonic() + 120  # on a machine that others share
        while any(record["what"] == "limbo" for record in _json(capsys, "inspect", "mark", "--data-dir", data_dir)):
            assert time.monotonic() < deadline
        log = (Path(data_dir).parent / "log" / "bookie-1.log").read_text()
        assert "the index is another one than the bookie ran with" in log
        for other in others:
            other.stop()
        with client.open_ledger(writer.ledger_id) as reader:
            found = [payload for batch in reader.read(0, 1) for payload in batch.column("payload").to_pylist()]
    assert found == [b"one", b"two"]
