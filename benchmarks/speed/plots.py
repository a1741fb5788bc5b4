"""Drawings of results, as SVG: the same results give the same file."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.speed.measure import Claim, Sample

matplotlib.rcParams.update({"svg.hashsalt": "bk_spark", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

WIDTH_INCHES = 8.0
BAR_INCHES = 0.32
OURS, OTHERS, MISSED = "#2a6f97", "#a9b4bd", "#c1666b"


def draw_samples(samples: Mapping[str, Sequence[Sample]], path: Path) -> None:
    """A bar for each contestant: its median, with a line from the lowest to the highest."""
    label, value = _measure(samples)
    names = list(samples)
    values = [[value(one) for one in samples[name]] for name in names]
    medians = [statistics.median(each) for each in values]
    spread = [
        [median - min(each) for median, each in zip(medians, values, strict=True)],
        [max(each) - median for median, each in zip(medians, values, strict=True)],
    ]
    others = any(name.startswith("bk_spark") for name in names)
    colours = [OTHERS if others and not name.startswith("bk_spark") else OURS for name in names]
    axes = _axes(len(names))
    axes.barh(names, medians, xerr=spread, color=colours, error_kw={"elinewidth": 1, "ecolor": "#333333"})
    axes.invert_yaxis()
    axes.set_xlabel(label)
    _save(path)


def draw_claims(claims: Mapping[str, Claim], path: Path) -> None:
    """How far each claim is beyond what was wanted: 1 is just there, to the right is better."""
    texts = list(claims)
    beyond = [one.ratio / one.wanted if one.at_least else one.wanted / one.ratio for one in claims.values()]
    axes = _axes(len(texts))
    axes.barh(texts, beyond, color=[OURS if one.is_met else MISSED for one in claims.values()])
    axes.axvline(1.0, color="#333333", linewidth=1)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("reached / wanted (for what must stay below: wanted / reached)")
    _save(path)


def _measure(samples: Mapping[str, Sequence[Sample]]) -> tuple[str, Callable[[Sample], float]]:
    """What a drawing shows: the latency where all have one, else bytes where all moved some, else rows."""
    all_samples = [one for each in samples.values() for one in each]
    if all("p99_ms" in one.figures for one in all_samples):
        return "p99, ms (less is better)", lambda one: one.figures["p99_ms"]
    if all(one.nbytes for one in all_samples):
        return "MB/s of user data", lambda one: one.bytes_per_s / 1e6
    return "rows/s", lambda one: one.rows_per_s


def _axes(bars: int) -> Axes:
    _, axes = pyplot.subplots(figsize=(WIDTH_INCHES, 0.8 + BAR_INCHES * bars), layout="constrained")
    return axes


def _save(path: Path) -> None:
    pyplot.savefig(path, metadata={"Date": None})
    pyplot.close()
