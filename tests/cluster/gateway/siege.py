"""A gateway under hostile callers: what a good caller notices meanwhile, and what the gateway's process holds."""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

from bk_spark.cli import main
from bk_spark.telemetry.audit_lines import MOST_OF_ONE
from tests.checkout import ROOT
from tests.cluster.gateway.flight_calls import command, connected, table, ticket

LIMITS = ("--stall-s", "2", "--silence-s", "2", "--max-calls-per-identity", "64")
ENDED = ("stalled", "unsaid")
"""Kinds of callers whose calls the gateway must end."""
LOG, GOOD_LOG = "besieged", "good"

MOST_THREADS = 320 + 150
"""256 calls, 64 refusals, and the threads beside them of appends and side-by-side reads of 64 hostile calls."""
MOST_MIB = 1_024
"""A gateway holds some 130 MiB without calls, up to 20 for each of the first reads, and some for each further call. Memory that
one kind of hostility freed is still there in the next one."""
BASE_FILES = 60
"""Beside one for each connection of callers."""
LINES = 12
"""Of the audit log for each kind of hostility, and for each minute that it lasts."""


@dataclass
class Held:
    """The most that a process held."""

    mib: int = 0
    threads: int = 0
    files: int = 0

    def look(self, pid: int) -> None:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        self.mib = max(self.mib, int(status["VmRSS"].split()[0]) // 1024)
        self.threads = max(self.threads, int(status["Threads"]))
        self.files = max(self.files, len(list(Path(f"/proc/{pid}/fd").iterdir())))


@dataclass
class Siege:
    """What one kind of hostility came to."""

    kind: str
    hostile: Counter[str]
    """Statuses of the hostile calls."""
    good_ms: list[float]
    """Of each append and read of the good caller meanwhile."""
    before_ms: list[float]
    """… and before."""
    failures: list[str]
    held: Held
    files_after: int
    lines: list[str] = field(default_factory=list)
    """Of the audit log."""

    def problems(self, minutes: float) -> list[str]:
        """What is not as it must be."""
        most_files = BASE_FILES + self.hostile["connections"]
        most_lines = LINES + (MOST_OF_ONE + 1 if self.kind == "garbage" else 0)  # which makes up names of logs
        found = [one for one in self.hostile if one.startswith("UNEXPECTED")]
        found += [f"the good caller failed: {one}" for one in self.failures[:3]]
        found += [] if self.good_ms else ["the good caller was not served once"]
        if self.kind in ENDED:
            found += [f"{count} calls ended as {status}" for status, count in self.hostile.items() if status != "ABORTED"]
        for what, most, value in (
            ("threads", MOST_THREADS, self.held.threads),
            ("MiB", MOST_MIB, self.held.mib),
            ("open files", most_files, self.held.files),
            ("open files afterwards", BASE_FILES + 10, self.files_after),
            ("audit lines", most_lines * (1 + int(minutes)), len(self.lines)),
        ):
            if value > most:
                found.append(f"{value} {what}, {most} at most are expected")
        return [f"{self.kind}: {one}" for one in found]

    def __str__(self) -> str:
        before, during = statistics.median(self.before_ms), statistics.median(self.good_ms or [0])
        worst = max(self.good_ms, default=0)
        told = ", ".join(f"{what} {count}" for what, count in sorted(self.hostile.items()))
        return (
            f"{self.kind}: good caller {len(self.good_ms)} calls, median {during:.0f} ms (before {before:.0f}), "
            f"worst {worst:.0f}; gateway {self.held.mib} MiB, {self.held.threads} threads, {self.held.files} files, "
            f"{self.files_after} afterwards; {len(self.lines)} audit lines; hostile: {told}"
        )


class Besieged:
    """A gateway process with tokens of a good caller and of a hostile one."""

    def __init__(self, uri: str, folder: Path) -> None:
        self._uri = uri
        self.audit_log = folder / "audit.log"
        self.good, self.hostile = self._token("good", GOOD_LOG), self._token("hostile", LOG)
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    @contextmanager
    def serving(self, *options: str, wrap: tuple[str, ...] = ()) -> Iterator[None]:
        """``wrap``: words before those of the gateway, such as of ``prlimit``."""
        words = ["gateway", "--metadata", self._uri, "--port", "0", "--json", "--audit-log", str(self.audit_log), *LIMITS]
        run = [*wrap, sys.executable, "-m", "bk_spark.cli", *words, *options]
        with subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                self.port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
                self.process = process
                yield
            finally:
                process.terminate()

    def besiege(self, kind: str, seconds: float, seed: int = 1) -> Siege:
        """Have hostile callers of one kind at it for so long."""
        assert self.process is not None, "it serves"
        lines = self._lines()
        before_ms: list[float] = []
        good = connected(self.port)
        self._serve(good, lambda: len(before_ms) < 10, before_ms)
        arguments = [kind, str(self.port), self.hostile, LOG, str(seconds), str(seed)]
        hostile = [sys.executable, "-m", "tests.cluster.gateway.hostile_callers", *arguments]
        held = Held()
        good_ms: list[float] = []
        with subprocess.Popen(hostile, cwd=ROOT, stdout=subprocess.PIPE, text=True) as callers:
            assert callers.stdout is not None
            assert callers.stdout.readline() == "ready\n"
            watched = threading.Thread(target=self._watch, args=(callers, held))
            watched.start()
            failures = self._serve(good, lambda: callers.poll() is None, good_ms)
            watched.join()
            counts = Counter(json.loads(callers.stdout.read()))
        good.close()
        after = self._files_after()
        return Siege(kind, counts, good_ms, before_ms, failures, held, after, self._lines()[len(lines) :])

    def _watch(self, callers: subprocess.Popen[str], held: Held) -> None:
        assert self.process is not None
        while callers.poll() is None:
            held.look(self.process.pid)
            time.sleep(0.05)

    def _serve(self, caller: flight.FlightClient, goes_on: Callable[[], bool], times_ms: list[float]) -> list[str]:
        """A good caller appends and reads. Gives back what failed; ``times_ms`` gets how long the others took."""
        failures: list[str] = []
        while goes_on():
            began_s = time.monotonic()
            try:
                self._append_and_read(caller)
                times_ms.append((time.monotonic() - began_s) * 1000)
            except (flight.FlightError, pa.ArrowException) as problem:
                failures.append(f"{type(problem).__name__}: {problem}")
                time.sleep(0.1)
        return failures

    def _append_and_read(self, caller: flight.FlightClient) -> None:
        rows = table(0, 100)
        options = flight.FlightCallOptions(timeout=30, headers=[(b"authorization", b"Bearer " + self.good.encode())])
        writer, answers = caller.do_put(command(log=GOOD_LOG, create=True, rows=100), rows.schema, options)
        writer.write_table(rows)
        writer.done_writing()
        answers.read()
        writer.close()
        [answer] = caller.do_action(flight.Action("show", json.dumps({"log": GOOD_LOG}).encode()), options)
        last = json.loads(answer.body.to_pybytes())["ledgers"][-1]["ledger"]
        caller.do_get(ticket(log=GOOD_LOG, start=[last, 0]), options).read_all()

    def _files_after(self) -> int:
        """Open files once its connections are closed, or after some seconds."""
        assert self.process is not None
        until_s = time.monotonic() + 20
        while True:
            held = Held()
            held.look(self.process.pid)
            if held.files <= BASE_FILES or time.monotonic() > until_s:
                return held.files
            time.sleep(0.1)

    def _lines(self) -> list[str]:
        return self.audit_log.read_text().splitlines() if self.audit_log.exists() else []

    def _token(self, name: str, log: str) -> str:
        printed, metadata = io.StringIO(), ["--metadata", self._uri]
        with contextlib.redirect_stdout(printed):
            assert main(["token", "create", name, "--never-ends", *metadata]) == 0
            granted = ["grant", "add", f"token:{name}", "--logs", log, "--right", "read,append,manage"]
            token = printed.getvalue().split()[-1]
            assert main([*granted, *metadata]) == 0
        return token
