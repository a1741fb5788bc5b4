"""Runs Apache's test classes, each in a JVM of its own, and reads what became of each test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.java_classes import compile_java

JAVA_SOURCES = Path(__file__).resolve().parent / "java"

_OPENED = ("java.base/java.io", "java.base/java.nio", "java.base/java.util.zip", "java.base/jdk.internal.misc")
SMALL_JVM = (
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
"""A JVM that starts fast and stays small: it lives for a few tests."""

SILENCE_S = 1000.0
"""A test ends by itself after three times two minutes, few after three times five: later than this it never will."""

POLL_S = 0.2

MOST_JVMS = 12
"""After a test that never ends the others of its class go on in a new JVM, this many times at most."""


CLASS = "(class)"
"""The name of what failed when a class could not be run at all."""


@dataclass(frozen=True)
class SuiteTest:
    """A test class in Apache's jar."""

    name: str
    has_bookies: bool
    """Whether it starts bookies by way of the class that is replaced."""
    tests: tuple[str, ...]
    """Names of its tests, with those of their parameters."""

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(method_of(test) for test in self.tests)


@dataclass(frozen=True)
class Result:
    class_name: str
    test: str
    """The method, with its parameters where it has some."""
    outcome: str
    """PASSED, FAILED or SKIPPED."""
    ms: int
    problem: str = ""
    """The first line of what failed."""
    tries: int = 1


@dataclass(frozen=True)
class Suite:
    """The compiled harness, and what starts a bookie."""

    java: str
    class_path: str
    """Jars, the harness's first."""
    files: Path
    """A directory with what tests read, such as keys."""
    hosts: Path
    """Names of hosts, for the JVM of the tests."""
    bookie_command: Sequence[str]

    def tests_of(self, jar: Path) -> dict[str, SuiteTest]:
        """All test classes of a jar by name."""
        command = [self.java, *SMALL_JVM, "-cp", self.class_path, "apachesuite.ListTests", str(jar)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
        rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
        return {name: SuiteTest(name, kind == "cluster", tuple(tests)) for name, kind, *tests in rows}

    def run(self, class_name: str, directory: Path, names: Sequence[str]) -> list[Result]:
        """Run these methods, or tests, of a class. ``directory`` is new, and gets logs and files."""
        results: list[Result] = []
        for number in range(MOST_JVMS):
            place = directory / f"jvm-{number + 1}"
            place.mkdir(parents=True)
            found, is_done = self._run_once(class_name, place, names, [result.test for result in results])
            results += found
            if is_done or not found:
                break
        return results

    def _run_once(self, class_name: str, place: Path, names: Sequence[str], ended: Sequence[str]) -> tuple[list[Result], bool]:
        """The results without those that ``ended`` before, and whether the JVM ended by itself.

        Otherwise the test that was under way has failed.
        """
        lines = place / "results"
        command = [self.java, *SMALL_JVM, "-Xmx512m", "-XX:MaxDirectMemorySize=512m", f"-Djava.io.tmpdir={place}"]
        command += [f"-Djdk.net.hosts.file={self.hosts}", "-Dapachesuite.bookie=" + "\n".join(self.bookie_command)]
        command += ["-cp", f"{self.files}{os.pathsep}{self.class_path}"]
        with _group([*command, "apachesuite.SuiteRunner", str(lines), class_name, ",".join(names), *ended], place) as process:
            is_done = _await_end(process, lines)
        results = read_results(class_name, lines, "" if is_done else f"no result within {SILENCE_S:g} s: the JVM was killed")
        if process.returncode != 0 and is_done and not results:
            results = [Result(class_name, CLASS, "FAILED", 0, _last_line(place / "log"))]
        return results, is_done


def method_of(test: str) -> str:
    """A test's name without its parameters."""
    return re.sub(r"\[.*", "", test)


def merge(first: Sequence[Result], again: Sequence[Result]) -> list[Result]:
    """The results after what failed was run once more."""
    later = {result.test: replace(result, tries=2) for result in again}
    passed = [result for result in first if result.outcome != "FAILED"]
    lost = [result for result in first if result.outcome == "FAILED" and result.test not in later and result.test != CLASS]
    return [*passed, *lost, *later.values()]


def compile_harness(class_path: str, directory: Path) -> Path:
    """A jar of the harness's classes in ``directory``."""
    classes = directory / "classes"
    compile_java(JAVA_SOURCES, class_path, classes)
    archive = Path(shutil.make_archive(str(directory / "harness"), "zip", classes))
    return archive.rename(archive.with_suffix(".jar"))


def extract_files(jar: Path, directory: Path) -> Path:
    """The files of a jar that are no classes: tests take their paths."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if not name.endswith((".class", "/")) and not name.startswith("META-INF")]
        archive.extractall(directory, names)
    return directory


def write_hosts(file: Path) -> Path:
    """Names for the tests: this machine's own is the loopback interface's, so that no bookie can be reached from outside."""
    file.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    return file


@contextmanager
def _group(command: Sequence[str], place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose children, bookies that are suspended among them, end with the context."""
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=place, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _await_end(process: subprocess.Popen[bytes], lines: Path) -> bool:
    """False if the tests went silent for too long."""
    size, heard = -1, time.monotonic()
    while process.poll() is None:
        now = lines.stat().st_size if lines.exists() else 0
        if now != size:
            size, heard = now, time.monotonic()
        if time.monotonic() - heard > SILENCE_S:
            return False
        time.sleep(POLL_S)
    return True


def read_results(class_name: str, lines: Path, interruption: str) -> list[Result]:
    """The results in a runner's file. A test that began and did not end has failed because of ``interruption``."""
    results: dict[str, Result] = {}
    begun = ""
    for line in lines.read_text().splitlines() if lines.exists() else []:
        test, outcome, ms, problem = line.split("\t")
        if outcome == "BEGUN":
            begun = test
        else:
            results[test] = Result(class_name, test, outcome, int(ms), problem)
    if begun and begun not in results:
        problem = interruption or "the JVM ended in this test"
        results[begun] = Result(class_name, begun, "FAILED", 0, problem)
    return list(results.values())


def _last_line(log: Path) -> str:
    text = log.read_text(errors="replace").strip()
    return text.splitlines()[-1] if text else "the JVM ended without a word"
