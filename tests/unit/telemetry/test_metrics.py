"""The metrics as declared: the manual says the same, each has a help text, what is rendered is what Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from bk_spark.telemetry.metrics import AUTORECOVERY, BOOKIE, CLIENT, DESCRIBED, GATEWAY, TIER
from bk_spark.telemetry.registry import Declarations, Described, Figure, asked, render
from tests.checkout import ROOT

MANUAL = ROOT / "docs" / "metrics.md"
REGISTRIES = {"bookie": BOOKIE, "client": CLIENT, "autorecovery": AUTORECOVERY, "tier": TIER, "gateway": GATEWAY}
ALL = [described for group in DESCRIBED.values() for described in group]


def _documented() -> Iterator[Described]:
    """The rows of the manual's tables of metrics."""
    for line in MANUAL.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`bk_spark_"):
            yield Described(cells[0].strip("`"), cells[1], cells[3], tuple(re.findall(r"`(\w+)`", cells[2])))


def test_the_manual_has_every_metric_with_its_type_labels_and_text_and_no_other() -> None:
    assert list(_documented()) == ALL


def test_examples_in_the_manual_use_names_that_exist() -> None:
    suffixes = ("_bucket", "_sum", "_count")
    known = {one.name for one in ALL} | {one.name + suffix for one in ALL if one.kind == "histogram" for suffix in suffixes}
    examples = re.findall(r"```yaml\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    used = set(re.findall(r"bk_spark_[a-z_]+", " ".join(examples).replace("job_name: bk_spark", "")))
    assert used - known == set()


@pytest.mark.parametrize("described", ALL, ids=lambda one: one.name)
def test_names_follow_prometheus_and_say_whose_they_are(described: Described) -> None:
    group = next(name for name, members in DESCRIBED.items() if described in members)
    assert re.fullmatch(rf"bk_spark_{group}_[a-z][a-z_]*[a-z]", described.name)
    assert described.name.endswith("_total") == (described.kind == "counter")
    assert described.text.endswith(".")
    assert not set(described.labels) & {"ledger", "ledger_id", "client", "path", "bookie"}  # unbounded, or added to all


@pytest.mark.parametrize("group", REGISTRIES)
def test_what_is_rendered_parses_and_has_the_declared_types_and_help(group: str) -> None:
    declared = {one.name.removesuffix("_total"): one for one in DESCRIBED[group]}
    families = list(text_string_to_metric_families(render(REGISTRIES[group]).decode()))
    assert families
    for family in families:
        described = declared[family.name]
        assert (family.type, family.documentation) == (described.kind, described.text)
        assert {name for sample in family.samples for name in sample.labels} - {"le"} <= set(described.labels)


def test_a_source_is_asked_at_each_scrape_and_while_it_is_there_alone() -> None:
    declarations = Declarations()
    fill = declarations.asked_gauge("fill", "How full.", ("disk",))
    runs = declarations.asked_counter("runs_total", "How often.")
    now = 1.0

    def source() -> Iterator[Figure]:
        yield Figure(fill, now, ("a",))
        yield Figure(fill, 2 * now, ("b",))
        yield Figure(runs, now)

    with asked(declarations.registry, source):
        assert _values(declarations.registry) == {("fill", "a"): 1, ("fill", "b"): 2, ("runs_total", ""): 1}
        now = 5.0
        assert _values(declarations.registry) == {("fill", "a"): 5, ("fill", "b"): 10, ("runs_total", ""): 5}
    assert _values(declarations.registry) == {}


def test_the_label_of_a_bookie_is_on_every_sample_and_its_text_is_escaped() -> None:
    declarations = Declarations()
    declarations.counter("a_total", "A.", ("status",)).labels("ok").inc()
    declarations.histogram("b_seconds", "B.", (1.0,)).observe(0.5)
    text = render(declarations.registry, bookie_id='10.0.0.1:3181-"x"\n').decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.name for sample in samples} == {"a_total", "b_seconds_bucket", "b_seconds_sum", "b_seconds_count"}
    assert {sample.labels["bookie"] for sample in samples} == {'10.0.0.1:3181-"x"\n'}


def test_a_light_histogram_counts_as_the_usual_one_does() -> None:
    light, usual = Declarations(), Declarations()
    bounds = (0.5, 1, 10)
    histograms = (light.light_histogram("a_seconds", "A.", bounds), usual.histogram("a_seconds", "A.", bounds))
    for value in (0.0, 0.5, 0.6, 1.0, 2.0, 10.0, 11.0):
        for histogram in histograms:
            histogram.observe(value)
    found, expected = (_samples(one.registry) for one in (light, usual))
    assert found == expected
    assert found["a_seconds_bucket", "1.0"] == 4


def _samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(render(registry).decode())
    return {(sample.name, sample.labels.get("le", "")): sample.value for family in families for sample in family.samples}


def _values(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(render(registry).decode())
    return {(sample.name, sample.labels.get("disk", "")): sample.value for family in families for sample in family.samples}
