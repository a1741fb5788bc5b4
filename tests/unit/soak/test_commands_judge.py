"""The judge of ``make commands``: what it holds against commands, and what it lets pass."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.soak.commands.cases import Case, Ended, refused
from tests.soak.commands.judge import problems
from tests.soak.commands.model import LogState, State

EMPTY = State()
COLUMNS = (("id", "bigint"),)
ONE = EMPTY.with_log("a", LogState().appended(COLUMNS, ((("id", 1),),)))
TWO = EMPTY.with_log("a", ONE.logs["a"].appended(COLUMNS, ((("id", 1),),)))
APPEND = Case(
    ("log", "append"), lambda state: state.with_log("a", state.logs.get("a", LogState()).appended(COLUMNS, ((("id", 1),),)))
)
DONE = Ended(0, "", "", 0.1)
FAILED = Ended(1, "", "bk-spark: it cannot be done\n", 0.1)
KILLED = Ended(-9, "", "", 0.1, was_told=True)


def found(case: Case, before: State, ended: tuple[Ended, ...], after: State) -> list[str]:
    return list(problems(case, before, ended, after))


@pytest.mark.parametrize(
    ("case", "ended", "after"),
    [
        (APPEND, (DONE,), ONE),
        (replace(APPEND, signal=9), (KILLED,), EMPTY),
        (replace(APPEND, signal=9), (KILLED,), ONE),
        (replace(APPEND, copies=2), (DONE, DONE), TWO),
        (replace(APPEND, copies=2, signal=9), (KILLED, DONE), ONE),
        (replace(APPEND, copies=2, signal=9), (KILLED, DONE), TWO),
        (replace(APPEND, signal=signal.SIGINT), (Ended(1, "", "", 0.1, was_told=True),), ONE),
        (replace(APPEND, effect=refused), (FAILED,), EMPTY),
        (replace(APPEND, effect=None), (FAILED,), EMPTY),
    ],
    ids=map(str, range(9)),
)
def test_what_was_or_what_was_to_be_is_right(case, ended, after) -> None:
    assert found(case, EMPTY, ended, after) == []


@pytest.mark.parametrize(
    ("case", "ended", "after", "problem"),
    [
        (APPEND, (DONE,), EMPTY, "the state is none of theirs"),
        (APPEND, (DONE,), TWO, "the state is none of theirs"),
        (APPEND, (FAILED,), EMPTY, "it failed without a reason"),
        (APPEND, (FAILED,), ONE, "the state is none of theirs"),
        (replace(APPEND, copies=2), (DONE, DONE), ONE, "the state is none of theirs"),
        (replace(APPEND, signal=9), (KILLED,), EMPTY.with_log("a", LogState()), "the state is none of theirs"),
        (replace(APPEND, effect=refused), (FAILED,), EMPTY.with_log("a", LogState()), "it was refused, and changed something"),
        (replace(APPEND, effect=refused), (DONE,), EMPTY, "it succeeded where it had to be refused"),
        (APPEND, (Ended(-9, "", "", 0.1),), EMPTY, "it ended with -9"),
        (APPEND, (Ended(-11, "", "", 0.1),), EMPTY, "it ended with -11"),
        (replace(APPEND, effect=refused), (replace(FAILED, err="one\ntwo\n"),), EMPTY, "it failed with 0 sentences"),
        (replace(APPEND, effect=refused), (replace(FAILED, err=FAILED.err + "more\n"),), EMPTY, "more than its sentence"),
        (replace(APPEND, signal=2), (replace(KILLED, code=-2, err="Traceback (most recent call last)"),), EMPTY, "it printed"),
        (replace(APPEND, effect=refused), (replace(FAILED, code=2),), EMPTY, "without saying how it is used"),
    ],
    ids=map(str, range(14)),
)
def test_what_is_between_or_not_said_is_a_problem(case, ended, after, problem) -> None:
    assert any(problem in one for one in found(case, EMPTY, ended, after))
