"""Every Python example of README.md and docs/guide/ runs as it stands, and so does what is in examples/."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import LedgerFencedError
from bk_spark.local.cluster import LocalCluster
from tests.checkout import ROOT
from tests.cluster.topic.written_topics import WrittenTopic
from tests.unit.documented_commands import blocks
from tests.unit.documented_examples import CHECKPOINTS, GUIDE, README, STREAMING
from tests.unit.pulsar.entries import single

DEADLINE_S = 500
"""Below the limit of a test, so that what hangs says where; the longest example takes half a minute on a quiet machine."""


def _run(code: list[str], cwd: Path, given: str = "") -> str:
    """As a newcomer does it: the environment is not activated, so the first ``python3`` of PATH is another one."""
    with tempfile.TemporaryDirectory() as first:
        other = Path(first, "python3")
        other.write_text("#!/bin/sh\nexec /bin/false\n")
        other.chmod(0o755)
        environment = {**os.environ, "PATH": f"{first}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        environment.pop("PYSPARK_PYTHON", None)
        return _output([sys.executable, *code], cwd, environment, given)


def _output(command: list[str], cwd: Path, environment: dict[str, str], given: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def shown(
    cluster: LocalCluster, secured_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Page → what its examples printed and what ended them; the streaming example too. One process and one JVM run them all."""
    directory = tmp_path_factory.mktemp("examples")
    secrets = _secrets(secured_cluster, directory / "secrets")
    with BookKeeper(cluster.metadata_uri) as bookkeeper:
        for name in ("orders", "orders-retail"):
            topic = WrittenTopic(bookkeeper, f"persistent://shop/europe/{name}")
            topic.write([[single(b"apples", partition_key="customer-7")]])
    task = {
        "uri": {"*": cluster.metadata_uri, "secure.md": secured_cluster.metadata_uri},
        "secured": {"uri": secured_cluster.metadata_uri, "config": _given(secured_cluster)},
        "replaced": {"/etc/logs/": f"{secrets}/", CHECKPOINTS: f"{directory}/checkpoints/"},
    }
    found: dict[str, dict[str, Any]] = json.loads(_run(["-m", "tests.unit.documented_examples"], directory, json.dumps(task)))
    return found


def _given(secured: LocalCluster) -> dict[str, str]:
    """The settings of a client that reaches it."""
    names = ("tls_ca", "tls_certificate", "tls_key", "zookeeper_auth")
    return {name: str(getattr(secured.client_config, name)) for name in names}


def _secrets(secured: LocalCluster, directory: Path) -> Path:
    """The files that docs/guide/secure.md puts into /etc/logs."""
    directory.mkdir()
    config = secured.client_config
    files = {"ca.pem": config.tls_ca, "spark-client.pem": config.tls_certificate, "spark-client.key": config.tls_key}
    for name, path in files.items():
        shutil.copy(path, directory / name)
    (directory / "zookeeper-auth").write_text(f"{config.zookeeper_auth}\n")
    return directory


@pytest.mark.parametrize("page", [README, *GUIDE], ids=lambda page: page.name)
def test_the_examples_of_a_page_run(shown: dict[str, dict[str, Any]], page: Path) -> None:
    problem = shown[page.name]["problem"]
    assert problem is None, problem


def test_the_readme_has_a_short_program_each_for_batch_stream_entries_and_rows(shown: dict[str, dict[str, Any]]) -> None:
    programs = blocks(README.read_text(encoding="utf-8"), "python")
    assert [len(program.strip().splitlines()) <= 14 for program in programs] == [True] * 4
    for word in ("apples", "pears", "50 even numbers", "b'started'"):
        assert word in shown["README.md"]["printed"]


def test_the_demo_finds_everything_equal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert "Equal." in _run([str(ROOT / "examples" / "demo.py")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_streaming_example_has_each_row_once(shown: dict[str, dict[str, Any]]) -> None:
    example = shown[STREAMING.name]
    assert example["problem"] is None, example["problem"]
    found = re.findall(r'log "(\w+)": (\d+) rows, (\d+) different', example["printed"])
    assert [name for name, _, _ in found] == ["orders", "large"]
    assert all(rows == different for _, rows, different in found)
    assert int(found[0][1]) >= 60


# --- tail_event_log.py

PREFIX = "tailed-"


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def make_tailer(client: BookKeeper, tmp_path: Path) -> Callable[[], Any]:
    """Tailers of ``tmp_path``; each made in the place of the one before, which is not told."""
    spec = importlib.util.spec_from_file_location("tail_event_log", ROOT / "examples" / "tail_event_log.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return lambda: example.Tailer(client, tmp_path, PREFIX)


def _held(client: BookKeeper, application: str) -> list[bytes]:
    return [line for batch in client.open_log(PREFIX + application).read() for line in batch["payload"].to_pylist()]


def _advance(tailer: Any) -> None:
    while tailer.advance():
        pass


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_line_of_an_event_log_goes_out_once_its_newline_is_there(client: BookKeeper, make_tailer, tmp_path: Path) -> None:
    file, tailer = tmp_path / "partial.inprogress", make_tailer()
    _append(file, b"one\ntw")
    _advance(tailer)
    _await(lambda: _held(client, "partial") == [b"one"])
    _append(file, b"o\n\nthree\nfour")
    _advance(tailer)
    tailer.close()
    assert _held(client, "partial") == [b"one", b"two", b"", b"three"]


def test_a_tailer_goes_on_behind_what_the_log_holds_and_shuts_its_predecessor_out(
    client: BookKeeper, make_tailer, tmp_path: Path
) -> None:
    """Log rule 2: the predecessor was never told, and may still append."""
    file, first = tmp_path / "taken.inprogress", make_tailer()
    _append(file, b"one\ntwo\n")
    _advance(first)
    second = make_tailer()
    _append(file, b"three\n")
    _advance(second)
    with pytest.raises(LedgerFencedError):
        _advance(first)
    _append(file, b"four\n")
    _advance(second)
    second.close()
    assert _held(client, "taken") == [b"one", b"two", b"three", b"four"]


def test_an_event_log_that_gets_its_last_name_is_read_to_its_end_and_its_log_is_left_alone(
    client: BookKeeper, make_tailer, tmp_path: Path
) -> None:
    running, tailer = tmp_path / "ended.inprogress", make_tailer()
    _append(running, b"one\n")
    _advance(tailer)
    _append(running, b"two\n")
    running.rename(tmp_path / "ended")
    _advance(tailer)
    log = client.open_log(PREFIX + "ended")
    assert _held(client, "ended") == [b"one", b"two"]
    assert not log.snapshot().open_ledgers
    versions = len(log.versions())
    again = make_tailer()
    _advance(again)
    again.close()
    assert len(log.versions()) == versions


def test_every_application_has_a_log_of_its_own_also_one_whose_driver_was_killed(
    client: BookKeeper, make_tailer, tmp_path: Path
) -> None:
    tailer = make_tailer()
    _append(tmp_path / "killed.inprogress", b"one\nhalf a li")
    _append(tmp_path / "next.inprogress", b"two\n")
    _append(tmp_path / ".next.inprogress.crc", b"no event log\n")
    _advance(tailer)
    tailer.close()
    assert _held(client, "killed") == [b"one"]
    assert _held(client, "next") == [b"two"]
    assert not [name for name in client.list_logs() if "crc" in name]


def test_the_tailer_survives_sigkill_and_ends_with_sigterm_after_all_that_is_there(
    cluster: LocalCluster, client: BookKeeper, tmp_path: Path
) -> None:
    program = [sys.executable, str(ROOT / "examples" / "tail_event_log.py"), str(tmp_path), "--prefix", PREFIX]
    command = [*program, "--metadata", cluster.metadata_uri]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    lines = [b"line %d" % number for number in range(3000)]
    first = subprocess.Popen(command, env=environment)
    for start in range(0, 2000, 50):
        _append(tmp_path / "shot.inprogress", b"".join(line + b"\n" for line in lines[start : start + 50]))
        if start == 1000:
            _await_log(client, PREFIX + "shot")
            first.kill()
            first.wait()
    second = subprocess.Popen(command, env=environment)
    _append(tmp_path / "shot.inprogress", b"".join(line + b"\n" for line in lines[2000:]))
    _await(lambda: len(client.open_log(PREFIX + "shot").versions()) > 1)
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0
    assert _held(client, "shot") == lines


def _await_log(client: BookKeeper, log: str) -> None:
    _await(lambda: log in client.list_logs() and any(batch.num_rows for batch in client.open_log(log).read()))


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
