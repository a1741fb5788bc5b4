"""What counters say of the last seconds: rates, and the latency that 99 of 100 requests keep. Pure.

Counters only grow while a bookie runs; where one is smaller than before, the bookie was started anew, and nothing is said of
the time between.
"""

from __future__ import annotations

import http.client
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

WINDOW_S = 30.0
"""Latencies are those of the last half minute: of a few seconds there are too few on a quiet cluster."""

Buckets = tuple[tuple[float, float], ...]
"""Of a histogram: upper bound in seconds, and how many were at most that; ascending, the last bound is infinite."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a bookie had counted at ``time_s``. A name or histogram that it does not have is absent."""

    time_s: float
    counts: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Buckets] = field(default_factory=dict)


class CounterHistory:
    """The last half minute of one bookie's counters."""

    def __init__(self) -> None:
        self._seen: deque[Counters] = deque()

    def add(self, counters: Counters) -> None:
        self._seen.append(counters)
        while len(self._seen) > 2 and self._seen[1].time_s <= counters.time_s - WINDOW_S:
            self._seen.popleft()

    def rate(self, name: str) -> float | None:
        """A second, between the last two looks; None where that is not known."""
        if len(self._seen) < 2:
            return None
        return _rate(self._seen[-2], self._seen[-1], name)

    def quantile_s(self, name: str, share: float) -> float | None:
        """The seconds that ``share`` of the requests took at most, of the last half minute; None where there were none."""
        if len(self._seen) < 2:
            return None
        before, after = (one.histograms.get(name, ()) for one in (self._seen[0], self._seen[-1]))
        if [bound for bound, _ in before] != [bound for bound, _ in after]:
            return None
        grown = [(bound, late - early) for (bound, late), (_, early) in zip(after, before, strict=True)]
        return quantile(grown, share)


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """Linear inside the bucket where it lies; the last finite bound where it lies above all of them."""
    if not buckets or buckets[-1][1] <= 0 or any(early[1] > late[1] for early, late in itertools.pairwise(buckets)):
        return None
    wanted = share * buckets[-1][1]
    lower, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted:
            return lower if math.isinf(bound) else lower + (bound - lower) * (wanted - below) / max(count - below, 1e-9)
        lower, below = bound, count
    return lower


def _rate(before: Counters, after: Counters, name: str) -> float | None:
    early, late = before.counts.get(name), after.counts.get(name)
    passed_s = after.time_s - before.time_s
    if early is None or late is None or late < early or passed_s <= 0:
        return None
    return (late - early) / passed_s


# --- A bookie's metrics over HTTP, as the counters that the page shows
#
# The answer comes from the network: its size and time are bounded, and what is not a metric of ours is passed over.

TIMEOUT_S = 2.0
MAX_BYTES = 4 * 1024 * 1024
"""A bookie's metrics are some 30 KiB."""


def scrape(address: str, now_s: float) -> Counters | None:
    """The counters at ``host:port``, as those of ``now_s``; None if there was no answer, or no metrics in it."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        body = response.read(MAX_BYTES + 1)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK or len(body) > MAX_BYTES:
        return None
    return counters_of(body.decode(errors="replace"), now_s)


def counters_of(text: str, now_s: float) -> Counters | None:
    """Sums over all labels, without requests that failed. None where it is not Prometheus text."""
    counts: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not math.isfinite(sample.value) or sample.labels.get("status", "ok") != "ok":
                    continue
                counts[sample.name] += sample.value
                if sample.name.endswith("_bucket"):
                    buckets[family.name][float(sample.labels["le"])] += sample.value
    except (ValueError, KeyError, IndexError):
        return None
    histograms: dict[str, Buckets] = {name: tuple(sorted(found.items())) for name, found in buckets.items()}
    return Counters(now_s, dict(counts), histograms)
