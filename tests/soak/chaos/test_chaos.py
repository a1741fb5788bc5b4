"""Real bookies, a real ZooKeeper, real signals: some rounds with fixed seeds. ``make chaos`` plays as many as are asked for."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.chaos import history
from tests.soak.chaos.__main__ import BOOKIES, describe
from tests.soak.chaos.agents import Task
from tests.soak.chaos.checker import check
from tests.soak.chaos.history import Recorder, last_confirmed, load, read_events
from tests.soak.chaos.plan import FIRST, SECOND, WRITER, Load, draw
from tests.soak.chaos.rounds import Arena, run_round

SEEDS = (0, 2, 12, 14, 17, 20)
"""Together they have every kind of fault."""

PROGRESS = 200
"""Entries that must be confirmed while a bookie is down, and again once it is back."""

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(tmp_path_factory.mktemp("chaos"), BOOKIES) as arena:
        yield arena


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_confirmed_is_read_alike_by_all_whatever_was_killed_suspended_or_slow(arena: Arena, seed: int) -> None:
    """Situations 1, 2, 20, 24, 25, 30, 37 and 53; docs/rules.md, protocol rules 5, 12, 13 and 16."""
    outcome = run_round(arena, draw(seed, BOOKIES))
    assert not outcome.verdict.violations, describe(outcome)
    assert outcome.plan.starts_cold or outcome.verdict.confirmed > 0


def test_the_fixed_seeds_have_every_kind_of_fault_and_of_a_writers_end() -> None:
    plans = [draw(seed, BOOKIES) for seed in SEEDS]
    assert {fault.kind for plan in plans for fault in plan.faults} == {"kill", "suspend", "slow disk", "zookeeper"}
    assert {plan.end for plan in plans} == {"killed", "frozen", "closed early", "taken over"}
    assert any(plan.kills_recoverer for plan in plans)


def test_a_seed_draws_the_same_plan_again_and_other_seeds_draw_others() -> None:
    assert draw(5, BOOKIES) == draw(5, BOOKIES)
    assert len({draw(seed, BOOKIES) for seed in range(50)}) == 50


@pytest.mark.timeout(180)
def test_a_writer_over_three_of_four_bookies_confirms_on_while_one_after_the_other_is_killed_and_comes_back(
    tmp_path: Path,
) -> None:
    """What it confirmed is exactly what two readers find, and no append ever failed. Situations 1 and 2."""
    steady = Load(1, (3, 3, 2), "CRC32C", (1, 4, 2, 0, 0), max_batch=5, depth=8, pause_s=0.003, max_bytes=2**40)
    histories = tmp_path / "history"
    histories.mkdir()
    with Arena(tmp_path, bookies=4) as arena:
        file = histories / "writer.jsonl"
        facts = {"load": dataclasses.asdict(steady), "end": "closed"}
        writer = arena.agent(WRITER).start("write", file, "writer", **facts)
        await_progress(file)
        for bookie in arena.cluster.bookies:
            bookie.kill()
            await_progress(file)
            bookie.start()
            await_progress(file)
        writer.stop()
        await_end(writer)
        for agent in (FIRST, SECOND):
            await_end(arena.agent(agent).start("recover", histories / f"{agent}.jsonl", agent, ledger_id=writer.ledger_id))
            await_end(arena.agent(agent).start("read", histories / f"r-{agent}.jsonl", agent, ledger_id=writer.ledger_id))
        fragments = arena.client.ledger_metadata(writer.ledger_id).fragments
    Recorder(histories / "test.jsonl", "test").record(history.DONE, late=[])
    events = load(histories)
    verdict = check(events)
    assert verdict.violations == []
    assert not [event for event in events if event.kind == history.WRITER_FAILED]
    assert verdict.confirmed == sum(len(event["digests"]) for event in events if event.kind == history.APPENDED)
    assert len(fragments) > 1, "no bookie that was killed was in the ensemble"


def await_progress(file: Path) -> None:
    """Until ``PROGRESS`` more entries are confirmed."""
    deadline, tick = time.monotonic() + DEADLINE_S, threading.Event()
    start = last_confirmed(read_events(file)) if file.exists() else -1
    while not file.exists() or last_confirmed(read_events(file)) < start + PROGRESS:
        assert time.monotonic() < deadline, f"after entry {start} fewer than {PROGRESS} were confirmed in {DEADLINE_S:g} s"
        tick.wait(0.05)


def await_end(task: Task) -> None:
    assert task.await_end(time.monotonic() + DEADLINE_S), f"{task.who} did not end"
