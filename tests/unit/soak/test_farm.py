"""What the farm learns from its runs, and what it makes of that."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.soak.farm import farm as farm_module
from tests.soak.farm import tasks
from tests.soak.farm.corpus import Corpus, saved_tapes
from tests.soak.farm.engines import ENGINES, Played
from tests.soak.farm.farm import Farm
from tests.soak.farm.page import page
from tests.soak.farm.real import Runs
from tests.soak.farm.tasks import AGAIN, CONTINUED, FRESH, MUTANT, Result, Task, keep_failure, replayed, work

VIRTUAL, BAG = "virtual time", "bag"


def result(engine: str, kind: str, *reached: tuple[object, ...], cpu_s: float = 1.0) -> Result:
    learnt = [([1, 2, 3], frozenset([state])) for state in reached]
    return Result(Task(engine, kind, 0, 1.0), 5, cpu_s, Counter(kill=1), learnt, Counter(reached))


def test_a_corpus_keeps_the_tapes_that_reached_something_first() -> None:
    corpus, a, b, c = Corpus(), ("a",), ("b",), ("c",)
    assert corpus.learn([([1], frozenset([a, b]))], {a: 1, b: 1}) == 2
    assert corpus.learn([([2], frozenset([a]))], {a: 1}) == 0
    assert corpus.learn([([3], frozenset([a, c]))], {a: 1, c: 1}) == 1
    assert [tape for tape, _ in corpus.kept] == [[1], [3]]
    assert corpus.met == {a: 3, b: 1, c: 1}


def test_runs_begin_more_often_like_a_tape_whose_states_few_others_met() -> None:
    corpus = Corpus()
    for tape, state, met in (([1] * 10, ("common",), 99), ([2] * 10, ("rare",), 1)):
        corpus.learn([(tape, frozenset([state]))], {state: met})
    begins = corpus.begins(300, random.Random(1))
    rare = sum(begin[0] == 2 for begin in begins)
    assert rare > 280
    assert {len(begin) for begin in begins} == set(range(3, 10))


def test_the_time_goes_to_what_lately_found_the_most_for_a_second(tmp_path: Path) -> None:
    farm = Farm(tmp_path, seed=3)
    for engine in ENGINES:
        farm._take_in(result(engine, FRESH, (engine,), cpu_s=10.0))
        farm._take_in(result(engine, CONTINUED))
    farm._take_in(result(BAG, CONTINUED, ("new",), ("newer",), ("newest",), cpu_s=0.5))
    drawn = [farm._next() for _ in range(400)]
    searches = Counter((task.engine, task.kind) for task in drawn if task.kind != MUTANT)
    assert searches[BAG, CONTINUED] > 200
    assert len(searches) == 2 * len(ENGINES)  # what found little is tried, too
    assert {task.engine for task in drawn if task.kind == MUTANT} == set(ENGINES)
    assert all(task.tapes for task in drawn if task.kind == CONTINUED)


def test_a_deliberate_bug_is_killed_and_its_run_is_made_small_and_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_TRIES", 20)
    mutant = "close at what was pushed"
    hunted = work(Task(BAG, MUTANT, 1, 60.0, mutant=mutant))
    ((tape, violation),) = hunted.failures
    with ENGINES[BAG].mutants[mutant]():
        file = keep_failure(BAG, tape, violation, tmp_path)
        again = replayed(file)
    assert again.violation.split(":")[0] == violation.split(":")[0]
    assert again.trace
    assert sum(map(bool, again.tape)) < sum(map(bool, tape))


def test_a_later_farm_begins_with_what_an_earlier_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm_module, "SLICE_S", 0.2)
    deadline_s = time.monotonic() + 120.0
    while not (kept := saved_tapes(tmp_path).get(VIRTUAL, [])):  # on a busy machine its turn may not come in the first run
        assert time.monotonic() < deadline_s
        Farm(tmp_path, seed=1).run(0.05, processes=1)
    later = Farm(tmp_path, seed=2)
    later.run(0.0, processes=1)
    assert saved_tapes(tmp_path)[VIRTUAL] == kept  # it had no time for them
    again = next(later._tasks(float("inf")))
    assert (again.engine, again.kind, again.tapes) == (VIRTUAL, AGAIN, kept)
    later._take_in(work(again))
    assert later.corpora[VIRTUAL].kept
    assert not later.corpora[VIRTUAL].unplayed


def test_a_tape_that_fails_today_stays_in_the_corpus(tmp_path: Path) -> None:
    farm = Farm(tmp_path, seed=1)
    farm.corpora[BAG].unplayed = [[1], [2]]
    task = Task(BAG, AGAIN, 0, 0.0, [[1], [2]])
    with mock.patch.object(farm_module, "keep_failure"):
        farm._take_in(Result(task, schedules=2, failures=[([2], "I1: lost")]))
    assert farm.corpora[BAG].unplayed == [[2]]
    assert len(farm.failures[BAG]) == 1


def test_an_exception_of_a_run_is_a_failure_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(choices: object, *, is_traced: bool = False) -> Played:
        raise ZeroDivisionError("of what judges")

    monkeypatch.setitem(ENGINES, BAG, replace(ENGINES[BAG], play=play))  # type: ignore[arg-type]
    ((_, violation),) = work(Task(BAG, FRESH, 1, 5.0)).failures
    assert violation == "I0: ZeroDivisionError: of what judges"


def test_the_page_says_what_was_done_found_and_missed(tmp_path: Path) -> None:
    farm = Farm(tmp_path, seed=1)
    farm._take_in(result(VIRTUAL, FRESH, ("a",), ("b",), cpu_s=30.0))
    farm._take_in(Result(Task(VIRTUAL, MUTANT, 0, 1.0, mutant="some bug"), schedules=9, cpu_s=60.0))
    chaos = Runs(1, 60.0, ["chaos-1.txt"], "confirmed entries lost: 1")
    text = page(farm, {"chaos": chaos}, {"partitions": "it needs root"}, seconds=120)
    assert "- partitions is left out: it needs root" in text
    assert "2 minutes, 1 failures." in text
    assert "| virtual time | fresh | 5 | 0.5 | 2 of 2 | 4 |" in text
    assert "| virtual time | 0 (0 different) | 1 | 0.0 | some bug |" in text
    assert "- virtual time: kill 1" in text
    assert "- chaos: chaos-1.txt" in text
