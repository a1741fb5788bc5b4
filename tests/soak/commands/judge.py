"""Judges one case: exit codes, what was said, and that the state is the one before or the one after, never between. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from tests.soak.commands.cases import Case, Ended
from tests.soak.commands.model import State, difference

SPOILT = ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error", "terminate called", "Aborted")
TOOK_EFFECT = "what is printed cannot be written"


def problems(case: Case, before: State, ended: tuple[Ended, ...], after: State) -> Iterator[str]:
    for one in ended:
        yield from said(case, one)
    yield from states(case, before, ended, after)


def said(case: Case, one: Ended) -> Iterator[str]:
    """What is wrong with the exit code and the texts of one copy."""
    spoilt = next((mark for mark in SPOILT if mark in one.err or mark in one.out), None)
    if spoilt is not None:
        yield f"it printed '{spoilt}'"
    allowed = {0, 1, 2} | ({-case.signal} if case.signal is not None and one.was_told else set())
    if one.code not in allowed:
        yield f"it ended with {one.code}"
    lines = [line for line in one.err.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("bk-spark: ")]
    was_interrupted = case.signal in (signal.SIGINT, signal.SIGTERM) and one.was_told
    if one.code == 1 and not was_interrupted and len(told) != 1:
        yield f"it failed with {len(told)} sentences"
    if one.code == 1 and len(lines) > len(told) and not was_interrupted:
        yield "it failed with more than its sentence"
    if one.code == 2 and not any(line.startswith("usage: ") for line in lines):
        yield "it was wrong usage without saying how it is used"
    if case.is_wrong_usage and one.code != 2 and not one.was_told:
        yield f"it was wrong usage, and ended with {one.code}"
    if one.code == 0 and told:
        yield "it succeeded and said that it failed"


def states(case: Case, before: State, ended: tuple[Ended, ...], after: State) -> Iterator[str]:
    """What is wrong with the state, by how often the command may have taken effect."""
    told = [one for one in ended if one.was_told and case.signal is not None and one.code != 0]
    done = [one for one in ended if one.code == 0]
    if case.effect is None:
        yield from _unless_equal(before, after, "it changed something")
        return
    wanted = case.effect(before)
    if wanted is None:
        if done and not case.runs_until_told:
            yield "it succeeded where it had to be refused"
        yield from _unless_equal(before, after, "it was refused, and changed something")
        return
    failed = [one for one in ended if one.code in (1, 2) and one not in told]
    if failed and case.copies == 1:
        yield f"it failed without a reason: {failed[0].err.strip()[:300]}"
    reached = [before]
    for _ in ended:
        following = case.effect(reached[-1])
        reached.append(reached[-1] if following is None else following)
    at_least, at_most = len(done), len(done) + len(told)
    if case.may_conflict:
        at_least = min(at_least, 1)  # one may find that the other has done it
    if after not in reached[at_least : at_most + 1]:
        nearest = reached[at_least]
        yield f"{len(done)} succeeded, {len(told)} were stopped, and the state is none of theirs: {difference(nearest, after)}"
    if case.copies > 1 and failed and not case.may_conflict:
        yield f"of {case.copies} at once one failed: {failed[0].err.strip()[:300]}"


def _unless_equal(before: State, after: State, problem: str) -> Iterator[str]:
    text = difference(before, after)
    if text:
        yield f"{problem}: {text}"
