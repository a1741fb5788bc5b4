"""What the dashboard reads of a log's listing: all of it once, then what came since."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bk_spark.dashboard.logs import LogView
from bk_spark.dashboard.tiers import TierView
from bk_spark.log.stored.values import CommitKind
from tests.unit.log.aged_world import WEEK_S, AgedWorld, keep, vacuum
from tests.unit.log.log_world import ScriptedStore


@pytest.fixture
def world() -> AgedWorld:
    world = AgedWorld()
    for _ in range(5):
        world.write("orders", count=2)
    return world


def view(world: AgedWorld, store: Any) -> LogView:
    logs = world.log_store(store)
    client: Any = SimpleNamespace(logs=logs, metadata_store=store, znodes=world.znodes, existing_ledgers=lambda _: [])
    return LogView(client, TierView(logs))


def pages_read(session: ScriptedStore) -> int:
    return sum("/pages/" in path for name, paths in session.calls if name == "get_many" for path in paths)


def test_after_a_commit_only_its_page_is_read(world: AgedWorld) -> None:
    session = ScriptedStore(world.new_session())
    looking = view(world, session)
    looking.look_at("orders")
    assert pages_read(session) == 5
    session.calls.clear()
    world.write("orders")
    assert looking.look_at("orders") == view(world, world.store).look_at("orders")
    assert pages_read(session) == 1
    session.calls.clear()
    looking.look_at("orders")
    assert pages_read(session) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.write("orders", kind=CommitKind.OVERWRITE),
        lambda world: world.logs.truncate("orders", world.logs.names.uid("orders"), world.listed("orders")[3]),
        lambda world: world.write("orders", kind=CommitKind.COMPACT, remove=tuple(world.listed("orders")[1:3]), entries=20),
    ],
    ids=["overwrite", "truncation", "compaction"],
)
def test_whatever_was_committed_the_log_looks_as_if_all_of_it_was_read(
    world: AgedWorld, change: Callable[[AgedWorld], object]
) -> None:
    looking = view(world, world.store)
    looking.look_at("orders")
    change(world)
    assert looking.look_at("orders") == view(world, world.store).look_at("orders")


def test_a_log_whose_records_since_the_last_look_are_gone_is_read_anew(world: AgedWorld) -> None:
    looking = view(world, world.store)
    looking.look_at("orders")
    keep(world, version_retention_s=0)
    for _ in range(3):
        world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    vacuum(world, records_kept=0)
    found = looking.look_at("orders")
    assert found == view(world, world.store).look_at("orders")
    assert found["drawn"]


def test_what_is_not_drawn_is_the_sum_of_the_rest(world: AgedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bk_spark.dashboard.logs.MAX_DRAWN", 3)
    found = view(world, world.store).look_at("orders")
    assert [one["id"] for one in found["drawn"]] == [str(one) for one in world.listed("orders")[-3:]]  # type: ignore[attr-defined]
    assert found["earlier"] == {"ledgers": 7, "rows": 70, "bytes": 7_000}
