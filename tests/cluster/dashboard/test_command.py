"""``bk-spark dashboard`` as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bk_spark.cli import main
from tests.cluster.dashboard.lively_cluster import Lively


@contextmanager
def _running(metadata_uri: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bk_spark.cli", "dashboard", "--metadata", metadata_uri, "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_prints_its_address_serves_until_ctrl_c_and_ends_cleanly(lively: Lively) -> None:
    with _running(lively.cluster.metadata_uri, "--port", "0", "--allow-host", "dash.example") as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=10) as reply:
            assert b"bk_spark" in reply.read()
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "dash.example"}), timeout=10) as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert "Ctrl-C" in err
    assert "Traceback" not in err


def test_a_taken_port_is_one_line_and_exit_code_1(lively: Lively) -> None:
    port = str(lively.cluster.zookeeper.port)
    with _running(lively.cluster.metadata_uri, "--port", port) as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    [line] = [line for line in err.splitlines() if " INFO " not in line]
    assert f"127.0.0.1:{port}" in line


def test_help_says_what_opening_it_to_others_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["dashboard", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "listens on this machine alone" in text
    assert "0.0.0.0 shows the cluster to all who reach this machine" in text
