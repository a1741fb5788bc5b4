"""When the dashboard warns of a tier, and what it never shows."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest

from bk_spark.dashboard.tiers import HeldLog, TierView
from bk_spark.errors import MetadataUnavailableError
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.metadata.store import ANY_VERSION
from tests.unit.log.tier.tier_scene import TierScene


def tiers(scene: TierScene, *names: str, view: TierView | None = None) -> dict[str, dict[str, object]]:
    view = view or TierView(scene.logs, lambda: scene.store_ms / 1000)
    return view.of({name: HeldLog(scene.logs.names.uid(name), scene.head(name)) for name in names})


@pytest.fixture
def scene() -> TierScene:
    scene = TierScene()
    for name in ("orders", "without"):
        scene.write(name)
    scene.begin("orders")
    return scene


def test_a_tier_is_behind_once_its_oldest_rows_have_waited_for_three_times_its_wait(scene: TierScene) -> None:
    began_ms = scene.store_ms
    for waited_s, is_behind in ((0, False), (2700, False), (2701, True)):
        scene.store_ms = began_ms + 1000 * waited_s
        assert tiers(scene, "orders")["orders"]["behind"] is is_behind
    assert tiers(scene, "orders")["orders"]["since_ms"] == began_ms
    scene.done("orders", *scene.logs.reader.snapshot("orders").ledgers)
    assert tiers(scene, "orders")["orders"]["behind"] is False


def test_new_settings_count_at_the_next_look(scene: TierScene) -> None:
    view = TierView(scene.logs, lambda: scene.store_ms / 1000)
    scene.store_ms += 3_600_000
    assert tiers(scene, "orders", view=view)["orders"]["behind"] is True
    scene.begin("orders", tier_after_s=86_400)
    assert tiers(scene, "orders", view=view)["orders"]["behind"] is False


def test_a_log_without_a_tier_has_none_and_the_catalog_is_never_told(scene: TierScene) -> None:
    found = tiers(scene, "orders", "without")
    assert list(found) == ["orders"]
    assert "catalog" not in json.dumps(found)


def test_damage_is_a_problem_of_one_tier(scene: TierScene) -> None:
    scene.write("damaged")
    path = scene.paths(scene.begin("damaged")).tier_step
    scene.store.set(path, b"{", ANY_VERSION)
    found = tiers(scene, "orders", "damaged")
    assert "the step of the tier of log 'damaged'" in str(found["damaged"]["problem"])
    assert found["orders"]["problem"] == ""


def test_an_outage_is_a_problem_of_no_tier(scene: TierScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows what it knew, with its age."""
    monkeypatch.setattr(LogReader, "listing", Mock(side_effect=MetadataUnavailableError("memory://", "cut off")))
    with pytest.raises(MetadataUnavailableError):
        tiers(scene, "orders")
