"""A standalone Spark cluster on this machine: a master, two workers that Spark takes for two hosts, and an application.

Spark never runs a speculative attempt on the host of the first one; 127.0.0.1 and 127.0.0.2 are two hosts to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyspark

from tests.checkout import ROOT
from tests.unit.datasource.batches import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
APPLICATION = Path(__file__).with_name("standalone_app.py")
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Quick to start, which most of the time here goes into."""
START_S = 120.0

_GUARD = """\
import os, signal, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
while os.getppid() == int(sys.argv[1]):
    try:
        sys.exit(child.wait(1))
    except subprocess.TimeoutExpired:
        pass
os.killpg(0, signal.SIGKILL)
"""
"""Leads a session. Should the test run, whose process id is argv[1], be cut short, it ends what it started."""


def environment() -> dict[str, str]:
    """For every process of the cluster: bk_spark is found in the checkout, and all use this interpreter."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    daemons = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_NO_DAEMONIZE": "1"}
    return {**os.environ, **daemons, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}


class Session:
    """A process and all that it starts, also what moves to a process group of its own, as Spark's Python daemons do."""

    def __init__(self, command: list[str], output: IO[str], **streams: Any) -> None:
        streams = {"stdout": output, **streams}
        guarded = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]
        place = Path(output.name).parent
        self.process = subprocess.Popen(
            guarded, env=environment(), stderr=output, text=True, start_new_session=True, cwd=place, **streams
        )

    def members(self) -> list[int]:
        """Their process ids, without those that only wait to be reaped."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state, _, _, session = (directory / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    found.append(int(directory.name))
        return found

    def kill(self) -> None:
        """SIGKILL to all of them, until none is left."""

        def none_is_left() -> bool:
            for process_id in self.members():
                kill(process_id)
            return not self.members()

        wait_until(none_is_left)
        self.process.wait()


def kill(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)


class StandaloneSpark:
    """Master and workers, all registered when this is made. ``url`` is what an application takes as its master.

    ``cores`` is of each worker.
    """

    def __init__(self, directory: Path, cores: int = 1) -> None:
        self._directory = directory
        self._undo = contextlib.ExitStack()
        port, self._page = free_port(), free_port()
        self.url = f"spark://{HOSTS[0]}:{port}"
        with contextlib.ExitStack() as undo:
            undo.callback(self._undo.close)
            self._start("master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", str(self._page))
            wait_until(lambda: self._alive() is not None, START_S)
            for host in HOSTS:
                place = ["--host", host, "--work-dir", str(directory / host), "--webui-port", "0"]
                self._start("worker.Worker", *place, "--cores", str(cores), "--memory", "1g", self.url)
            wait_until(lambda: self._alive() == sorted(HOSTS), START_S)
            undo.pop_all()

    def close(self) -> None:
        """Stop all processes, the executors too."""
        self._undo.close()

    def _start(self, name: str, *arguments: str) -> None:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        output = self._undo.enter_context((self._directory / f"{name}-{len(list(self._directory.iterdir()))}.log").open("w"))
        session = Session([str(spark_class), f"org.apache.spark.deploy.{name}", *arguments], output)
        self._undo.callback(session.kill)

    def _alive(self) -> list[str] | None:
        """The hosts of the workers, None while the master does not answer. At first its page is empty."""
        try:
            with urllib.request.urlopen(f"http://{HOSTS[0]}:{self._page}/json/", timeout=5) as page:
                workers = json.load(page)["workers"]
        except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
            return None
        return sorted(worker["host"] for worker in workers if worker["state"] == "ALIVE")


class Application:
    """A Spark application that does what it is told, one thing after the other: see standalone_app.py."""

    def __init__(self, master: str, metadata_uri: str, directory: Path) -> None:
        self.directory = directory
        self._errors = (directory / "application.log").open("w+")
        command = [sys.executable, str(APPLICATION), master, metadata_uri, str(directory)]
        self._session = Session(command, self._errors, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, what: str, *arguments: Any) -> None:
        """Tell it to do something; ``result`` waits for the end."""
        commands = self._session.process.stdin
        assert commands is not None
        commands.write(json.dumps([what, *arguments]) + "\n")
        commands.flush()

    def result(self) -> Any:
        """What came of it. pytest's time limit bounds the wait."""
        answers = self._session.process.stdout
        assert answers is not None
        for line in answers:
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        self._errors.seek(0)
        raise AssertionError("the application failed:\n" + self._errors.read()[-5000:])

    def run(self, what: str, *arguments: Any) -> Any:
        self.begin(what, *arguments)
        return self.result()

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and its Python processes."""
        self._session.kill()
        self._errors.close()


@contextlib.contextmanager
def running_application(metadata_uri: str, directory: Path) -> Iterator[Application]:
    """An application on a cluster of its own."""
    cluster = StandaloneSpark(directory)
    with contextlib.closing(cluster):
        application = Application(cluster.url, metadata_uri, directory)
        try:
            yield application
        finally:
            application.kill()


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOSTS[0], 0))
        return int(one.getsockname()[1])
