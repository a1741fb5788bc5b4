"""A bookie's metrics over HTTP, as the counters that the page shows.

The answer comes from the network: its size and time are bounded, and what is not a metric of ours is passed over.
"""

from __future__ import annotations

import http.client
import math
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

from bk_spark.dashboard.rates import Buckets, Counters

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
