"""What a real bookie tells over HTTP, and that each figure moves as it should. Ref: docs/metrics.md; protocol rule 47."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bk_spark import BookKeeper
from bk_spark.bookie.admission import ORDERED
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.process.monitoring import STARTS, STOPS, MeasuredDisk, Monitoring, kind_of
from bk_spark.bookie.progress import Progress
from bk_spark.cli import main
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import BookKeeperError, ProcessFailedError
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.zookeeper_session import SessionState
from bk_spark.telemetry.metrics import DESCRIBED
from bk_spark.version import VERSION
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.bookie.asked_bookie import AskedBookie, allow_any_id
from tests.cluster.bookie.limited_bookie import limited_bookie_command, set_disk
from tests.cluster.bookie.served import Served as ServedBookie
from tests.cluster.live_ledgers import BRISK

DEADLINE_S = 60.0
CONFIG = BookieConfig(
    write_cache_bytes=MIB, sync_queue_bytes=MIB, checkpoint_bytes=4 * MIB, disk_check_s=0.1, session_timeout_s=2.0
)
CONNECTED = partial(SessionState, 2.0, is_connected=True)
CERTIFICATES = "bk_spark_bookie_certificate_days_left"
"""A metric of bookies with TLS alone."""
STARTING = {"bk_spark_bookie_start_bytes", "bk_spark_bookie_start_total_bytes"}
"""Metrics of bookies that do not serve yet."""
NAMES = {one.name: one for group in ("bookie", "client") for one in DESCRIBED[group]}


@dataclasses.dataclass
class Scraped:
    """One scrape, by metric without its prefix, as Prometheus reads it."""

    text: str

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one sample: all its labels but ``bookie`` must be given. Raises KeyError where there is none."""
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                others = {key: value for key, value in sample.labels.items() if key != "bookie"}
                if sample.name == f"bk_spark_bookie_{name}" and others == labels:
                    return sample.value
        raise KeyError(name)


class Watched:
    """The HTTP of the first bookie of a cluster."""

    def __init__(self, cluster: LocalCluster, client: BookKeeper) -> None:
        self.cluster, self.client = cluster, client
        self.bookie: LocalBookie = cluster.bookies[0]

    def get(self, path: str) -> tuple[int, str]:
        http = self._address()
        try:
            with urllib.request.urlopen(f"http://{http}{path}", timeout=10) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def _address(self) -> str:
        """While a bookie moves between writable and read-only it may be between two registrations."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := [one.http for one in self.client.list_bookies() if one.bookie_id == self.bookie.bookie_id]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert found[0] is not None
        return found[0]

    def scrape(self) -> Scraped:
        status, text = self.get("/metrics")
        assert status == 200
        return Scraped(text)

    def until(self, is_so: Callable[[Scraped], bool]) -> Scraped:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(found := self.scrape()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found

    def until_ready_is(self, status: int, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not ((found := self.get("/ready"))[0] == status and text in found[1]):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        assert found[1].count("\n") == 1


@pytest.fixture(scope="module")
def shared() -> Iterator[Watched]:
    """A cluster of one bookie, whose disk can be made full or broken."""
    with ExitStack() as undo:
        undo.enter_context(mock.patch.object(local_cluster, "bookie_command", limited_bookie_command))
        cluster = undo.enter_context(LocalCluster(1, bookie_config=CONFIG))
        client = undo.enter_context(BookKeeper(cluster.metadata_uri, BRISK))
        allow_any_id(cluster)
        yield Watched(cluster, client)


@pytest.fixture
def watched(shared: Watched) -> Watched:
    """It takes changes: a bookie whose disk a test broke is started again."""
    if shared.scrape()("failed"):
        set_disk(shared.bookie.data_dir)
        shared.bookie.kill()
        shared.bookie.start()
        shared.until_ready_is(200, "ready")
    return shared


def test_every_sample_is_described_in_the_manual_and_names_its_bookie(watched: Watched) -> None:
    families = list(text_string_to_metric_families(watched.scrape().text))
    assert {sample.labels["bookie"] for family in families for sample in family.samples} == {watched.bookie.bookie_id}
    for family in families:
        described = NAMES[family.name + ("_total" if family.type == "counter" else "")]
        assert (family.type, family.documentation) == (described.kind, described.text)
        assert {name for sample in family.samples for name in sample.labels} - {"bookie", "le"} <= set(described.labels)
    described_names = {one.name for one in DESCRIBED["bookie"]} - {CERTIFICATES} - STARTING
    missing = described_names - {f.name + ("_total" if f.type == "counter" else "") for f in families}
    assert missing == set()
    assert watched.scrape()("info", version=VERSION) == 1
    assert watched.get("/health") == (200, "alive\n")
    assert watched.get("/ready") == (200, "ready\n")


def test_adds_and_reads_move_requests_entries_bytes_latencies_syncs_and_the_cache(watched: Watched) -> None:
    before = watched.scrape()
    with watched.client.create_ledger(1, 1, 1) as writer:
        writer.append_batch([b"x" * 10_000] * 10)  # over gRPC, and straight into the entry log
        writer.append(b"y")  # as a frame on the second port, and into the write cache
        added = watched.until(lambda now: now("adds_total", status="ok") == before("adds_total", status="ok") + 2)
        assert added("add_streams") == 1
    assert added("added_entries_total", status="ok") - before("added_entries_total", status="ok") == 11
    nbytes = added("added_bytes_total", status="ok") - before("added_bytes_total", status="ok")
    assert 100_000 < nbytes < 105_000
    assert added("add_batch_bytes_sum") - before("add_batch_bytes_sum") == nbytes
    assert added("add_batch_entries_sum") - before("add_batch_entries_sum") == 11
    for name in ("add_seconds", "add_batch_entries", "add_batch_bytes"):
        assert added(f"{name}_count") - before(f"{name}_count") == 2
    assert added("group_requests_count") > before("group_requests_count")
    assert added("group_sync_seconds_count") > before("group_sync_seconds_count")
    assert added("group_bytes_sum") - before("group_bytes_sum") >= nbytes
    assert added("sync_seconds_count", file="journal") > before("sync_seconds_count", file="journal")
    assert added("write_cache_bytes", cache="active") > before("write_cache_bytes", cache="active")
    assert added("sync_queue_bytes") == 0
    assert (added("write_cache_limit_bytes"), added("sync_queue_limit_bytes")) == (MIB, MIB)
    with watched.client.open_ledger(writer.ledger_id) as reader:
        assert sum(len(batch) for batch in reader.read(0, 10)) == 11
    read = watched.until(lambda now: now("read_seconds_count") > before("read_seconds_count"))
    ended = [read("reads_total", status=one) - before("reads_total", status=one) for one in ("ok", "broken_off")]
    assert sum(ended) == read("read_seconds_count") - before("read_seconds_count")
    assert read("read_entries_total") - before("read_entries_total") == 11
    assert read("read_bytes_total") - before("read_bytes_total") == nbytes


def test_large_adds_sync_the_entry_log_and_a_full_cache_makes_a_checkpoint(watched: Watched) -> None:
    before = watched.scrape()
    with AskedBookie(watched.bookie) as raw:
        assert raw.add(10**9, 0, os.urandom(2 * MIB)) is Status.OK
        assert [raw.add(10**9 + 1, one, os.urandom(30_000)) for one in range(50)] == [Status.OK] * 50
    after = watched.until(lambda now: now("checkpoint_seconds_count") > before("checkpoint_seconds_count"))
    assert after("sync_seconds_count", file="entry_log") > before("sync_seconds_count", file="entry_log")


def test_fences_refusals_wrong_passwords_and_waiting_readers_are_counted(watched: Watched) -> None:
    before = watched.scrape()
    abandoned = watched.client.create_ledger(1, 1, 1, password=b"right")
    abandoned.append(b"x")
    reader = watched.client.open_ledger(abandoned.ledger_id, b"right", recover=False)
    waiting = threading.Thread(target=reader.wait_for_last_add_confirmed, args=(5, 60.0))
    waiting.start()
    assert watched.until(lambda now: now("long_polls") == 1)
    watched.client.open_ledger(abandoned.ledger_id, b"right")
    with pytest.raises(BookKeeperError):
        abandoned.append(b"late")
    waiting.join(DEADLINE_S)
    with AskedBookie(watched.bookie) as raw:
        assert raw.add(10**9 + 2, 0, b"x") is Status.OK
        assert raw.read(10**9 + 2, 0, 0, fence=True)[1] is Status.OK
        assert raw.add(10**9 + 2, 1, b"x") is Status.FENCED
        assert raw.add(abandoned.ledger_id, 1, b"x") is Status.UNAUTHORIZED
    after = watched.until(lambda now: now("long_polls") == 0)
    assert after("fences_total", status="ok") - before("fences_total", status="ok") >= 2
    assert after("adds_total", status="fenced") - before("adds_total", status="fenced") >= 1
    confirmed = "last_add_confirmed_reads_total"
    assert after(confirmed, status="ok") > before(confirmed, status="ok")
    assert after("adds_total", status="unauthorized") - before("adds_total", status="unauthorized") == 1


def test_garbage_collection_scrub_and_suspension_are_counted(watched: Watched) -> None:
    with watched.client.create_ledger(1, 1, 1) as writer:
        writer.append(b"x")
    with watched.client.create_ledger(1, 1, 1) as kept:
        kept.append(os.urandom(100_000))
    with AskedBookie(watched.bookie) as raw:  # of no ledger that there is: it goes, too
        assert raw.add(10**9 + 3, 0, os.urandom(2 * MIB)) is Status.OK
    watched.client.delete_ledger(writer.ledger_id)
    before, bookie_id = watched.scrape(), watched.bookie.bookie_id
    for done in (1, 2):  # the first one only notes what is to go
        watched.client.administer_bookie(bookie_id, AdminOperation.GC_RUN)
        after = watched.until(lambda now, done=done: now("gc_runs_total") >= before("gc_runs_total") + done)  # type: ignore[misc]
    assert after("gc_ledgers_deleted_total") > before("gc_ledgers_deleted_total")
    assert after("gc_failing") == 0
    assert after("entry_log_bytes") >= after("entry_log_live_bytes") > 100_000
    for name in ("gc_deleted_bytes_total", "compaction_bytes_total"):
        assert after(name) >= before(name)
    assert after("gc_deleted_bytes_total") - before("gc_deleted_bytes_total") > 2 * MIB
    assert after("gc_entry_logs_deleted_total") > before("gc_entry_logs_deleted_total")
    watched.client.administer_bookie(bookie_id, AdminOperation.GC_SUSPEND)
    assert watched.scrape()("gc_suspended") == 1
    watched.client.administer_bookie(bookie_id, AdminOperation.GC_RESUME)
    assert watched.scrape()("gc_suspended") == 0
    watched.client.administer_bookie(bookie_id, AdminOperation.SCRUB)
    scrubbed = watched.until(lambda now: now("scrub_runs_total") > before("scrub_runs_total"))
    assert scrubbed("scrub_bytes") > 100_000
    assert scrubbed("scrub_total_bytes") > 100_000
    assert (scrubbed("damaged_batches"), scrubbed("scrub_failing")) == (0, 0)


def test_the_list_of_bookies_shows_where_the_metrics_are(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bookie", "list", "--metadata", watched.cluster.metadata_uri, "--json"]) == 0
    (shown,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with urllib.request.urlopen(f"http://{shown['http']}/health", timeout=10) as reply:
        assert reply.status == 200


def test_a_bookie_that_zookeeper_does_not_answer_for_a_session_is_not_ready_until_it_is_registered_again(
    watched: Watched,
) -> None:
    before, address = watched.scrape(), watched._address()
    assert before("zookeeper_connected") == 1
    with mock.patch.object(watched, "_address", return_value=address):
        watched.cluster.zookeeper.stop()
        try:
            watched.until_ready_is(503, "unregistered: there has been no connection to ZooKeeper for ")
            silent = watched.scrape()
            assert (silent("zookeeper_connected"), silent("ready")) == (0, 0)
            assert silent("zookeeper_changed_seconds") >= CONFIG.session_timeout_s
            assert watched.get("/health") == (200, "alive\n")
        finally:
            watched.cluster.zookeeper.start()
        watched.until_ready_is(200, "ready")
        after = watched.scrape()
    assert (
        after("zookeeper_connected"),
        after("zookeeper_sessions_lost_total") >= before("zookeeper_sessions_lost_total"),
    ) == (1, True)


def test_a_taken_port_ends_the_start_with_its_name_and_the_way_out(watched: Watched) -> None:
    with socket.create_server((local_cluster.HOST, 0)) as other:
        port = other.getsockname()[1]
        watched.bookie.stop()
        watched.bookie.config = dataclasses.replace(CONFIG, http_port=port)
        with pytest.raises(ProcessFailedError, match=rf"{port}.*cannot be taken.*choose another host and port"):
            watched.bookie.start()
    watched.bookie.config = CONFIG
    watched.bookie.start()
    assert watched.get("/ready") == (200, "ready\n")


def test_a_full_disk_and_a_broken_one_are_not_ready_and_say_so_while_the_process_is_healthy(watched: Watched) -> None:
    """Protocol rule 47, situation 68."""
    data_dir = watched.bookie.data_dir
    shown = data_dir.relative_to(data_dir.parent.parent)  # a local cluster's bookies know their directories so
    journal = str(shown / "journal")
    before = watched.scrape()
    with AskedBookie(watched.bookie) as raw:
        set_disk(data_dir, limit_bytes=1)
        watched.until_ready_is(503, f"not ready: read-only: too little free space in {shown}")
        assert watched.get("/health") == (200, "alive\n")
        found = watched.scrape()
        assert (found("ready"), found("read_only"), found("failed")) == (0, 1, 0)
        assert (found("disk_full", directory=journal), found("disk_free_bytes", directory=journal)) == (1, 0)
        assert found("disk_total_bytes", directory=journal) == 1
        assert raw.add(10**9 + 4, 0, b"x") is Status.READ_ONLY
        refused = before("adds_total", status="read_only") + 1
        assert watched.until(lambda now: now("adds_total", status="read_only") == refused)
        set_disk(data_dir)
        watched.until_ready_is(200, "ready")
        assert watched.scrape()("disk_full", directory=journal) == 0
        set_disk(data_dir, fails=[["sync", "journal"]])
        assert raw.add(10**9 + 4, 0, b"x") is Status.IO_ERROR
        watched.until_ready_is(503, "failed: ")
        assert (watched.scrape()("failed"), watched.get("/health")[0]) == (1, 200)


def test_why_a_bookie_is_not_ready_from_its_start_to_its_stop() -> None:
    monitoring = Monitoring("127.0.0.1", BookieConfig(), CONNECTED)
    state = SimpleNamespace(problem="")
    bookie: Any = SimpleNamespace(
        failure=None, is_read_only=False, is_ordered_read_only=False, limbo=None, ids_above="", lapse=""
    )
    running: Any = SimpleNamespace(bookie=bookie, watch=SimpleNamespace(state=state))
    unregistered = "it has not registered yet"
    assert monitoring.reasons() == [STARTS]
    with monitoring.of("bookie-1"):
        assert monitoring.reasons() == [STARTS]
        monitoring.serves(running, lambda: unregistered)
        assert monitoring.reasons() == ["unregistered: it has not registered yet"]
        unregistered = ""
        assert monitoring.reasons() == []
        bookie.lapse = "its epoch has not moved"
        assert monitoring.reasons() == ["lapsed: its epoch has not moved"]
        bookie.lapse = ""
        bookie.limbo = Limbo(7)
        bookie.is_read_only, state.problem = True, "too little free space in /x"
        bookie.failure = OSError("broken")
        bookie.ids_above = "ids are given out again"
        assert [reason.split(":")[0] for reason in monitoring.reasons()] == ["failed", "read-only", bookie.ids_above, "limbo"]
        bookie.is_ordered_read_only = True
        assert f"read-only: {ORDERED}" in monitoring.reasons()
        monitoring.stops()
        assert monitoring.reasons() == [STOPS]
    with monitoring.of("bookie-1"):  # its storage is opened anew
        assert monitoring.reasons() == [STARTS]


def test_how_far_a_start_has_come_is_scraped_until_the_bookie_serves() -> None:
    monitoring, progress = Monitoring("127.0.0.1", BookieConfig(), CONNECTED), Progress()
    with monitoring.of("bookie-1", progress):
        progress.begin("replays its logs", 200)
        progress.advance(50)
        shown = {figure.metric.name: figure.value for figure in monitoring._figures()}
        assert [shown[name] for name in sorted(STARTING)] == [50, 200]
        monitoring.stops()
        assert STARTING.isdisjoint(figure.metric.name for figure in monitoring._figures())


@pytest.mark.parametrize(
    ("http_host", "registered"), [("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", "localhost"), ("::1", "[::1]")]
)
def test_where_clients_find_it_is_an_address_that_they_can_reach(http_host: str, registered: str) -> None:
    if http_host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    with Monitoring("127.0.0.1", BookieConfig(http_port=0, http_host=http_host), CONNECTED) as monitoring:
        assert monitoring.address is not None
        with urllib.request.urlopen(f"http://{monitoring.address}/health", timeout=10) as reply:
            assert reply.read() == b"alive\n"
    assert monitoring.address.rpartition(":")[0] == registered


def test_a_bookie_without_an_http_port_listens_nowhere() -> None:
    with Monitoring("127.0.0.1", BookieConfig(), CONNECTED) as monitoring:
        assert monitoring.address is None


def test_an_event_loop_that_takes_no_turns_is_noticed(harness: Any) -> None:
    served, release = ServedBookie(harness), threading.Event()
    try:
        assert served.server.answers(DEADLINE_S)
        served.loop.call_soon_threadsafe(release.wait, DEADLINE_S)
        assert not served.server.answers(0.2)
    finally:
        release.set()
        served.close()
    assert not served.server.answers(DEADLINE_S)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("0000000001.journal", "journal"), ("0000000001.log", "entry_log"), ("boot.creating", "other"), ("cookie", "other")],
)
def test_files_are_told_apart_by_their_names(tmp_path: Path, name: str, kind: str) -> None:
    assert kind_of(tmp_path / name) == kind
    file = MeasuredDisk().create(tmp_path / name, b"header")
    file.append([b"more"])
    file.sync()
    file.close()
    assert (tmp_path / name).read_bytes() == b"headermore"
