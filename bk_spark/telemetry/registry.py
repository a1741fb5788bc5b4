"""How metrics are declared, asked for at a scrape, and written as text.

Two kinds. What happens is counted where it happens, once a batch or a group, never once an entry: an increment takes half a
microsecond, an observation one. What is merely so (a fill, a state, a count that somebody keeps anyway) is asked for at
the scrape, by a *source*: so a bookie's storage knows nothing of metrics.

They take no memory that grows: no label takes a value from a request, but for a status.
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
"""Of what ``render`` gives."""


@dataclass(frozen=True, slots=True)
class Described:
    """What docs/metrics.md says of a metric."""

    name: str
    """As it is scraped; of a histogram without _bucket, _sum, _count."""
    kind: str
    """counter, gauge or histogram."""
    text: str
    labels: tuple[str, ...] = ()
    """Without those that ``render`` adds to all."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One value of a metric that is asked for; ``labels`` are values, in the order of the metric's names."""

    metric: Described
    value: float
    labels: tuple[str, ...] = ()


Source = Callable[[], Iterable[Figure]]
"""Gives the values as they are now. Any thread."""


class LightHistogram(Collector):
    """A histogram that one thread observes, for a quarter of the cost of the usual one, which takes locks."""

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
    """The metrics of one registry, in the order in which they are declared."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        self.described.append(Described(name, "counter", text, labels))
        return Counter(name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        self.described.append(Described(name, "gauge", text, labels))
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, bounds: Sequence[float], labels: tuple[str, ...] = ()) -> Histogram:
        self.described.append(Described(name, "histogram", text, labels))
        return Histogram(name, text, labels, registry=self.registry, buckets=bounds)

    def light_histogram(self, name: str, text: str, bounds: Sequence[float]) -> LightHistogram:
        """For what one thread observes often."""
        histogram = LightHistogram(self._asked(Described(name, "histogram", text)), bounds)
        self.registry.register(histogram)
        return histogram

    def asked_gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Described:
        """A gauge that a source gives."""
        return self._asked(Described(name, "gauge", text, labels))

    def asked_counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Described:
        """A counter that a source gives."""
        return self._asked(Described(name, "counter", text, labels))

    def _asked(self, described: Described) -> Described:
        self.described.append(described)
        return described


class _Asking(Collector):
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
        """None: the registry would ask for values to learn the names."""
        return []


_Metric = TypeVar("_Metric", Counter, Histogram)


def by_label(metric: _Metric, values: Iterable[str]) -> dict[str, _Metric]:
    """A metric of one label by its values, which are scraped from the start, as zero."""
    return {value: metric.labels(value) for value in values}


@contextmanager
def asked(registry: CollectorRegistry, source: Source) -> Iterator[None]:
    """While this is open scrapes of ``registry`` ask ``source``."""
    collector = _Asking(source)
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)


class _Shown(Collector):
    """The metrics of a registry, each sample with more labels, without the times at which series began."""

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
    """What Prometheus scrapes, in its text format, of type CONTENT_TYPE. With ``bookie_id`` all samples have that label."""
    labels = {"bookie": bookie_id} if bookie_id else {}
    return b"".join(generate_latest(_Shown(registry, labels)) for registry in registries)
