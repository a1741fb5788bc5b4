"""One log takes a large share of all writes: how evenly do bookies bear that, by how often its ledgers roll?

Each new ledger of the hot log gets its ensemble from the shipped placement; all other logs together load all bookies evenly.
What a bookie gets is counted in windows, because a disk has no average: it has the busiest minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from bk_spark.client.driver.client_context import EnsembleChoice
from bk_spark.config import ClientConfig
from bk_spark.metadata.registration import RegisteredBookie


@dataclass(frozen=True, kw_only=True, slots=True)
class HotLog:
    """``share``: of all bytes that the cluster takes, the hot log's. Rates are of users' bytes, before copies."""

    bytes_per_s: float
    share: float
    roll_bytes: float
    lanes: int = 1
    """Ledgers that are written at a time."""
    ensemble_size: int = 3
    write_quorum: int = 3
    hours: int = 6


def worst_windows(bookies: Sequence[RegisteredBookie], log: HotLog, windows_s: Sequence[int], seed: int) -> list[float]:
    """For each length of a window the highest load of a bookie over the mean of all, in the worst window."""
    random = Random(seed)
    choice = EnsembleChoice(ClientConfig(), random.randrange)
    numbers = {one.bookie_id: number for number, one in enumerate(bookies)}
    unit_s = min(windows_s)
    loads = np.zeros((log.hours * 3600 // unit_s, len(bookies)))
    for _ in range(log.lanes):
        rate = log.bytes_per_s / log.lanes
        begun_s, left = 0.0, random.random() * log.roll_bytes
        while begun_s < log.hours * 3600:
            ensemble = choice.ensemble(bookies, log.ensemble_size, log.write_quorum, 0)
            ended_s = begun_s + left / rate
            members = [numbers[one] for one in ensemble]
            _spread_over(loads, members, (begun_s, ended_s), rate * log.write_quorum / log.ensemble_size, unit_s)
            begun_s, left = ended_s, log.roll_bytes
    others = log.bytes_per_s * (1 - log.share) / log.share * log.write_quorum / len(bookies)
    return [_worst(loads, window // unit_s, others * window) for window in windows_s]


def _spread_over(
    loads: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    members: Sequence[int],
    span_s: tuple[float, float],
    rate: float,
    unit_s: int,
) -> None:
    first, last = int(span_s[0] // unit_s), min(int(span_s[1] // unit_s), len(loads) - 1)
    for unit in range(first, last + 1):
        begin, end = max(span_s[0], unit * unit_s), min(span_s[1], (unit + 1) * unit_s)
        loads[unit, members] += rate * max(0.0, end - begin)


def _worst(loads: np.ndarray[tuple[int, int], np.dtype[np.float64]], units: int, others: float) -> float:
    windows = [loads[start : start + units].sum(axis=0) + others for start in range(0, len(loads) - units + 1, units)]
    return max(float(one.max() / one.mean()) for one in windows)
