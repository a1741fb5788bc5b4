"""How often the collector asks the metadata store, and what it tells while that does not answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.dashboard import collector as collector_module
from bk_spark.dashboard.collector import Collector
from bk_spark.dashboard.ledgers import MAX_SCANNED, ledger_page
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.store import ANY_VERSION


@pytest.fixture(scope="module")
def empty() -> Iterator[LocalCluster]:
    """A metadata store of its own: it is suspended."""
    with LocalCluster(bookies=0) as cluster:
        yield cluster


@pytest.fixture
def client(empty: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(empty.metadata_uri, ClientConfig(session_timeout_s=4.0)) as client:
        yield client


@pytest.fixture
def collector(client: BookKeeper) -> Iterator[Collector]:
    collector = Collector(client)
    collector.start()
    yield collector
    collector.close()


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cluster_without_bookies_is_shown_empty(collector: Collector) -> None:
    _until(lambda: collector.overview()["value"] is not None)
    value = collector.overview()["value"]
    assert isinstance(value, dict)
    assert (value["writable"], value["lost"], set(value["space"].values())) == (0, 0, {0})
    assert value["rates"] == {"adds_s": None, "reads_s": None, "added_bytes_s": None, "read_bytes_s": None}
    assert collector.bookies()["value"] == {"rows": []}
    assert collector.logs("", 10)["value"] == {"rows": [], "count": 0, "next": None}


def test_fifty_pages_ask_the_store_no_more_than_one_does(
    collector: Collector, client: BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    _until(lambda: collector.overview()["value"] is not None)
    calls: Counter[str] = Counter()
    for name in ("get", "get_many", "children"):
        _count(client, monkeypatch, name, calls)

    def page() -> None:
        for ask in (collector.overview, collector.bookies, collector.under_replicated):
            ask()
        collector.logs("", 100)
        collector.ledgers(-1, 100, "")

    started_s = time.monotonic()
    with ThreadPoolExecutor(10) as pool:
        for done in [pool.submit(page) for _ in range(500)]:
            done.result()
    periods = 1 + (time.monotonic() - started_s) / min(collector_module.PERIOD_S, 1.5)
    assert calls.total() <= 20 * periods, calls  # a page alone: some 16 for the cluster, 2 for logs, 2 for ledgers


def test_a_store_that_does_not_answer_leaves_what_was_known_marked_with_its_age(
    collector: Collector, empty: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bk_spark.dashboard.snapshots.SLOW_S", 0.5)
    _until(lambda: collector.overview()["value"] is not None)
    known = collector.logs("", 10)["value"]
    empty.zookeeper.suspend()
    try:
        _until(lambda: bool(collector.overview()["problem"]))
        overview, logs = collector.overview(), collector.logs("", 10)
        assert overview["value"] is not None
        assert float(str(overview["age_s"])) >= 0.5
        assert float(str(overview["failing_s"])) >= 0.5
        _until(lambda: bool(collector.logs("", 10)["problem"]))
        assert logs["value"] == known
        begun_s = time.monotonic()
        for _ in range(100):
            collector.overview()
            collector.logs("", 10)
        assert time.monotonic() - begun_s < 1  # nobody waits for what fails
    finally:
        empty.zookeeper.resume()
    _until(lambda: not collector.overview()["problem"] and not collector.logs("", 10)["problem"])
    assert float(str(collector.overview()["age_s"])) < 10


def test_a_page_in_one_state_looks_at_a_bounded_number_of_ledgers_and_says_where_to_go_on(
    client: BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With millions of ledgers no request lists them all."""
    store, znodes = client.metadata_store, client.znodes
    paths = [znodes.ledger(ledger_id) for ledger_id in range(20)]
    for path in paths:
        store.create(path, b"no metadata", make_parents=True)
    monkeypatch.setattr("bk_spark.dashboard.ledgers.MAX_SCANNED", 8)
    assert MAX_SCANNED == 5000
    found = ledger_page(client, -1, 4, "OPEN")
    assert (found["rows"], found["scanned"], found["next"]) == ([], 8, "7")
    rest = ledger_page(client, 15, 4, "UNREADABLE")
    assert [row["id"] for row in rest["rows"]] == ["16", "17", "18", "19"]  # type: ignore[attr-defined]
    assert rest["next"] is None
    for path in paths:
        store.delete(path, ANY_VERSION)


def test_damaged_metadata_of_a_ledger_is_told_and_is_no_outage(collector: Collector, client: BookKeeper) -> None:
    store, path = client.metadata_store, client.znodes.ledger(7)
    store.create(path, b"{", make_parents=True)
    ledger, page = collector.ledger(7), collector.ledgers(6, 10, "")
    assert (ledger["problem"], "metadata of ledger 7" in str(ledger["value"])) == ("", True)
    assert [row["state"] for row in page["value"]["rows"]] == ["UNREADABLE"]  # type: ignore[index]
    store.delete(path, ANY_VERSION)


def _count(client: BookKeeper, monkeypatch: pytest.MonkeyPatch, name: str, calls: Counter[str]) -> None:
    method = getattr(client.metadata_store, name)

    def counted(*given: object, **named: object) -> object:
        calls[name] += 1
        return method(*given, **named)

    monkeypatch.setattr(client.metadata_store, name, counted)
