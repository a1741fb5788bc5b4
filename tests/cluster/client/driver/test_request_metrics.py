"""What a client counts, over real bookies that are stopped. Ref: docs/metrics.md; protocol rules 19 to 21."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bk_spark import BookKeeper, LocalCluster
from bk_spark.errors import NotEnoughBookiesError
from bk_spark.telemetry.metrics import CLIENT
from bk_spark.telemetry.registry import render
from tests.cluster.live_ledgers import BRISK


def _now() -> dict[tuple[str, str], float]:
    """Every sample of this process's clients by its name without the prefix and the value of its label, if it has one."""
    families = text_string_to_metric_families(render(CLIENT).decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        (
            sample.name.removeprefix("bk_spark_client_"),
            sample.labels.get("status", sample.labels.get("error", "")),
        ): sample.value
        for sample in samples
    }


def _grown(before: dict[tuple[str, str], float], name: str, label: str = "") -> float:
    return _now().get((name, label), 0.0) - before.get((name, label), 0.0)


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_adds_reads_ensemble_changes_missing_spares_and_errors_are_counted() -> None:
    with LocalCluster(2) as cluster, BookKeeper(cluster.metadata_uri, BRISK) as client:
        before = _now()
        writer = client.create_ledger(1, 1, 1)
        writer.append(b"x" * 1000)
        assert _grown(before, "adds_total", "ok") == _grown(before, "add_seconds_count") == 1
        assert 1000 < _grown(before, "added_bytes_total") < 3000
        with client.open_ledger(writer.ledger_id, recover=False) as reader:
            assert sum(len(batch) for batch in reader.read_unconfirmed(0, 0)) == 1
        _wait_until(lambda: _grown(before, "read_seconds_count") == 1)
        ended = [_grown(before, "reads_total", status) for status in ("ok", "stopped")]
        assert sum(ended) == 1
        assert _grown(before, "read_bytes_total") == _grown(before, "added_bytes_total")
        assert _grown(before, "ensemble_changes_total") == _grown(before, "without_spare_total") == 0
        first = {bookie.bookie_id: bookie for bookie in cluster.bookies}[writer.metadata.last_fragment.ensemble[0]]
        first.stop()
        writer.append(b"y")
        assert _grown(before, "ensemble_changes_total") == 1
        assert _grown(before, "errors_total", "NotEnoughBookiesError") == 0
        for bookie in cluster.bookies:
            if bookie.pid is not None:
                bookie.stop()
        with pytest.raises(NotEnoughBookiesError):
            writer.append(b"z")
        assert _grown(before, "without_spare_total") >= 1
        assert _grown(before, "errors_total", "NotEnoughBookiesError") == 1
