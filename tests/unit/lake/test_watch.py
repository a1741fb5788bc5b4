"""What is told of the tiers of all logs: totals, the worst of them by name, and how old it is."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bk_spark.errors import CorruptionError, MetadataUnavailableError, StorageError
from bk_spark.lake.watch import MOST_NAMED, TierWatch
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.telemetry.metrics import TIER
from bk_spark.telemetry.registry import asked, render
from tests.unit.log.tier.tier_scene import TierScene

HOUR_MS = 3_600_000


class Watched(TierScene):
    """Logs, and a watch of their tiers whose clock goes with the store's."""

    def __init__(self) -> None:
        super().__init__()
        self.watch = TierWatch(self.logs, 30.0, lambda: self.store_ms / 1000)

    def figures(self) -> dict[str, float]:
        """As they are scraped; those of one log have its name in their key."""
        with asked(TIER, self.watch.figures):
            text = render(TIER).decode()
        samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
        return {
            one.name.removeprefix("bk_spark_tier_") + "".join(f" {label}" for label in one.labels.values()): one.value
            for one in samples
        }

    def looked(self) -> dict[str, float]:
        self.watch.look()
        return self.figures()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_what_waits_and_what_tables_have_is_summed_over_the_logs_that_have_a_tier(watched: Watched) -> None:
    for name in ("a", "b", "without"):
        ledgers = [watched.write(name) for _ in range(3)]
        if name != "without":
            watched.begin(name)
            watched.done(name, *ledgers[: 2 if name == "a" else 1])
    found = watched.looked()
    assert (found["logs"], found["logs_unknown"]) == (2, 0)
    assert (found["waiting_rows"], found["waiting_bytes"]) == (30, 3000)
    assert (found["table_rows"], found["table_bytes"]) == (30, 3000)


def test_lags_grow_between_looks_and_say_how_old_the_last_look_is(watched: Watched) -> None:
    for name in ("a", "b"):
        watched.write(name)
        watched.begin(name)
        watched.store_ms += 60_000
    assert (watched.looked()["lag_seconds"], watched.figures()["looked_seconds"]) == (120, 0)
    watched.store_ms += 5_000
    assert (watched.figures()["lag_seconds"], watched.figures()["looked_seconds"]) == (125, 5)
    watched.done("a", *watched.logs.reader.snapshot("a").ledgers)
    assert watched.looked()["lag_seconds"] == 65
    watched.done("b", *watched.logs.reader.snapshot("b").ledgers)
    assert watched.looked()["lag_seconds"] == 0


def test_only_logs_that_are_behind_are_named_and_no_more_than_a_few(watched: Watched) -> None:
    for number in range(MOST_NAMED + 5):
        watched.write(f"log-{number:02}")
        watched.begin(f"log-{number:02}")
        watched.store_ms += 1000
    found = watched.looked()
    assert (found["logs_behind"], [name for name in found if name.startswith("log_lag_seconds")]) == (0, [])
    watched.store_ms += HOUR_MS
    found = watched.figures()
    named = {name.split()[1]: lag for name, lag in found.items() if name.startswith("log_lag_seconds")}
    assert found["logs_behind"] == MOST_NAMED + 5
    assert list(named) == [f"log-{number:02}" for number in range(MOST_NAMED)]  # the longest lags first
    assert named["log-00"] == found["lag_seconds"]


def test_a_log_whose_rows_may_wait_for_longer_is_behind_later(watched: Watched) -> None:
    for name, after_s in (("soon", 900), ("nightly", 86_400)):
        watched.write(name)
        watched.begin(name, after_s)
    watched.store_ms += HOUR_MS
    assert [name for name in watched.looked() if name.startswith("log_lag")] == ["log_lag_seconds soon"]


def test_failures_in_a_row_are_told_by_log_until_one_succeeds_or_the_log_is_gone(watched: Watched) -> None:
    problem = StorageError("the store of files", "it does not answer")
    before = watched.figures()["failures_total"]
    for name in ("a", "a", "b"):
        watched.watch.tried(name, problem)
    found = watched.figures()
    assert (found["failing_logs"], found["log_failures a"], found["log_failures b"]) == (2, 2, 1)
    assert found["failures_total"] - before == 3
    watched.watch.tried("b", None)
    assert watched.figures()["failing_logs"] == 1
    assert watched.looked()["failing_logs"] == 0  # there is no log 'a'


def test_a_log_that_cannot_be_read_is_counted_and_holds_up_no_other(watched: Watched) -> None:
    for name in ("a", "b", "c"):
        watched.write(name)
        watched.begin(name)
    for name, path in (("a", "head"), ("b", "tier_settings")):
        watched.store.set(str(getattr(watched.paths(watched.logs.names.uid(name)), path)), b"{", ANY_VERSION)  # type: ignore[arg-type]
    found = watched.looked()
    assert (found["logs"], found["logs_unknown"], found["waiting_rows"]) == (1, 2, 10)


def test_a_store_that_does_not_answer_leaves_what_was_known_with_its_age(watched: Watched) -> None:
    watched.write("a")
    watched.begin("a")
    store, logs = watched.scripted()
    watched.watch = TierWatch(logs, 30.0, lambda: watched.store_ms / 1000)
    watched.watch.look()
    store.fail_reads = True
    watched.store_ms += 7000
    with pytest.raises(MetadataUnavailableError):
        watched.watch.look()
    found = watched.figures()
    assert (found["looked_seconds"], found["lag_seconds"], found["logs_unknown"]) == (7, 7, 0)


def test_a_store_that_goes_away_in_the_middle_of_a_look_makes_no_log_unknown(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.write("a")
    watched.begin("a")
    watched.watch.look()
    watched.write("a")
    outage = MetadataUnavailableError("memory://", "cut off")
    monkeypatch.setattr(LogReader, "listing", Mock(side_effect=outage))
    with pytest.raises(MetadataUnavailableError):
        watched.watch.look()
    assert (watched.figures()["logs"], watched.figures()["logs_unknown"]) == (1, 0)


def test_before_the_first_look_nothing_is_told_of_logs(watched: Watched) -> None:
    assert {"logs", "lag_seconds", "looked_seconds"} & set(watched.figures()) == set()
    assert watched.figures()["failing_logs"] == 0


def test_a_look_at_many_logs_that_did_not_change_costs_a_few_round_trips(watched: Watched) -> None:
    for number in range(50):
        watched.write(f"log-{number}")
        watched.begin(f"log-{number}")
    store, logs = watched.scripted()
    watch = TierWatch(logs, 30.0)
    watch.look()
    store.calls.clear()
    watch.look()
    assert len(store.calls) < 12, store.calls


def test_a_watch_goes_on_looking_after_an_error_until_it_is_closed(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(self: Any) -> None:
        looks.append(1)
        if len(looks) == 1:
            raise CorruptionError("the name of log 'a'", "it is damaged")
        self._stopped.set()

    monkeypatch.setattr(TierWatch, "look", look)
    with TierWatch(watched.logs, 0.001) as watch:
        watch._stopped.wait(10.0)
    assert len(looks) == 2
