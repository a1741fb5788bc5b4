"""Whether a unit test kills a mutant that no engine kills: the tests that reach its lines are run against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.checkout import ROOT
from tests.simulation.generated.pytest_plugin import MUTANT, REACH
from tests.simulation.generated.sites import Site

TESTS = ("tests/unit/client", "tests/unit/bookie")

MOST_TESTS = 2_000
"""For one mutant; those of the module's own test files come first, then those of its package. A line that more tests reach is
in everybody's way."""

SECONDS_A_TEST = 30
"""A unit test takes less than one; a mutant may make it wait for ever."""


def kills(sites: Sequence[Site], processes: int) -> Iterator[tuple[Site, str]]:
    """Each site, and how the tests against it ended; "" if it survives."""
    reach = _reach()
    with ThreadPoolExecutor(processes) as pool:
        yield from zip(sites, pool.map(lambda site: _killer(site, _tests_of(site, reach)), sites), strict=True)


def _reach() -> dict[str, dict[str, list[str]]]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "reach.json"
        _pytest(TESTS, **{REACH: str(file)})
        reach: dict[str, dict[str, list[str]]] = json.loads(file.read_text())
        return reach


def _tests_of(site: Site, reach: dict[str, dict[str, list[str]]]) -> list[str]:
    lines = reach.get(site.path, {})
    found = {test for line in site.lines for test in lines.get(str(line), ()) if test}
    package, module = Path(site.path).parent.name, Path(site.path).stem

    def rank(test: str) -> tuple[bool, bool, str]:
        file = Path(test.split("::")[0])
        return module not in file.stem, file.parent.name != package, test

    return sorted(found, key=rank)[:MOST_TESTS]


def _killer(site: Site, tests: list[str]) -> str:
    if not tests:
        return ""
    ended = _pytest(["-x", *tests], **{MUTANT: f"{site.path}:{site.number}"})
    assert "ERROR: not found" not in ended.stderr, f"a test of {site.name} cannot be named again: {ended.stderr}"
    return ended.stdout.strip().rpartition("\n")[2] if ended.returncode else ""


def _pytest(arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout",
        str(SECONDS_A_TEST),
        "-p",
        "tests.simulation.generated.pytest_plugin",
    )
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    env = {**os.environ, "CI": "true", **environment}
    return subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
