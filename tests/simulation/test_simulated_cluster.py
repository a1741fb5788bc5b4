"""The simulated cluster of ``benchmarks/simulated_cluster``, small: what it must hold at any size."""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.simulated_cluster import __main__ as command
from benchmarks.simulated_cluster import cross_check
from benchmarks.simulated_cluster.churn import Churn, play
from benchmarks.simulated_cluster.cluster import Recovery
from benchmarks.simulated_cluster.costs import Costs
from benchmarks.simulated_cluster.hot_log import HotLog, worst_windows
from benchmarks.simulated_cluster.layout import drawn_ensembles, laid_out
from benchmarks.simulated_cluster.real_recovery import Plan, RealRecovery
from benchmarks.simulated_cluster.recoveries import Loss, Restarts, made, recovered, restarted
from benchmarks.simulated_cluster.resources import Resource, SharedCores
from bk_spark.client.protocol.placement.choose_bookies import Candidate, Terms, choose_ensemble
from bk_spark.replication.worker import ReplicationWorker

SMALL = Loss(name="small", bookies=12, racks=4, ledgers=400, gb_each=40.0)


def recovery_and_table(plan: Loss, seed: int = 1) -> tuple[Recovery, np.ndarray, list[int]]:
    cluster, lost = made(plan, seed)

    async def run() -> Recovery:
        await cluster.start()
        return await cluster.recover_from([cluster.table.bookies[number] for number in lost])

    return cluster.loop.run(run()), cluster.table.ensembles, lost


@pytest.mark.parametrize("lost", ["bookie", "rack"])
def test_all_copies_are_whole_in_the_end_on_other_bookies_and_in_as_many_racks(lost: str) -> None:
    plan = replace(SMALL, lost=lost, racks=4)
    found, ensembles, gone = recovery_and_table(plan)
    assert found.is_whole
    assert not np.isin(ensembles, gone).any()
    assert all(len(set(row)) == 3 for row in ensembles.tolist())
    assert all(len({number % plan.racks for number in row}) == 3 for row in ensembles.tolist())


@pytest.mark.parametrize(
    "plan",
    [
        SMALL,
        replace(SMALL, workers=1),
        replace(SMALL, workers=3, ledgers=40),
        replace(SMALL, lost="rack"),
        replace(SMALL, slow=1),
    ],
)
def test_no_recovery_is_faster_than_its_limit(plan: Loss) -> None:
    found = recovered(plan)
    assert found.is_whole
    assert found.copying_s >= found.limit.of_hardware_s
    last_piece_s = plan.costs.piece_bytes / plan.config.replicate_bytes_per_s  # a pace begins with a piece, and waits for none
    assert found.copying_s >= found.limit.workers_s - last_piece_s
    assert found.limit.seconds >= found.limit.of_hardware_s
    assert found.copied_bytes >= found.lost_bytes


def test_recovery_of_a_bookie_takes_less_than_twice_its_limit() -> None:
    assert recovered(replace(SMALL, gb_each=400.0, ledgers=1_000)).over_limit < 2.0


def test_one_seed_gives_one_result_and_another_one_another() -> None:
    first, second, other = (asdict(recovered(SMALL, seed)) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_one_worker_that_does_everything_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deliberate bug: all workers but the first find no ledger to begin."""
    plan = replace(SMALL, gb_each=400.0, ledgers=1_000)
    sound = recovered(plan)
    read_due = ReplicationWorker._read_due

    async def first_alone(worker: ReplicationWorker) -> deque[int]:
        found = await read_due(worker)
        return found if worker._rereplicator._lock._owner == "worker 0" else deque()

    monkeypatch.setattr(ReplicationWorker, "_read_due", first_alone)
    broken = recovered(plan)
    assert broken.is_whole
    assert broken.over_limit > 3 * sound.over_limit


def test_bookie_that_comes_back_within_its_grace_period_causes_no_work() -> None:
    plan = Restarts(name="one", bookies=8, racks=4, ledgers=80, gb_each=4.0)
    found = restarted(plan)
    assert found.marked == found.copied_bytes == found.checked_bytes == 0
    assert found.seconds >= plan.bookies * (plan.down_s + plan.pause_s)


def test_two_bookies_that_are_away_at_once_cause_marks_and_copies() -> None:
    found = restarted(Restarts(name="two", bookies=8, racks=4, ledgers=80, gb_each=4.0, at_once=2))
    assert found.marked > 0
    assert found.copied_bytes > 0


def test_sampled_ensembles_are_those_of_the_shipped_placement() -> None:
    """Bookies of racks of different sizes, in zones: each bookie is in as many ensembles both ways, and racks meet as often."""
    bookies = [*laid_out(12, 6, 3), *laid_out(16, 8, 2, first=12)[:4]]
    names = {one.bookie_id: number for number, one in enumerate(bookies)}
    candidates = [Candidate(one.bookie_id, one.rack) for one in bookies]
    choose = Random(5).randrange
    shipped = [[names[one] for one in choose_ensemble(candidates, 3, Terms(3), choose).bookies] for _ in range(4_000)]
    drawn = drawn_ensembles(bookies, 3, 40_000, seed=5, samples=4_000).tolist()
    assert all(len(set(row)) == 3 for row in drawn)
    for count in (_bookies_of, lambda rows: _racks_of(rows, [one.rack for one in bookies])):
        expected, found = count(shipped), count(drawn)
        assert expected.keys() == found.keys()
        for one in expected:
            assert found[one] / 10 == pytest.approx(expected[one], abs=6 * expected[one] ** 0.5)


def _bookies_of(rows: list[list[int]]) -> Counter[object]:
    return Counter(number for row in rows for number in row)


def _racks_of(rows: list[list[int]], racks: list[str]) -> Counter[object]:
    return Counter(len({racks[number] for number in row}) for row in rows)


def test_resource_is_never_idle_while_work_waits() -> None:
    resource = Resource(rate=10.0)
    assert resource.take(50, 0.0) == 5.0
    assert resource.take(20, 1.0) == 7.0
    assert resource.take(10, 9.0) == 10.0
    assert resource.done == 80


def test_space_is_even_after_churn_if_it_is_balanced() -> None:
    plan = Churn(bookies=10, racks=5, ledgers=3_000, days=8, added={2: 10})
    without, balanced = play(plan), play(replace(plan, balance_share=0.2))
    assert without[-1].space > 1.3
    assert balanced[-1].space <= 1.3
    assert balanced[-1].moved_share > 0.1
    assert without[-1].moved_share == 0.0
    assert without[2].bookies == 20


def test_lost_bookies_are_named_nowhere_after_churn_and_spread_stays_even() -> None:
    spreads = play(Churn(bookies=20, racks=5, ledgers=3_000, days=6, lost={2: 1, 4: 1}))
    assert spreads[-1].bookies == 20
    assert spreads[-1].space < 1.3
    assert spreads[-1].moved_share == 0.0


def test_hot_log_is_less_even_the_larger_its_ledgers_are() -> None:
    bookies = laid_out(20, 5)
    log = HotLog(bytes_per_s=200e6, share=0.2, roll_bytes=1e9, hours=2)
    small = worst_windows(bookies, log, [60, 3_600], 1)
    large = worst_windows(bookies, replace(log, roll_bytes=50e9), [60, 3_600], 1)
    assert small[1] < small[0]
    assert small[1] < large[1]
    assert large[0] == pytest.approx(0.8 + 0.2 * 20 / 3, rel=0.01)


def test_command_writes_tables_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, figures = tmp_path / "scale.md", tmp_path / "scale.json"
    page.write_text(f"# Scale\n\n{command.MARKER}\nformer tables\n")
    arguments = ["scale", "--small", "--only", "workers,hot", "--page", str(page), "--json", str(figures)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert command.main() == 0
    assert "19 workers" in capsys.readouterr().out
    assert page.read_text().startswith(f"# Scale\n\n{command.MARKER}\n\n## A bookie is lost: more workers")
    assert "former" not in page.read_text()
    assert set(json.loads(figures.read_text())) == {"workers", "hot"}


def test_processes_that_share_cores_do_together_what_these_can_and_each_of_them_what_one_can() -> None:
    free_s = [0.0, 0.0]
    first, second, third = (SharedCores(free_s=free_s) for _ in range(3))
    assert [one.take(1.0, 0.0) for one in (first, second, third)] == [1.0, 1.0, 2.0]
    assert first.take(1.0, 0.0) == 2.0
    assert second.take(0.5, 5.0) == 5.5
    assert second.take(0.5, 5.0) == 6.0, "beside a core that is free"


def test_a_cross_check_finds_the_costs_of_copies_from_the_cpu_that_processes_took(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = tuple(Plan(bookies=4, copies=2, ledgers=60, entries=entries) for entries in (1, 64))
    monkeypatch.setattr(cross_check, "CALIBRATION", plans)
    costs = Costs(
        used_by_clients=0.0, copy_cpu_s=0.004, copied_mib_cpu_s=0.005, bookie_copy_cpu_s=0.002, bookie_mib_cpu_s=0.003
    )
    measured = []
    for plan in plans:
        played = cross_check.simulated(plan, 120, replace(costs, zookeeper_read_s=3 * costs.zookeeper_read_s), cores=2)
        cpu_s = played.workers_cpu_s, played.bookies_cpu_s, played.zookeeper_cpu_s
        measured.append(RealRecovery(120, played.copying_s, played.requests, *cpu_s))
    found = cross_check.costs_here(measured, cores=2)
    for name in ("copy_cpu_s", "copied_mib_cpu_s", "bookie_copy_cpu_s", "bookie_mib_cpu_s"):
        assert getattr(found, name) == pytest.approx(getattr(costs, name), rel=0.15), name
    assert 1.0 < found.zookeeper_read_s / costs.zookeeper_read_s < 3.0
