"""Rates and latencies of the last seconds, from a bookie's counters; and how these are read over HTTP.

Counters only grow while a bookie runs. If one shrinks, the bookie was restarted, and that period has no rate. The HTTP answer
comes from the network, so its size and time are bounded, and what is not one of our metrics is skipped.
"""

from __future__ import annotations

import http.client
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from bk_spark.host_port import HostPort

WINDOW_S = 30.0
"""Latencies cover the last half minute: on a quiet cluster a few seconds hold too few requests."""

TIMEOUT_S = 2.0
MAX_BYTES = 4 * 1024 * 1024
"""A bookie's metrics are some 30 KiB."""

Buckets = tuple[tuple[float, float], ...]
"""A histogram: upper bounds in seconds, and how many values were at most that. Ascending; the last bound is infinite."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a bookie had counted at ``time_s``. Names and histograms that it does not have are absent."""

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
        """The growth per second between the last two samples; None if unknown."""
        if len(self._seen) < 2:
            return None
        before, after = self._seen[-2], self._seen[-1]
        early, late = before.counts.get(name), after.counts.get(name)
        passed_s = after.time_s - before.time_s
        if early is None or late is None or late < early or passed_s <= 0:
            return None
        return (late - early) / passed_s

    def quantile_s(self, name: str, share: float) -> float | None:
        """The quantile of the last half minute's requests, in seconds; None if there were none."""
        if len(self._seen) < 2:
            return None
        before, after = (one.histograms.get(name, ()) for one in (self._seen[0], self._seen[-1]))
        if [bound for bound, _ in before] != [bound for bound, _ in after]:
            return None
        return quantile([(bound, late - early) for (bound, late), (_, early) in zip(after, before, strict=True)], share)


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """Interpolated linearly in its bucket. A quantile above all finite bounds is given as the last of them."""
    if not buckets or buckets[-1][1] <= 0 or any(early[1] > late[1] for early, late in itertools.pairwise(buckets)):
        return None
    wanted = share * buckets[-1][1]
    lower, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted:
            return lower if math.isinf(bound) else lower + (bound - lower) * (wanted - below) / max(count - below, 1e-9)
        lower, below = bound, count
    return lower


def scrape(address: str, now_s: float) -> Counters | None:
    """The counters that ``host:port`` serves, as of ``now_s``; None if it does not answer, or not with metrics."""
    place = HostPort.parse(address)
    connection = http.client.HTTPConnection(place.host, place.port, timeout=TIMEOUT_S)
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
    """Sums over all labels, without failed requests. None if the text is not in Prometheus format."""
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
