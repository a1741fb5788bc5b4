"""The simulator itself: a short campaign, and that a run can be had again, played back and made small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from bk_spark.bookie.admission import Admission
from bk_spark.wire.messages import Status
from tests.budget import IS_SOAK
from tests.checkout import ROOT
from tests.simulation.__main__ import main
from tests.simulation.engines.campaign import keep_failure, replay_failure, report, run_seeds
from tests.simulation.engines.choices import SeededChoices, TapeChoices, every_sequence
from tests.simulation.engines.engine import Outcome, run_choices
from tests.simulation.engines.shrink import shrink

SCHEDULES = 1500 if IS_SOAK else 150


def test_nothing_confirmed_is_lost_in_random_schedules_with_faults() -> None:
    totals = run_seeds(range(SCHEDULES))
    assert totals.failed_seeds == [], report(totals, 1)
    assert totals.schedules == SCHEDULES
    assert len(totals.shapes) == 12
    assert len(totals.faults) > 15


def test_a_seed_gives_the_same_run_to_the_byte() -> None:
    first, second = _run(5), _run(5)
    assert first.digest == second.digest
    assert first.trace == second.trace != []


def test_a_tape_gives_the_same_run_as_the_seed_that_it_was_recorded_from() -> None:
    outcome = _run(11)
    assert run_choices(TapeChoices(outcome.tape), is_traced=True).digest == outcome.digest


def test_a_run_does_not_depend_on_the_order_of_sets() -> None:
    program = "from tests.simulation.engines.campaign import run_seed; print(*(run_seed(seed).digest for seed in (3, 7, 12)))"
    digests = {_output(program, hash_seed) for hash_seed in ("0", "77")}
    assert len(digests) == 1


def test_a_failure_is_found_shrunk_written_down_and_can_be_replayed(tmp_path: Path) -> None:
    with patch.object(Admission, "of_staged", _ignoring_fences):
        seed = run_seeds(range(60)).failed_seeds[0]
        line = keep_failure(seed, tmp_path, maximum_tries=100)
        (path,) = tmp_path.iterdir()
        replayed = replay_failure(path)
    assert line.startswith(f"seed {seed}, virtual time, ")
    assert str(path) in line
    assert replayed.violation is not None
    assert replayed.violation.invariant in line
    assert len(replayed.tape) < len(_run(seed).tape) / 2
    assert replay_failure(path).violation is None, "with the guard in its place the same tape is harmless"


def test_the_command_says_what_it_ran_and_ends_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "--seeds", "6", "--processes", "1", "--failures", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("6 schedules, ")
    assert "faults: " in said
    assert " schedules/s" in said
    assert main(["show", "3"]) == 0
    assert "writer     appends" in capsys.readouterr().out


def test_shrinking_keeps_what_makes_a_tape_bad_and_nothing_else() -> None:
    def is_bad(tape: object) -> list[int] | None:
        assert isinstance(tape, list)
        return tape if any(value >= 7 for value in tape) else None

    assert shrink([3, 0, 5, 90, 2, 8, 1, 1], is_bad) == [7]


def test_an_enumeration_plays_every_sequence_of_choices_once() -> None:
    seen = []
    for choices in every_sequence():
        first = choices.choose(2, "first")
        seen.append((first, choices.choose(3, "second") if first else 0))
    assert seen == [(0, 0), (1, 0), (1, 1), (1, 2)]


_of_staged = Admission.of_staged


def _ignoring_fences(self: Admission, *arguments: object) -> Status:
    """A bookie that takes the adds of a displaced writer."""
    status = _of_staged(self, *arguments)  # type: ignore[arg-type]
    return Status.OK if status is Status.FENCED else status


def _run(seed: int) -> Outcome:
    return run_choices(SeededChoices(seed), is_traced=True)


def _output(program: str, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, check=True)
    return result.stdout.decode()
