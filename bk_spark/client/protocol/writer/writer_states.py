"""The life of a writer, as one table: its states, what may happen in each, and the state that follows.

``AddEntries`` is driven by it. Its one way from state to state is ``state_after``, which refuses a step that the table has not.

* Entries are confirmed in WRITING alone: never while the ensemble changes (16).
* The write of a change and the closing write are never under way at once. A close that is asked for during the former waits for
  its answer, in HELD_UP; so does a writer that has failed, in FAILING, for a close may follow (25).
* A close that has its end still collects answers and marks the ledger for the bookies that may lack entries (63).
* A recovery's writer knows the first four states alone: the recovery closes the ledger.

Ref: the BookKeeper protocol, "Closing a ledger as a writer". The numbers are those of docs/rules.md, "Protocol".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Life(Enum):
    """A state in the life of a writer, and what it says of the writer."""

    WRITING = "takes appends and confirms entries"
    CHANGING = "takes appends and confirms nothing, because another ensemble is on its way"
    FAILING = "has failed, and the metadata write of a change is not answered"
    FAILED = "has failed"
    HELD_UP = "is to close once the metadata write of a change is answered"
    CLOSING = "waits for the answer to its closing write"
    COLLECTING = "has its end, and collects the answers that bookies owe for confirmed entries"
    MARKING = "marks the ledger for its gaps"
    CLOSED = "has ended"


class Step(Enum):
    """What may happen to a writer."""

    APPEND = "takes an append or a force, or gives up a silent bookie"
    CONFIRM = "confirms an entry"
    CHANGE = "begins to change its ensemble"
    CHANGED = "has ended the change, and no other followed at once"
    FAIL = "fails"
    CLOSE = "is asked to close"
    ANSWERED = "has the answer to its closing write"
    COLLECTED = "waits for no bookie's answer any more"
    MARKED = "has no mark left to try"


NEXT: Final[Mapping[Life, Mapping[Step, Life]]] = {
    Life.WRITING: {
        Step.APPEND: Life.WRITING,
        Step.CONFIRM: Life.WRITING,
        Step.CHANGE: Life.CHANGING,
        Step.FAIL: Life.FAILED,
        Step.CLOSE: Life.CLOSING,
    },
    Life.CHANGING: {
        Step.APPEND: Life.CHANGING,
        Step.CHANGED: Life.WRITING,
        Step.FAIL: Life.FAILING,
        Step.CLOSE: Life.HELD_UP,
    },
    Life.FAILING: {Step.CHANGED: Life.FAILED, Step.CLOSE: Life.HELD_UP},
    Life.FAILED: {Step.CLOSE: Life.CLOSING},
    Life.HELD_UP: {Step.CHANGED: Life.CLOSING},
    Life.CLOSING: {Step.ANSWERED: Life.COLLECTING},
    Life.COLLECTING: {Step.COLLECTED: Life.MARKING},
    Life.MARKING: {Step.MARKED: Life.CLOSED},
    Life.CLOSED: {},
}
"""What may happen in each state, and the state after it. Any other step is a bug of whoever takes it."""


def states_that_allow(step: Step) -> tuple[Life, ...]:
    return tuple(state for state, steps in NEXT.items() if step in steps)


# Every append and every ack asks. To look through one of these costs a fraction of what it costs to name or hash a member.
MAY_APPEND: Final = states_that_allow(Step.APPEND)
MAY_CONFIRM: Final = states_that_allow(Step.CONFIRM)
MAY_CHANGE: Final = states_that_allow(Step.CHANGE)
MAY_END: Final = states_that_allow(Step.MARKED)
MAY_FAIL: Final = states_that_allow(Step.FAIL)
MAY_CLOSE: Final = states_that_allow(Step.CLOSE)
AWAIT_CHANGE: Final = states_that_allow(Step.CHANGED)


def state_after(state: Life, step: Step) -> Life:
    """The state after a step."""
    if step not in NEXT[state]:
        raise AssertionError(f"a writer that {state.value} never {step.value}: {state.name}, {step.name}")
    return NEXT[state][step]
