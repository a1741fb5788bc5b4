"""Every decision of a simulated run is one call of ``choose``: which fault, which delay, which message.

What was chosen is recorded as a *tape*, a list of small numbers that, played again, gives the very same run. Three back
ends: drawn from a seed, played from a tape, and every sequence there is, one after the other.

0 is always the most harmless choice (no fault, the shortest delay, the smallest size), so that a tape that breaks off goes on
harmlessly and a lower value makes a simpler run: shrinking rests on both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Choices:
    """The interface, and the recording of the tape. Back ends say what comes next."""

    def __init__(self) -> None:
        self.tape: list[int] = []

    def choose(self, count: int, label: str) -> int:
        """A number from 0 to ``count`` - 1. ``label`` says what for, to people."""
        if count <= 1:
            return 0
        value = self._next(count, label)
        self.tape.append(value)
        return value

    def chance(self, percent: int, label: str) -> bool:
        """True in ``percent`` of a hundred cases."""
        return percent > 0 and self.choose(100, label) >= 100 - percent

    def between(self, lowest: int, highest: int, label: str) -> int:
        """A number from ``lowest`` to ``highest``, inclusive."""
        return lowest + self.choose(highest - lowest + 1, label)

    def pick(self, items: Sequence[_Item], label: str) -> _Item:
        return items[self.choose(len(items), label)]

    def _next(self, count: int, label: str) -> int:
        raise NotImplementedError


class SeededChoices(Choices):
    """Drawn at random; a seed gives the same sequence on every machine."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed).random

    def _next(self, count: int, label: str) -> int:
        return int(self._random() * count)


class ContinuedChoices(SeededChoices):
    """Begins like a tape, and goes on at random."""

    def __init__(self, begin: Sequence[int], seed: int) -> None:
        super().__init__(seed)
        self._begin = begin

    def _next(self, count: int, label: str) -> int:
        place = len(self.tape)
        return self._begin[place] % count if place < len(self._begin) else super()._next(count, label)


class TapeChoices(Choices):
    """Played from a tape; 0 once it is at its end. A value that is too high for its choice is taken modulo."""

    def __init__(self, tape: Sequence[int]) -> None:
        super().__init__()
        self._played = tape

    def _next(self, count: int, label: str) -> int:
        place = len(self.tape)
        return self._played[place] % count if place < len(self._played) else 0


class EnumeratedChoices(Choices):
    """One sequence of an enumeration: begins with ``prefix``, goes on with zeros."""

    def __init__(self, prefix: Sequence[int]) -> None:
        super().__init__()
        self._prefix = prefix
        self.counts: list[int] = []

    def _next(self, count: int, label: str) -> int:
        place = len(self.tape)
        self.counts.append(count)
        return self._prefix[place] if place < len(self._prefix) else 0


def every_sequence(maximum_depth: int | None = None) -> Iterator[EnumeratedChoices]:
    """Choices for one run each, depth first, until every sequence was had; the run makes its choices between two of them.

    With ``maximum_depth`` only the first so many choices of a run are varied.
    """
    prefix: list[int] | None = []
    while prefix is not None:
        choices = EnumeratedChoices(prefix)
        yield choices
        prefix = _successor(choices.tape[:maximum_depth], choices.counts[:maximum_depth])


def _successor(tape: list[int], counts: list[int]) -> list[int] | None:
    for place in reversed(range(len(tape))):
        if tape[place] + 1 < counts[place]:
            return [*tape[:place], tape[place] + 1]
    return None
