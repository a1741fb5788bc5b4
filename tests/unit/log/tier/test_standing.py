"""What a tier has, what waits and since when, and what bookies do not have any more. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

import pytest

from bk_spark.errors import CorruptionError, NoSuchLogError
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import CommittedLedger, Totals
from bk_spark.log.tier.standing import TierStanding, TierStandings, behind_after_s
from tests.unit.log.log_case import DAY_MS
from tests.unit.log.log_requests import append, overwrite, write
from tests.unit.log.tier.tier_scene import TierScene


def standing(scene: TierScene, standings: TierStandings | None = None) -> TierStanding:
    return (standings or TierStandings(scene.logs)).of("orders", scene.logs.names.uid("orders"), scene.head("orders"))


def written(scene: TierScene, count: int) -> list[CommittedLedger]:
    """One append a second, of a ledger each."""
    found = []
    for _ in range(count):
        scene.store_ms += 1000
        found.append(scene.write("orders"))
    return found


def test_ledgers_wait_from_the_commit_of_the_first_one_until_a_section_has_them(scene: TierScene) -> None:
    a, b, c, _ = written(scene, 4)
    newest_ms = scene.store_ms
    scene.begin("orders")
    found = standing(scene)
    assert (found.tiered, found.waiting) == (Totals(), Totals(4, 40, 4000))
    assert (found.oldest, found.since_ms) == (a.ledger_id, newest_ms - 3000)
    scene.done("orders", a)
    assert standing(scene).since_ms == newest_ms - 2000
    scene.done("orders", b, c)
    found = standing(scene)
    assert (found.tiered, found.waiting, found.since_ms) == (Totals(3, 30, 3000), Totals(1, 10, 1000), newest_ms)
    assert found.lag_s(newest_ms + 5000) == 5.0


def test_a_ledger_of_the_step_under_way_waits_until_the_step_is_done(scene: TierScene) -> None:
    a, b, c = written(scene, 3)
    scene.begin("orders")
    scene.done("orders", a)
    scene.claim("orders", b, c)
    assert (standing(scene).tiered, standing(scene).oldest) == (Totals(1, 10, 1000), b.ledger_id)
    scene.done("orders", b, c)
    assert (standing(scene).waiting, standing(scene).oldest, standing(scene).since_ms) == (Totals(), None, None)
    assert standing(scene).lag_s(scene.store_ms + 10_000) == 0.0


def test_a_step_that_begins_or_ends_between_two_reads_is_counted_right_at_the_next_look(scene: TierScene) -> None:
    a, b, c = written(scene, 3)
    uid, standings = scene.begin("orders"), TierStandings(scene.logs)
    old = scene.head("orders")
    scene.claim("orders", a, b)
    assert standings.of("orders", uid, old).waiting.ledgers == 3
    old = scene.head("orders")
    scene.done("orders", a, b)
    assert standings.of("orders", uid, old).waiting.ledgers == 1
    assert standings.of("orders", uid, scene.head("orders")).oldest == c.ledger_id


def test_a_log_that_was_deleted_meanwhile_is_no_damage(scene: TierScene) -> None:
    written(scene, 1)
    uid = scene.begin("orders")
    head = scene.head("orders")
    scene.logs.deleter.delete("orders")
    with pytest.raises(NoSuchLogError):
        TierStandings(scene.logs).of("orders", uid, head)


def test_what_is_gone_from_bookies_are_the_ledgers_of_the_cleared_sections_that_the_log_lists(scene: TierScene) -> None:
    a, b, c, d, _ = written(scene, 5)
    scene.begin("orders")
    scene.tiered("orders", [a, b], [c], [d])
    assert standing(scene).released == Totals()
    scene.cleared("orders", 1)
    assert standing(scene).released == Totals(2, 20, 2000)
    scene.cleared("orders", 2)
    assert standing(scene).released == Totals(3, 30, 3000)
    scene.cleared("orders", 3)
    assert standing(scene).released == Totals(4, 40, 4000)


def test_after_an_overwrite_nothing_of_the_log_is_in_its_table_or_gone(scene: TierScene) -> None:
    a, b = written(scene, 2)
    scene.begin("orders")
    scene.tiered("orders", [a], [b])
    scene.cleared("orders", 1)
    job = scene.logs.jobs.begin("orders")
    scene.store_ms += 1000
    scene.logs.commit(job, overwrite(new := scene.job_ledger(job, 3)))
    found = standing(scene)
    assert (found.tiered, found.released, found.waiting.rows) == (Totals(), Totals(), 3)
    assert (found.oldest, found.since_ms) == (new.ledger_id, scene.store_ms)


def test_a_ledger_whose_commit_was_vacuumed_waits_at_least_since_the_oldest_record(scene: TierScene) -> None:
    written(scene, 3)
    scene.begin("orders")
    scene.store_ms += 30 * DAY_MS
    scene.now_ms += 30 * DAY_MS
    written(scene, 2)
    LogVacuum(scene.logs, records_kept=1).run("orders")
    oldest = scene.head("orders").oldest_record
    assert oldest > 1
    [record] = scene.store.get_many([scene.paths(scene.logs.names.uid("orders")).version(oldest)])
    assert record is not None
    assert standing(scene).since_ms == record.modified_ms


def test_an_open_ledger_is_told_with_the_time_of_its_opening_and_counts_in_nothing(scene: TierScene) -> None:
    [a] = written(scene, 1)
    scene.begin("orders")
    scene.done("orders", a)
    scene.store_ms += 1000
    job = scene.logs.jobs.begin("orders")
    scene.logs.commit(job, append(opened=scene.open_ledger(job)))
    opened_ms = scene.store_ms
    scene.store_ms += 1000
    assert (standing(scene).open_since_ms, standing(scene).waiting, standing(scene).since_ms) == (opened_ms, Totals(), None)


def test_a_log_is_read_again_only_after_it_or_its_tier_has_changed(scene: TierScene) -> None:
    a, _ = written(scene, 2)
    uid = scene.begin("orders")
    store, logs = scene.scripted()
    standings, head = TierStandings(logs), scene.head("orders")
    first = standings.of("orders", uid, head)
    store.calls.clear()
    assert standings.of("orders", uid, head) is first
    assert store.calls == []
    write(scene, "orders")
    assert standings.of("orders", uid, scene.head("orders")).waiting.ledgers == 3
    scene.done("orders", a)
    assert standings.of("orders", uid, scene.head("orders")).waiting.ledgers == 2


def test_how_long_the_same_ledger_has_waited_is_looked_for_once(scene: TierScene) -> None:
    """Its commit may lie thousands of commits back."""
    written(scene, 1)
    uid = scene.begin("orders")
    store, logs = scene.scripted()
    standings = TierStandings(logs)
    first = standings.of("orders", uid, scene.head("orders"))
    written(scene, 40)
    store.calls.clear()
    second = standings.of("orders", uid, scene.head("orders"))
    assert (second.since_ms, second.waiting.ledgers) == (first.since_ms, 41)
    asked = [path for name, paths in store.calls if name == "get_many" for path in paths]
    again = asked.count(scene.paths(uid).version(1))
    assert again <= 1  # by the listing, which begins there


def test_a_section_whose_record_is_missing_is_damage_and_no_figure(scene: TierScene) -> None:
    a, b = written(scene, 2)
    uid = scene.begin("orders")
    scene.tiered("orders", [a], [b])
    scene.cleared("orders", 1)
    scene.store.delete(scene.paths(uid).tier_section(1), 0)
    with pytest.raises(CorruptionError, match="section 1 of the tier of log 'orders'"):
        standing(scene)


@pytest.mark.parametrize(("after_s", "behind_s"), [(900, 2700), (86_400, 259_200), (0, 900), (300, 900)])
def test_a_tier_is_behind_after_three_times_its_wait_and_never_before_a_quarter_of_an_hour(after_s: int, behind_s: int) -> None:
    assert behind_after_s(Tier("file:///lake", "shop.orders", tier_after_s=after_s)) == behind_s
