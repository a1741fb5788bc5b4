"""One run of the tests as a table: what each test, file, fixture and worker took, and what was started for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Took:
    """Seconds of one test."""

    worker: str
    seconds: dict[str, float] = field(default_factory=dict)
    """By ``setup``, ``call`` and ``teardown``."""
    fixtures: dict[str, float] = field(default_factory=dict)
    """Within ``setup`` and ``call``, each without the fixtures that it asks for."""
    starts: dict[str, int] = field(default_factory=dict)
    """Servers by kind."""
    cpu_s: float = 0.0
    """Of the worker and of what ended meanwhile."""

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


class Table:
    """Gathers the reports of one run."""

    def __init__(self) -> None:
        self.began_s = 0.0
        self._tests: dict[str, Took] = {}
        self._spans: dict[str, tuple[float, float]] = {}
        """When each worker began its first step, and ended its last one."""

    def __len__(self) -> int:
        return len(self._tests)

    def add(self, test: str, worker: str, when: str | None, span: tuple[float, float], told: dict[str, Any]) -> None:
        """One step of a test, with what its worker told of it. Times are seconds since 1970."""
        took = self._tests.setdefault(test, Took(worker))
        took.seconds[when or "call"] = span[1] - span[0]
        took.fixtures |= told.get("fixtures", {})
        took.starts |= told.get("starts", {})
        took.cpu_s = told.get("cpu_s", took.cpu_s)
        first, last = self._spans.get(worker, span)
        self._spans[worker] = min(first, span[0]), max(last, span[1])

    def record(self, ended_s: float) -> dict[str, Any]:
        """The run as JSON. ``before_s``, ``between_s`` and ``after_s`` of a worker are the times in which it ran no test: until
        its first one, between its tests, and from its last one to the end of the run."""
        return {
            "seconds": round(ended_s - self.began_s, 1),
            "workers": {worker: self._worker(worker, ended_s) for worker in sorted(self._spans)},
            "cpu_s": round(sum(one.cpu_s for one in self._tests.values()), 1),
            "files": self._files(),
            "fixtures": self._fixtures(),
            "starts": dict(sum((Counter(one.starts) for one in self._tests.values()), Counter())),
            "tests": {test: _shown(one) for test, one in sorted(self._tests.items(), key=lambda item: -item[1].total_s)},
        }

    def _worker(self, worker: str, ended_s: float) -> dict[str, float]:
        first, last = self._spans[worker]
        busy_s = sum(one.total_s for one in self._tests.values() if one.worker == worker)
        found = {
            "before_s": first - self.began_s,
            "busy_s": busy_s,
            "between_s": last - first - busy_s,
            "after_s": ended_s - last,
        }
        return {name: round(value, 1) for name, value in found.items()}

    def _files(self) -> dict[str, list[float]]:
        """Seconds, and those of CPU."""
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for test, one in self._tests.items():
            of_file = sums[test.partition("::")[0]]
            of_file[0] += one.total_s
            of_file[1] += one.cpu_s
        return {file: [round(one, 2) for one in spent] for file, spent in sorted(sums.items(), key=lambda item: -item[1][0])}

    def _fixtures(self) -> dict[str, list[float]]:
        """Seconds, and how often it was set up."""
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        for one in self._tests.values():
            for name, took_s in one.fixtures.items():
                sums[name][0] += took_s
                sums[name][1] += 1
        return {name: [round(total, 2), count] for name, (total, count) in sorted(sums.items(), key=lambda item: -item[1][0])}


def _shown(one: Took) -> dict[str, Any]:
    shown: dict[str, Any] = {"worker": one.worker, **{when: round(took_s, 3) for when, took_s in one.seconds.items()}}
    shown["cpu_s"] = one.cpu_s
    return shown | {name: value for name, value in (("fixtures", one.fixtures), ("starts", one.starts)) if value}
