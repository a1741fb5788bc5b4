"""The peers are skipped with one line, and no failure, where they cannot be fetched. No test asks a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed.command import workloads_of
from tests.checkout import ROOT

NAMES = [one.name for one in workloads_of("benchmarks.peers")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The benchmarks without what was fetched for them, and a ``bin`` with Java and nothing else."""
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns(".jars", "__pycache__"))
    (tmp_path / "bin").mkdir()
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "bin" / "java").symlink_to(java)
    return tmp_path


def test_peers_are_skipped_without_maven(checkout: Path) -> None:
    for name in _one_of_each_peer():
        assert "the program mvn is needed" in _skip_line(checkout, name)


def test_peers_are_skipped_where_maven_does_not_reach_its_registry(checkout: Path) -> None:
    maven = checkout / "bin" / "mvn"
    maven.write_text("#!/bin/sh\necho '[INFO] asking'\necho '[ERROR] the registry is not reached'\nexit 1\n")
    maven.chmod(0o755)
    for name in _one_of_each_peer():
        assert "the registry is not reached" in _skip_line(checkout, name)


def _one_of_each_peer() -> list[str]:
    return [next(name for name in NAMES if name.startswith(peer)) for peer in ("kafka", "bookkeeper")]


def _skip_line(checkout: Path, name: str) -> str:
    """What is printed of the workload below its heading, which must be one line; the exit code must be 0."""
    environment = {**os.environ, "PATH": str(checkout / "bin"), "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT)])}
    command = [sys.executable, "-m", "benchmarks.peers", name, "--small"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    _, _, printed = done.stdout.partition(f"=== {name}")
    [line] = printed.splitlines()[1:]
    assert line.startswith(f"{name}: skipped: ")
    return line
