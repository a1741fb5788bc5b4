"""Makes the tape of a failed run short and its numbers small, while the run still fails in the same way.

Two moves, again and again until neither helps: leave out a stretch of the tape (what follows is then taken for other choices:
most tries come to nothing, and some to much), and lower a number. A shorter tape with zeros is a run with fewer faults
(choices.py), which a person can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

MAX_TRIES = 600
"""Runs that one shrinking may take: half a minute."""

IsBad = Callable[[Sequence[int]], list[int] | None]
"""Plays a tape; gives back the tape as it was played if the run fails in the same way, None otherwise."""


def shrink(tape: Sequence[int], is_bad: IsBad, maximum_tries: int = MAX_TRIES) -> list[int]:
    """The simplest tape that was found. ``tape`` itself must be bad."""
    best = _trimmed(tape)
    tries = 0
    improved = True
    while improved and tries < maximum_tries:
        improved = False
        for candidate in _simpler(best):
            tries += 1
            played = is_bad(candidate)
            if played is not None and _size(_trimmed(played)) < _size(best):
                best, improved = _trimmed(played), True
                break
            if tries >= maximum_tries:
                break
    return best


def _simpler(tape: list[int]) -> Iterator[list[int]]:
    """Candidates, the boldest first."""
    length = len(tape) // 2
    while length:
        for start in reversed(range(0, len(tape), length)):
            yield tape[:start] + tape[start + length :]
            if any(tape[start : start + length]):
                yield tape[:start] + [0] * len(tape[start : start + length]) + tape[start + length :]
        length //= 2
    for place, value in enumerate(tape):
        for lower in (value // 2, value - 1):
            if 0 < lower < value:
                yield [*tape[:place], lower, *tape[place + 1 :]]


def _trimmed(tape: Sequence[int]) -> list[int]:
    """Without the zeros at the end, which a tape that is at its end gives anyway."""
    end = len(tape)
    while end and tape[end - 1] == 0:
        end -= 1
    return list(tape[:end])


def _size(tape: list[int]) -> tuple[int, int, int]:
    return sum(value != 0 for value in tape), len(tape), sum(tape)
