"""A tier on an object store that misbehaves: one sentence, nothing lost, the next run completes it. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from werkzeug.wrappers import Request, Response

from bk_spark import LogPosition
from bk_spark.errors import BookKeeperError, StorageError
from bk_spark.files import file_store
from tests.cluster.lake.conftest import TieredLog
from tests.cluster.lake.object_store import BUCKET, Fault, ObjectStore, error

LONGEST_S = 60.0
"""Until an error is told, on a slow machine."""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setattr(file_store, "_REQUEST_TIMEOUT_S", 1.0)
        with ObjectStore().running() as store:
            yield store


@pytest.fixture
def on_store(tiered: TieredLog, store: ObjectStore, tmp_path: Path) -> TieredLog:
    """A log of three ledgers whose tier is set, and lies in the bucket."""
    for number in range(3):
        tiered.log.append_rows(rows(100 * number, 100))
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", **store.properties}
    found = replace(tiered, tier=replace(tiered.tier, location=f"s3://{BUCKET}/{tiered.log.name}", catalog=catalog))
    found.log.set_tier(found.tier)
    return found


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "text": ["x" * 50] * count})


def in_table(tiered: TieredLog) -> list[int]:
    table = load_catalog("default", **tiered.tier.catalog).load_table(tiered.tier.table)
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def ids(tiered: TieredLog) -> list[int]:
    return tiered.log.read_rows(["id"]).read_all()["id"].to_pylist()


def test_a_log_moves_to_an_object_store_and_is_read_from_there(on_store: TieredLog) -> None:
    assert on_store.run().released.rows == 300
    assert on_store.on_bookies() == 0
    assert ids(on_store) == in_table(on_store) == list(range(300))
    on_store.log.append_rows(rows(300, 5))
    assert ids(on_store) == list(range(305))


def slow_down(request: Request) -> Response | None:
    return error(503, "SlowDown")


def no_uploads(request: Request) -> Response | None:
    return error(500, "InternalError") if request.method in ("PUT", "POST") else None


def no_reads_of_data(request: Request) -> Response | None:
    return error(500, "InternalError") if request.method == "GET" and request.path.endswith(".parquet") else None


def wrong_key(request: Request) -> Response | None:
    return error(403, "InvalidAccessKeyId")


def no_bucket(request: Request) -> Response | None:
    return error(404, "NoSuchBucket")


def hangs(request: Request) -> Response | None:
    """As long as nobody answers in the middle of an upload."""
    if request.method == "PUT":
        time.sleep(4 * file_store._REQUEST_TIMEOUT_S)
        return error(500, "InternalError")
    return None


FAULTS: tuple[Fault, ...] = (slow_down, no_uploads, no_reads_of_data, wrong_key, no_bucket, hangs)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
def test_a_store_that_fails_is_named_nothing_is_lost_and_the_next_run_completes_the_step(
    on_store: TieredLog, store: ObjectStore, fault: Fault
) -> None:
    begun_s = time.monotonic()
    with store.failing(fault), pytest.raises(BookKeeperError) as refused:
        on_store.run()
    assert time.monotonic() - begun_s < LONGEST_S
    assert "\n" not in str(refused.value)
    assert BUCKET in str(refused.value) or on_store.tier.table in str(refused.value)
    assert on_store.on_bookies() == 3
    assert ids(on_store) == list(range(300))
    assert on_store.run().released.rows == 300
    assert ids(on_store) == in_table(on_store) == list(range(300))


def test_errors_now_and_then_are_borne(on_store: TieredLog, store: ObjectStore) -> None:
    count = itertools.count()
    with store.failing(lambda request: error(503, "SlowDown") if next(count) % 3 == 1 else None):
        assert on_store.run().released.rows == 300
        assert ids(on_store) == list(range(300))
    assert in_table(on_store) == list(range(300))


def test_listings_that_show_nothing_yet_leave_files_and_no_harm(on_store: TieredLog, store: ObjectStore) -> None:
    empty = "<?xml version='1.0'?><ListBucketResult><Name>lake</Name><KeyCount>0</KeyCount></ListBucketResult>"
    listing = lambda request: "list-type" in request.args  # noqa: E731
    with store.failing(lambda request: Response(empty, content_type="application/xml") if listing(request) else None):
        assert on_store.run().tiered.rows == 300
    assert in_table(on_store) == list(range(300))
    assert ids(on_store) == list(range(300))


def test_what_is_on_bookies_is_read_while_the_store_is_gone(on_store: TieredLog, store: ObjectStore) -> None:
    on_store.run()
    on_store.log.append_rows(rows(300, 50))
    kept = on_store.log.snapshot().ledgers[-1].ledger_id
    with store.failing(slow_down):
        found = on_store.log.read_rows(["id"], start=LogPosition(kept, 0)).read_all()["id"].to_pylist()
        assert found == list(range(300, 350))
        with pytest.raises(StorageError, match=BUCKET) as refused:
            on_store.log.read_rows().read_all()
    assert "\n" not in str(refused.value)
    assert ids(on_store) == list(range(350))
