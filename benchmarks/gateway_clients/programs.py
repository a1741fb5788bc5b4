"""The clients in Java and Go: built once, and run as programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import java_command
from tests.interop.gateway_clients import SOURCES
from tests.interop.go_toolchain import go_program
from tests.java_classes import compile_java

_HERE = Path(__file__).parent
_JVM = ("-Xmx512m", "-XX:MaxDirectMemorySize=3g", "--add-opens=java.base/java.nio=ALL-UNNAMED")
"""Ten million rows wait outside of the heap."""
_CALL_S = 1800.0


@dataclass(frozen=True, slots=True)
class Program:
    """May be called as the functions of ``in_python.py`` are."""

    command: Sequence[str]

    def __call__(self, _: str, address: str, what: str, log: str, rows: int, commits: int) -> float:
        words = [*self.command, address, what, log, str(rows), str(commits)]
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_CALL_S, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words[-6:])} failed: {done.stderr[-2000:]}")
        return float(done.stdout)


def in_java(directory: Path) -> Program:
    """Raises SkippedError where Java or Arrow's jars are not to be had."""
    *java, class_path = java_command(_JVM, SOURCES / "java" / "pom.xml")
    compile_java(_HERE / "java", class_path, directory)
    return Program([*java, os.pathsep.join([str(directory), class_path]), "GatewayBench"])


def in_go(directory: Path) -> Program:
    """Raises SkippedError where Go or its modules are not to be had."""
    go_program(_HERE / "go", directory / "gateway-bench")
    return Program([str(directory / "gateway-bench")])
