"""Hostile callers in numbers, each kind in a process of its own: a good caller is served, and the gateway holds a bounded part.

``python -m tests.soak.gateway.hostile`` has them for ten minutes.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.gateway.server import MAX_CONNECTIONS
from bk_spark.local.cluster import LocalCluster
from bk_spark.process.open_files import RESERVED_FILES
from tests.cluster.gateway.hostile_callers import BATCH
from tests.cluster.gateway.siege import BASE_FILES, LOG, Besieged

SECONDS = 3.0


@pytest.fixture(scope="module")
def besieged(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Besieged:
    with BookKeeper(cluster.metadata_uri) as client:
        for _ in range(8):
            client.append_rows(LOG, pa.Table.from_batches([BATCH] * 64), create=True)
    return Besieged(cluster.metadata_uri, tmp_path_factory.mktemp("siege"))


@pytest.fixture(scope="module")
def serving(besieged: Besieged) -> Iterator[Besieged]:
    with besieged.serving():
        yield besieged


@pytest.mark.parametrize(
    ("kind", "ends_as"),
    [("connections", "OK"), ("guesses", "UNAUTHENTICATED"), ("endless", "batches"), ("garbage", "INVALID_ARGUMENT")],
)
def test_a_good_caller_is_served_beside_hostile_ones_who_take_a_bounded_part(serving, kind, ends_as) -> None:
    siege = serving.besiege(kind, SECONDS)
    assert siege.problems(1) == [], siege
    assert siege.hostile[ends_as] > 0, siege


@pytest.mark.parametrize("kind", ["stalled", "unsaid"])
def test_calls_that_stand_still_are_ended_and_named_in_the_audit_log(serving, kind) -> None:
    siege = serving.besiege(kind, 6 * SECONDS)
    assert siege.problems(1) == [], siege
    assert any("event=limited limit=stall_s" in line for line in siege.lines), siege.lines


def test_guessed_tokens_are_named_and_counted_and_none_is_written(serving) -> None:
    siege = serving.besiege("guesses", SECONDS, seed=2)
    assert siege.hostile["UNAUTHENTICATED"] > 100, siege
    assert len(siege.lines) <= 3, siege.lines
    assert not any("bks_" in line for line in siege.lines)


def test_a_thousand_connections_leave_a_gateway_with_few_files_what_it_needs_itself(besieged) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, 700)
    with besieged.serving(wrap=("prlimit", f"--nofile={limit}:{limit}")):
        siege = besieged.besiege("connections", SECONDS)
    assert siege.failures == [], siege
    assert siege.held.files <= limit - RESERVED_FILES + BASE_FILES, siege


def test_a_gateway_raises_its_limit_of_open_files_for_its_connections(besieged) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with besieged.serving(wrap=("prlimit", "--nofile=700:")):
        assert besieged.process is not None
        soft, _ = resource.prlimit(besieged.process.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, MAX_CONNECTIONS + RESERVED_FILES)
