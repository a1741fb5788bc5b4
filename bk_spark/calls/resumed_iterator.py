"""An iterator that an interrupt, or an error, does not end.

A generator that an exception has left is over: whoever goes on with it would take that for the end of what it reads. This one
begins another generator, behind the last item that it returned, so nothing is left out or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Place = TypeVar("_Place")


class ResumedIterator(Iterator[_Item], Generic[_Item, _Place]):
    """``begin`` gives what there is from a place on: each item, or None where there is none, with the place behind it."""

    def __init__(self, begin: Callable[[_Place], Generator[tuple[_Item | None, _Place], None, None]], place: _Place) -> None:
        self._begin = begin
        self.place = place
        """Behind the last item that was returned."""
        self._has_left = False
        """Whether an exception has left the generator: set while it runs. Python looks for signals at calls and when a loop
        goes round, so nothing comes between the steps that follow the return of ``next``."""
        self._running = begin(place)

    def __next__(self) -> _Item:
        while True:
            if self._has_left:
                self._running.close()
                self._running = self._begin(self.place)
            self._has_left = True
            given = next(self._running, None)
            if given is None:
                self._has_left = False
                raise StopIteration
            item, self.place = given
            self._has_left = False
            if item is not None:
                return item

    def close(self) -> None:
        """Give nothing more."""
        self._has_left = False
        self._running.close()
