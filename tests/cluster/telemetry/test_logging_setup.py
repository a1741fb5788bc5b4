"""The logs of long-running commands: their two forms, and what stands in none of them."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import re
import subprocess
import sys
import traceback
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from bk_spark import BookKeeper
from bk_spark.cli import main
from bk_spark.config import BookieConfig, DigestType
from bk_spark.entries.digest import master_key, master_key_hash
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster, bookie_command
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER, JsonFormatter, set_up_audit_log
from bk_spark.wire.messages import AdminOperation
from tests.checkout import ROOT

PASSWORD, WRONG = "Corr3ct-h0rse-battery", "Wr0ng-donkey-battery"


def test_a_record_is_one_line_of_json_with_the_time_in_utc_to_the_millisecond() -> None:
    formatter = JsonFormatter()
    record = logging.LogRecord("bk_spark.x", logging.WARNING, "x.py", 1, "two\nlines of %s", ("Grüße",), None)
    record.created, record.threadName = 1_700_000_000.0071, "sync"
    line = formatter.format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.007Z",
        "level": "WARNING",
        "logger": "bk_spark.x",
        "message": "two\nlines of Grüße",
        "thread": "sync",
    }
    formatter.bookie_id = "bookie-1"
    assert json.loads(formatter.format(record))["bookie"] == "bookie-1"


def test_an_exception_is_a_field_of_its_own() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "it failed", None, sys.exc_info())
    found = json.loads(JsonFormatter().format(record))
    assert found["message"] == "it failed"
    assert found["exception"].endswith("ValueError: broken")


PROGRAM = """
import threading, sys, warnings, logging
from bk_spark.telemetry.logging_setup import name_bookie, set_up_logging
set_up_logging(sys.argv[1] == "json")
name_bookie("bookie-1")
logging.getLogger("kazoo.client").debug("Auth(credential)")
warnings.warn("beware")
def fail(): raise ValueError("in a thread")
thread = threading.Thread(target=fail, name="worker"); thread.start(); thread.join()
raise KeyError("at the end")
"""


def _run(form: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, form], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_warnings_and_errors_that_nobody_caught_are_written_as_json_too() -> None:
    beware, thread, end = [json.loads(line) for line in _run("json").splitlines()]
    assert "beware" in beware["message"]
    assert (thread["level"], "worker" in thread["message"]) == ("CRITICAL", True)
    assert "ValueError: in a thread" in thread["exception"]
    assert "KeyError: 'at the end'" in end["exception"]
    assert {line["bookie"] for line in (beware, thread, end)} == {"bookie-1"}


def test_the_readable_form_begins_each_record_with_time_level_and_logger() -> None:
    lines = _run("readable").splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING py\.warnings ", lines[0])
    assert "credential" not in "".join(lines)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of one bookie, which logs JSON, and has an audit log of its own."""
    config = replace(DEFAULT_BOOKIE_CONFIG, audit_log=str(tmp_path_factory.mktemp("logged") / "audit.log"))

    def command(data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
        return [*bookie_command(data_dir, metadata_uri, port, config), "--log-json"]

    with mock.patch.object(local_cluster, "bookie_command", command), LocalCluster(1, bookie_config=config) as cluster:
        yield cluster


def test_every_line_that_a_bookie_logs_is_json_and_names_the_bookie_once_it_knows_itself(logged: LocalCluster) -> None:
    (bookie,) = logged.bookies
    bookie.stop()
    bookie.start()
    lines = [json.loads(line) for line in bookie.log.read_text().splitlines()]
    assert {"time", "level", "logger", "message", "thread"} <= set.intersection(*(set(line) for line in lines))
    assert any(line.get("bookie") == bookie.bookie_id and "serves on" in line["message"] for line in lines)


def test_a_command_that_fails_says_why_in_json_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bk_spark.cli", "bookie", "start", "--data-dir", str(tmp_path), "--log-json"]
    environment = {key: value for key, value in os.environ.items() if key != "BK_SPARK_METADATA"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["level"], "--metadata" in line["message"]) == ("ERROR", True)


def _spellings(password: str) -> set[str]:
    """How a password, or what is made of it, might be written."""
    secrets = [password.encode(), master_key(password.encode()), master_key_hash(master_key(password.encode()))]
    found = {password}
    for secret in secrets:
        found |= {secret.hex(), base64.b64encode(secret).decode().rstrip("="), repr(secret)[2:-1], repr(list(secret))[1:-1]}
    return found


def test_passwords_and_master_keys_stand_in_no_log_no_error_no_output_and_no_metric(
    logged: LocalCluster, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="bk_spark")
    seen = io.StringIO()
    (bookie,) = logged.bookies
    with BookKeeper(logged.metadata_uri) as client:
        writer = client.create_ledger(1, 1, 1, digest_type=DigestType.HMAC, password=PASSWORD.encode())
        writer.append(b"entry")
        ledger_id = writer.ledger_id
        for use in (
            lambda: client.open_ledger(ledger_id, WRONG.encode()),
            lambda: client.open_ledger(ledger_id, WRONG.encode(), recover=False).read_last_add_confirmed(),
        ):
            with pytest.raises(BookKeeperError) as refusal:
                use()
            seen.write(f"{refusal.value!r} {refusal.value} {refusal.value.__dict__} ")
            seen.writelines(traceback.format_exception(refusal.value))
        seen.write(f"{client!r} {writer!r} {writer.metadata!r}")
        client.open_ledger(ledger_id, PASSWORD.encode())
        with pytest.raises(BookKeeperError) as fenced:
            writer.append(b"late")
        seen.write(f"{fenced.value!r} {fenced.value}")
        (http,) = [one.http for one in client.list_bookies()]
        with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as reply:
            seen.write(reply.read().decode())
    for command in (["show", str(ledger_id)], ["read", str(ledger_id), "--password", PASSWORD], ["list"]):
        assert main(["ledger", *command, "--metadata", logged.metadata_uri, "--json"]) == 0
    assert main(["ledger", "read", str(ledger_id), "--password", WRONG, "--metadata", logged.metadata_uri]) == 1
    seen.write("".join(capsys.readouterr()))
    seen.write(caplog.text)
    seen.write(bookie.log.read_text())
    seen.write(logged.zookeeper.log.read_text())
    text = seen.getvalue()
    assert str(ledger_id) in text
    assert "password" in text  # the refusals speak of it
    assert [spelling for password in (PASSWORD, WRONG) for spelling in _spellings(password) if spelling in text] == []


@pytest.fixture
def audit() -> Iterator[logging.Logger]:
    logger = logging.getLogger(AUDIT_LOGGER)
    before = logger.level, logger.propagate, logger.handlers.copy()
    yield logger
    logger.level, logger.propagate, logger.handlers = before


@pytest.mark.parametrize("as_json", [False, True])
def test_an_audit_log_of_its_own_is_for_its_owner_alone_and_its_lines_go_nowhere_else(
    tmp_path: Path, audit: logging.Logger, as_json: bool, caplog: pytest.LogCaptureFixture
) -> None:
    set_up_audit_log(str(tmp_path / "audit.log"), as_json)
    audit.info("event=fenced ledger=%d", 7)
    (line,) = (tmp_path / "audit.log").read_text().splitlines()
    assert (json.loads(line)["message"] if as_json else line).endswith("event=fenced ledger=7")
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600
    assert caplog.messages == []


def test_an_audit_log_that_was_moved_away_is_made_anew(tmp_path: Path, audit: logging.Logger) -> None:
    path = tmp_path / "audit.log"
    set_up_audit_log(str(path), as_json=False)
    audit.info("first")
    path.rename(tmp_path / "audit.log.1")
    audit.info("second")
    assert [one.read_text().split()[-1] for one in (tmp_path / "audit.log.1", path)] == ["first", "second"]


def test_an_audit_log_that_cannot_be_opened_is_an_error_with_the_way_out(tmp_path: Path, audit: logging.Logger) -> None:
    with pytest.raises(ConfigError, match=r"audit_log \(--audit-log\) is '.*nowhere/audit.log': it cannot be written"):
        set_up_audit_log(str(tmp_path / "nowhere" / "audit.log"), as_json=False)


def test_lines_of_the_audit_log_that_are_lost_are_told_once_in_a_while(
    tmp_path: Path, audit: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    set_up_audit_log("/dev/full", as_json=False)
    for _ in range(5):
        audit.info("event=fenced ledger=7")
    (told,) = caplog.messages
    assert re.fullmatch(r"a line of the audit log /dev/full is lost: .*No space left on device", told)


def test_a_bookie_writes_its_audit_log_into_the_file_that_it_is_given(logged: LocalCluster) -> None:
    (bookie,) = logged.bookies
    path = Path(bookie.config.audit_log)
    before = len(path.read_text().splitlines())
    with BookKeeper(logged.metadata_uri) as client:
        ledger_id = client.create_ledger(1, 1, 1).ledger_id
        client.open_ledger(ledger_id)
        client.administer_bookie(bookie.bookie_id, AdminOperation.SCRUB)
    messages = [json.loads(line)["message"] for line in path.read_text().splitlines()[before:]]
    fenced, administered = [message.partition("event=")[2] for message in messages]
    assert fenced.startswith(f"fenced ledger={ledger_id} peer=127.0.0.1:")
    assert administered.startswith("administered operation=SCRUB status=OK peer=127.0.0.1:")
