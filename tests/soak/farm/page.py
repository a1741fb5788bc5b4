"""What a farm did, on one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.soak.farm.engines import ENGINES
from tests.soak.farm.farm import Farm
from tests.soak.farm.real import Runs
from tests.soak.farm.tasks import CONTINUED, FRESH


def page(farm: Farm, real: Mapping[str, Runs], left_out: Mapping[str, str], seconds: float) -> str:
    """In Markdown. ``left_out``: engines that could not be played, and why."""
    failures = sum(map(len, farm.failures.values())) + sum(len(runs.failed) for runs in real.values())
    lines = ["# What the farm found", "", f"{seconds / 60:.0f} minutes, {failures} failures.", ""]
    lines += _table(
        ("engine", "runs", "schedules", "CPU minutes", "new states", "new states a CPU minute"),
        (_searched(farm, engine, kind) for engine in ENGINES for kind in (FRESH, CONTINUED)),
    )
    lines += ["## Deliberate bugs", ""]
    lines += _table(
        ("engine", "killed", "missed", "killed a CPU minute", "never killed here"),
        (_hunted(farm, engine) for engine in ENGINES),
    )
    lines += ["## Faults", ""]
    lines += [f"- {engine}: {_counts(faults)}" for engine, faults in farm.faults.items() if faults]
    lines += ["", "## Real processes", ""]
    for name, runs in real.items():
        lines += [f"- {name}: {runs.runs} runs, {runs.seconds / 60:.0f} minutes, {len(runs.failed)} failed. The last one:", ""]
        lines += ["```", runs.last, "```", ""]
    lines += [f"- {name} is left out: {why}" for name, why in left_out.items()]
    lines += ["", "## Failures", "", *_failures(farm, real)]
    return "\n".join(lines) + "\n"


def _searched(farm: Farm, engine: str, kind: str) -> tuple[object, ...]:
    sums = farm.sums[engine, kind]
    minutes = sums.cpu_s / 60
    rate = f"{sums.new / minutes:.0f}" if minutes else ""
    return engine, kind, sums.schedules, f"{minutes:.1f}", f"{sums.new} of {len(farm.corpora[engine].met)}", rate


def _hunted(farm: Farm, engine: str) -> tuple[object, ...]:
    hunt = farm.hunts[engine]
    minutes, killed = hunt.cpu_s / 60, sum(hunt.killed.values())
    never = sorted(hunt.missed.keys() - hunt.killed.keys())
    rate = f"{killed / minutes:.1f}" if minutes else ""
    return engine, f"{killed} ({len(hunt.killed)} different)", sum(hunt.missed.values()), rate, ", ".join(never)


def _table(heads: Sequence[str], rows: Iterable[tuple[object, ...]]) -> list[str]:
    return [_row(heads), _row(["---"] * len(heads)), *map(_row, rows), ""]


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _failures(farm: Farm, real: Mapping[str, Runs]) -> Iterator[str]:
    found = [f"- {engine}: {one}" for engine, failures in farm.failures.items() for one in failures]
    found += [f"- {name}: {file}" for name, runs in real.items() for file in runs.failed]
    yield from found or ["None."]
