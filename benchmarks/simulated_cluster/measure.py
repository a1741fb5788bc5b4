"""Measures what ``costs.py`` has measured numbers of: ``python -m benchmarks.simulated_cluster.measure``. A minute.

The CPU of ZooKeeper's process stands for the time that it needs on a machine of its own: here it shares two cores with its
clients.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.simulated_cluster.layout import drawn_ensembles, laid_out
from benchmarks.simulated_cluster.ledger_table import LedgerTable
from benchmarks.speed.processes import usage
from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.driver.client_context import EnsembleChoice
from bk_spark.client.protocol.state_machine import ChooseReplacements
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import ANY_VERSION, Create, Delete, MetadataStore
from bk_spark.replication.lost_bookies import missing_of

Item = TypeVar("Item")

REQUESTS = 3_000
PART = 200
"""Changes of one transaction, and values of one read of many."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated_cluster.measure", description=__doc__)
    parser.parse_args()
    found = {**of_placement(), **of_metadata()}
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(bookies=1, data_dir=Path(directory) / "cluster") as cluster,
        BookKeeper(cluster.metadata_uri) as client,
    ):
        assert cluster.zookeeper.pid is not None, "it was started with its cluster"
        found |= of_zookeeper(client.metadata_store, cluster.zookeeper.pid)
    print(json.dumps(found, indent=1))
    return 0


def of_placement() -> dict[str, float]:
    """Microseconds of CPU for one choice of a replacement, and of an ensemble."""
    return {name: figure for count in (10, 100, 1_000) for name, figure in _choices_among(count).items()}


def _choices_among(count: int) -> dict[str, float]:
    bookies = laid_out(count, max(5, count // 20))
    ensemble = (bookies[0].bookie_id, bookies[1].bookie_id, bookies[2].bookie_id)
    choice = EnsembleChoice(ClientConfig(), random.Random(1).randrange)
    wanted = ChooseReplacements(1, ensemble, (0,), frozenset(ensemble[:1]), is_patient=True)
    return {
        f"replacement among {count}, us": 1e6 * _cpu(lambda: choice.replacements(bookies, wanted, 3, 0), 50),
        f"ensemble among {count}, us": 1e6 * _cpu(lambda: choice.ensemble(bookies, 3, 3, 0), 50),
    }


def of_metadata() -> dict[str, float]:
    bookies = laid_out(10, 5)
    table = LedgerTable([one.bookie_id for one in bookies], drawn_ensembles(bookies, 3, 10, 1), np.ones(10, dtype=np.int64))
    value, lost = table.metadata(3).encode(), frozenset({bookies[0].bookie_id})
    return {"decode and look, us": 1e6 * _cpu(lambda: missing_of(LedgerMetadata.decode(3, value), lost), 2_000)}


def of_zookeeper(store: MetadataStore, pid: int) -> dict[str, float]:
    """Microseconds of the server's CPU, and of the client's, and of time, for one request or one part of it."""
    store.ensure_path("/m/a")
    paths = [f"/m/a/n{number:08d}" for number in range(REQUESTS)]

    def of_each(name: str, work: Callable[[Item], object], items: Sequence[Item], part: int = 1) -> dict[str, float]:
        before, cpu_s, began_s = usage([pid]), time.process_time(), time.perf_counter()
        for item in items:
            work(item)
        figures = usage([pid]).since(before).cpu_s, time.process_time() - cpu_s, time.perf_counter() - began_s
        kinds = ("server", "client", "time")
        return {f"{name}, {kind} us": 1e6 * one / len(items) / part for kind, one in zip(kinds, figures, strict=True)}

    parts = [paths[start : start + PART] for start in range(0, REQUESTS, PART)]
    return {
        **of_each("warm up", lambda number: store.create(f"/m/w{number}"), range(REQUESTS)),
        **of_each("create", lambda path: store.create(path, b"x" * 150), paths),
        **of_each("get", store.get, paths),
        **of_each("value of many", store.get_many, 10 * parts, PART),
        **of_each("set", lambda path: store.set(path, b"y" * 150, 0), paths),
        **of_each("name", store.children, ["/m/a"] * 50, REQUESTS),
        **of_each("delete", lambda path: store.delete(path, ANY_VERSION), paths),
        **of_each("part", lambda part: store.transaction([Create(path) for path in part]), parts, PART),
        **of_each("part deleted", lambda part: store.transaction([Delete(path, 0) for path in part]), parts, PART),
    }


def _cpu(work: Callable[[], object], times: int) -> float:
    work()
    began_s = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began_s) / times


if __name__ == "__main__":
    sys.exit(main())
