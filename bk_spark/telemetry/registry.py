"""Declares metrics, collects their values at a scrape, and writes them as text.

There are two kinds. Events are counted where they happen, once for a batch or a group, never for each entry: an increment takes
half a microsecond, an observation one. States (disk usage, flags, counts that a module keeps anyway) are *asked* for at the
scrape: a *source* returns their values, so a bookie's storage does not depend on metrics.

Memory does not grow: the only label values that come from requests are statuses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The content type of ``render``'s text."""


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as docs/metrics.md describes it."""

    name: str
    """As it is scraped; a histogram's without _bucket, _sum, _count."""
    kind: str
    """counter, gauge or histogram."""
    text: str
    labels: tuple[str, ...] = ()
    """Without labels that ``render`` adds to all metrics."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One value of an asked metric; ``labels`` are label values, in the order of the metric's label names."""

    metric: Described
    value: float
    labels: tuple[str, ...] = ()


Source = Callable[[], Iterable[Figure]]
"""Returns the current values. Called on any thread."""


class LightHistogram(Collector):
    """A histogram that only one thread observes; without locks it costs a quarter of prometheus_client's."""

    def __init__(self, described: Described, bounds: Sequence[float]) -> None:
        self._described = described
        self._bounds = tuple(float(bound) for bound in bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[Metric]:
        counts, total = tuple(self._counts), self._sum
        metric = Metric(self._described.name, self._described.text, "histogram")
        for bound, count in zip((*map(str, self._bounds), "+Inf"), accumulate(counts), strict=True):
            metric.add_sample(f"{metric.name}_bucket", {"le": bound}, count)
        metric.add_sample(f"{metric.name}_count", {}, sum(counts))
        metric.add_sample(f"{metric.name}_sum", {}, total)
        yield metric


class Declarations:
    """The metrics of one registry, in the order in which they are declared. Their names begin with ``prefix``."""

    def __init__(self, prefix: str = "") -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        self._prefix = prefix

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(self._describe("counter", name, text, labels).name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(self._describe("gauge", name, text, labels).name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, bounds: Sequence[float], labels: tuple[str, ...] = ()) -> Histogram:
        described = self._describe("histogram", name, text, labels)
        return Histogram(described.name, text, labels, registry=self.registry, buckets=bounds)

    def light_histogram(self, name: str, text: str, bounds: Sequence[float]) -> LightHistogram:
        """For values that one thread observes often."""
        histogram = LightHistogram(self._describe("histogram", name, text), bounds)
        self.registry.register(histogram)
        return histogram

    def asked_gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Described:
        """A gauge whose values a source returns."""
        return self._describe("gauge", name, text, labels)

    def asked_counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Described:
        """A counter whose values a source returns."""
        return self._describe("counter", name, text, labels)

    def _describe(self, kind: str, name: str, text: str, labels: tuple[str, ...] = ()) -> Described:
        described = Described(self._prefix + name, kind, text, labels)
        self.described.append(described)
        return described


class _SourceCollector(Collector):
    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for figure in self._source():
            metric = figure.metric
            if metric.name not in families:
                families[metric.name] = Metric(metric.name.removesuffix("_total"), metric.text, metric.kind)
            labels = dict(zip(metric.labels, figure.labels, strict=True))
            families[metric.name].add_sample(metric.name, labels, figure.value)
        yield from families.values()

    def describe(self) -> list[Metric]:
        """Empty, or the registry would call the source to learn the names."""
        return []


_Metric = TypeVar("_Metric", Counter, Histogram)


def by_label(metric: _Metric, values: Iterable[str]) -> dict[str, _Metric]:
    """A metric with one label, by label value. All ``values`` are scraped from the start, as zero."""
    return {value: metric.labels(value) for value in values}


@contextmanager
def asked(registry: CollectorRegistry, source: Source) -> Iterator[None]:
    """Within this context, scrapes of ``registry`` ask ``source``."""
    collector = _SourceCollector(source)
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)


class _Shown(Collector):
    """The metrics of a registry with more labels on each sample, and without the creation times of series."""

    def __init__(self, registry: CollectorRegistry, labels: dict[str, str]) -> None:
        self._registry, self._labels = registry, labels

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            shown = Metric(metric.name, metric.documentation, metric.type)
            for sample in metric.samples:
                if not sample.name.endswith("_created"):
                    shown.samples.append(sample._replace(labels=self._labels | sample.labels))
            yield shown


def render(*registries: CollectorRegistry, bookie_id: str = "") -> bytes:
    """The metrics in Prometheus's text format (CONTENT_TYPE). If ``bookie_id`` is set, all samples have the label bookie."""
    labels = {"bookie": bookie_id} if bookie_id else {}
    return b"".join(generate_latest(_Shown(registry, labels)) for registry in registries)
