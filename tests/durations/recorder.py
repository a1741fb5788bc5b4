"""The plugin: in each worker it adds what each test took to its report, and where the run is led it writes the table.

A table is written at the end of every run of more than one test into build/durations/latest.json; see ``table.py``.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.checkout import ROOT
from tests.durations.starts import Starts
from tests.durations.table import Table

NAME = "durations"
LATEST = ROOT / "build" / "durations" / "latest.json"


class Worker:
    """Where tests run."""

    def __init__(self) -> None:
        self._starts = Starts()
        self._fixtures: dict[str, float] = {}
        self._inner_s = 0.0
        """Of the fixtures that were set up within the one that is set up now."""
        self._cpu_s = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        before_s, self._inner_s = self._inner_s, 0.0
        began_s = time.perf_counter()
        try:
            return (yield)
        finally:
            took_s = time.perf_counter() - began_s
            name = fixturedef.argname
            self._fixtures[name] = self._fixtures.get(name, 0.0) + took_s - self._inner_s
            self._inner_s = before_s + took_s

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        if call.when == "teardown":
            fixtures = {name: round(took_s, 4) for name, took_s in self._fixtures.items() if took_s >= 0.001}
            before_s, self._cpu_s = self._cpu_s, _cpu_s()
            told = {"fixtures": fixtures, "starts": self._starts.take(), "cpu_s": round(self._cpu_s - before_s, 4)}
            item.user_properties.append((NAME, told))
            self._fixtures, self._inner_s = {}, 0.0
        return (yield)


def _cpu_s() -> float:
    """Of this process and of its children that have ended: a server counts for the test at whose end it is stopped."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


class Leader:
    """Where the reports of all workers arrive."""

    def __init__(self) -> None:
        self._table = Table()

    def pytest_sessionstart(self) -> None:
        self._table.began_s = time.time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worker = getattr(getattr(report, "node", None), "gateway", None)
        self._table.add(
            report.nodeid,
            "main" if worker is None else worker.id,
            report.when,
            (report.start, report.stop),
            dict(report.user_properties).get(NAME, {}),
        )

    def pytest_sessionfinish(self) -> None:
        if len(self._table) > 1:
            LATEST.parent.mkdir(parents=True, exist_ok=True)
            LATEST.write_text(json.dumps(self._table.record(time.time()), indent=0))


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Worker(), "durations of a worker")
    if not is_worker:
        config.pluginmanager.register(Leader(), "durations of a run")
