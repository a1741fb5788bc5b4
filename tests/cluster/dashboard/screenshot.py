"""The pictures in docs/guide/operate.md: ``python -m tests.cluster.dashboard.screenshot docs`` (some three minutes).

A real cluster with everything on: six bookies in three racks, one read-only and one lost, a log of many ledgers, another one
that is written and read, a ledger whose writer met some failures, AutoRecovery at work on what the lost bookie held.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.dashboard.server import Dashboard
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.dashboard.browser import headless, resize
from tests.cluster.dashboard.lively_cluster import fill_log, kill, load, publish_cursor

WIDTH = 1280
RACKS = ("/zone-a", "/zone-b", "/zone-c")
SLOW_BYTES_PER_S = 4 * 1024
"""AutoRecovery would be done before anybody saw it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seconds", type=float, default=100.0, help="how long the cluster is under load before")
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    with _cluster() as (client, ledger_id), Dashboard(client) as dashboard, load(client, "events"):
        _wait(client, args.seconds)
        for view, name in (("#/", "dashboard.png"), (f"#/ledger/{ledger_id}", "dashboard-ledger.png")):
            _take(dashboard.url + view, args.directory / name, args.dark)


@contextlib.contextmanager
def _cluster() -> Iterator[tuple[BookKeeper, int]]:
    """The cluster, and the ledger that is worth a picture."""
    with LocalCluster(bookies=6, bookie_config=replace(DEFAULT_BOOKIE_CONFIG, http_port=0)) as cluster:
        for bookie, rack in zip(cluster.bookies, RACKS * 2, strict=True):
            bookie.stop()
            bookie.config = replace(bookie.config, rack=rack)
            bookie.start()
        with BookKeeper(cluster.metadata_uri) as client:
            log = fill_log(client, 60)
            publish_cursor(client, log, behind=9)
            ledger_id = _troubled_ledger(cluster, client)
            full = cluster.bookies[1]
            full.stop()
            full.config = replace(full.config, disk_usage_high=0.02, disk_usage_low=0.01)
            full.start()
            cluster.start_autorecovery(AutoRecoveryConfig(lost_bookie_grace_s=60.0, replicate_bytes_per_s=SLOW_BYTES_PER_S))
            yield client, ledger_id


def _troubled_ledger(cluster: LocalCluster, client: BookKeeper) -> int:
    """Its writer meets the end of a bookie three times; two come back, the last bookie of the cluster is lost for good."""
    lost = cluster.bookies[-1]
    with client.create_ledger(4, 3, 2, custom_metadata={"application": b"billing", "owner": b"team-ledger"}) as writer:
        for appended in (90, 160, 60):
            _append(writer, appended)
            ensemble = client.ledger_metadata(writer.ledger_id).last_fragment.ensemble
            down = next(one for one in cluster.bookies[:-1] if one.bookie_id in ensemble)
            kill(client, down)
            _append(writer, 40)
            down.start()
        kill(client, lost)
        _append(writer, 120)
    return writer.ledger_id


def _append(writer: WriteHandle, count: int) -> None:
    for _ in range(count):
        writer.append(bytes(900))


def _wait(client: BookKeeper, seconds: float) -> None:
    """Until the cluster was under load for long, and something is marked."""
    marks = UnderReplication(client.metadata_store, client.znodes)
    least = time.monotonic() + seconds
    while time.monotonic() < least or marks.count() == 0:
        time.sleep(0.5)
    time.sleep(4.0)


def _take(url: str, file: Path, dark: bool) -> None:
    with headless(WIDTH, 800, dark=dark) as browser:
        browser.get(url)
        time.sleep(3.0)
        bottom = "return Math.ceil(document.querySelector('footer').getBoundingClientRect().bottom) + 24"
        resize(browser, WIDTH, browser.execute_script(bottom))
        time.sleep(1.0)
        browser.save_screenshot(str(file))
        print(file, browser.title, [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"])


if __name__ == "__main__":
    main()
