"""Where ledgers lie is found with few reads, however many sections a tier has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bk_spark.log.stored import tier_places
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.metadata.store import Versioned
from tests.unit.log.tier.tier_scene import TierScene


@pytest.fixture
def ledgers(scene: TierScene) -> list[CommittedLedger]:
    """Of a log with a section for each of them."""
    found = [scene.write("orders") for _ in range(6)]
    scene.begin("orders")
    scene.tiered("orders", *([one] for one in found))
    return found


@pytest.fixture
def read(scene: TierScene, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the sections that were read."""
    asked: list[int] = []
    get_many = scene.store.get_many

    def noted(paths: Sequence[str]) -> list[Versioned | None]:
        asked.extend(int(one.rpartition("/")[2]) for one in paths if "/sections/" in one)
        return get_many(paths)

    monkeypatch.setattr(scene.store, "get_many", noted)
    return asked


def found(scene: TierScene, *ledgers: CommittedLedger) -> set[int]:
    return set(scene.logs.reader.tier.find("orders", scene.logs.names.uid("orders"), [one.ledger_id for one in ledgers]))


def test_a_client_that_looked_once_reads_the_sections_of_the_ledgers_and_new_ones(
    scene: TierScene, ledgers: list[CommittedLedger], read: list[int]
) -> None:
    assert found(scene, ledgers[4]) == {ledgers[4].ledger_id}
    assert read == [0, 1, 2, 3, 4, 5]
    read.clear()
    assert found(scene, ledgers[1], ledgers[3]) == {ledgers[1].ledger_id, ledgers[3].ledger_id}
    assert read == [1, 3]
    read.clear()
    new = scene.write("orders")
    scene.tiered("orders", [new])
    assert found(scene, new, ledgers[0]) == {new.ledger_id, ledgers[0].ledger_id}
    assert read == [0, 6]


def test_sections_beyond_what_a_client_remembers_are_read_each_time(
    scene: TierScene, ledgers: list[CommittedLedger], read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_places, "_MOST_INDEXED", 3)
    for _ in range(2):
        read.clear()
        assert found(scene, *ledgers) == {one.ledger_id for one in ledgers}
    assert read == [0, 1, 2, 3, 4, 5]
    read.clear()
    assert found(scene, ledgers[0]) == {ledgers[0].ledger_id}
    assert read == [0, 3, 4, 5]


def test_sections_that_were_given_up_are_not_read_again(
    scene: TierScene, ledgers: list[CommittedLedger], read: list[int]
) -> None:
    scene.given_up("orders", 2)
    assert found(scene, *ledgers) == {one.ledger_id for one in ledgers[2:]}
    read.clear()
    scene.given_up("orders", 4)
    assert found(scene, *ledgers) == {one.ledger_id for one in ledgers[4:]}
    assert read == [4, 5]


def test_a_log_of_the_same_name_made_anew_has_places_of_its_own(scene: TierScene, ledgers: list[CommittedLedger]) -> None:
    assert found(scene, *ledgers)
    scene.logs.deleter.delete("orders")
    new = scene.write("orders")
    scene.begin("orders")
    scene.tiered("orders", [new])
    assert found(scene, *ledgers, new) == {new.ledger_id}
