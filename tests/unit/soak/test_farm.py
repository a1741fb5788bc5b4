"""What the farm learns from its runs, and what it makes of that."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.soak.farm import farm as farm_module
from tests.soak.farm import tasks
from tests.soak.farm.corpus import Corpus, saved_tapes
from tests.soak.farm.engines import ENGINES
from tests.soak.farm.farm import Farm
from tests.soak.farm.page import page
from tests.soak.farm.real import Runs
from tests.soak.farm.tasks import AGAIN, CONTINUED, FRESH, MUTANT, Result, Task, keep_failure, replayed, work

VIRTUAL, BAG = "virtual time", "bag"


def result(engine: str, kind: str, *reached: tuple[object, ...], cpu_s: float = 1.0) -> Result:
    learnt = [([1, 2, 3], frozenset([state])) for state in reached]
    return Result(Task(engine, kind, 0, 1.0), schedules=5, cpu_s=cpu_s, learnt=learnt, faults=Counter(kill=1))


def test_a_corpus_keeps_the_tapes_that_reached_something_first() -> None:
    corpus = Corpus()
    assert corpus.learn([1], [("a",), ("b",)]) == 2
    assert corpus.learn([2], [("a",)]) == 0
    assert corpus.learn([3], [("a",), ("c",)]) == 1
    assert [tape for tape, _ in corpus.kept] == [[1], [3]]
    assert corpus.met == {("a",): 3, ("b",): 1, ("c",): 1}


def test_runs_begin_more_often_like_a_tape_whose_states_few_others_met() -> None:
    corpus = Corpus()
    corpus.learn([1] * 10, [("common",)])
    corpus.learn([2] * 10, [("rare",)])
    for _ in range(98):
        corpus.learn([0], [("common",)])
    begins = corpus.begins(300, random.Random(1))
    rare = sum(begin[0] == 2 for begin in begins)
    assert rare > 280
    assert {len(begin) for begin in begins} == set(range(3, 10))


def test_the_time_goes_to_what_lately_found_the_most_for_a_second(tmp_path: Path) -> None:
    farm = Farm(tmp_path, seed=3)
    for engine in ENGINES:
        farm._take_in(result(engine, FRESH, (engine,)))
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
    mutant = "confirms out of order"
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
    Farm(tmp_path, seed=1).run(0.1, processes=1)
    kept = saved_tapes(tmp_path)
    assert kept[VIRTUAL]
    later = Farm(tmp_path, seed=2)
    assert {(task.engine, task.kind, len(task.tapes)) for task in later._tasks(0.0)} == {
        (engine, AGAIN, len(tapes)) for engine, tapes in kept.items()
    }


def test_the_page_says_what_was_done_found_and_missed(tmp_path: Path) -> None:
    farm = Farm(tmp_path, seed=1)
    farm._take_in(result(VIRTUAL, FRESH, ("a",), ("b",), cpu_s=30.0))
    farm._take_in(Result(Task(VIRTUAL, MUTANT, 0, 1.0, mutant="some bug"), schedules=9, cpu_s=60.0))
    text = page(farm, {"chaos": Runs(1, 60.0, ["chaos-1.txt"], "confirmed entries lost: 1")}, seconds=120)
    assert "2 minutes, 1 failures." in text
    assert "| virtual time | fresh | 5 | 0.5 | 2 of 2 | 4 |" in text
    assert "| virtual time | 0 (0 different) | 1 | 0.0 | some bug |" in text
    assert "- virtual time: kill 1" in text
    assert "- chaos: chaos-1.txt" in text
