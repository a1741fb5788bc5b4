"""What a run did, as the protocol's own steps: what clients sent and heard, bookies took and answered, the metadata store kept.

A trace is a list of these in the order in which they happened. ``observers.py`` makes them, ``specification.py`` judges them,
and a line of JSON holds one each (``encode``, ``decode``).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import IdPattern


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids from ``first`` to ``last``, inclusive, that ``slot`` holds in an ensemble of ``size`` with this write quorum."""

    first: int
    last: int
    size: int = 1
    quorum: int = 1
    slot: int = 0

    @classmethod
    def of(cls, first: int, last: int, pattern: IdPattern) -> Ids:
        return cls(first, last, pattern.ensemble_size, pattern.write_quorum, pattern.slot)

    def expand(self) -> list[int]:
        ids: list[int] = IdPattern(self.size, self.quorum, self.slot).ids(self.first, self.last).tolist()
        return ids


Fragments = tuple[tuple[int, tuple[str, ...]], ...]
"""First entry id and ensemble of each."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The part of a ledger's metadata that the protocol is about."""

    state: str
    fragments: Fragments
    last_entry_id: int | None = None

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> Ledger:
        return cls(metadata.state.name, fragments_of(metadata), metadata.last_entry_id)


def fragments_of(metadata: LedgerMetadata) -> Fragments:
    return tuple((one.first_entry_id, one.ensemble) for one in metadata.fragments)


@dataclass(frozen=True, slots=True)
class Action:
    """``who`` does it: a bookie, or a client's operation."""

    who: str


# --- a client's operation

WRITER, DEFERRED, RECOVERY, COPY = "writer", "deferred writer", "recovery", "copy"
"""Kinds of operations. ``DEFERRED`` is a writer that defers syncs, ``COPY`` a re-replication."""


@dataclass(frozen=True, slots=True)
class Begins(Action):
    """It knows ``ledger`` at ``version``; -1: it does not say which."""

    kind: str
    write_quorum: int
    ack_quorum: int
    ledger: Ledger
    version: int


@dataclass(frozen=True, slots=True)
class SendsAdd(Action):
    request: int
    bookie: str
    ids: Ids
    last_add_confirmed: int
    is_recovery: bool


@dataclass(frozen=True, slots=True)
class HearsAdd(Action):
    request: int
    status: str


@dataclass(frozen=True, slots=True)
class GivesUp(Action):
    """It counts the answer to an add no more: the bookie has failed, or all is over."""

    request: int


@dataclass(frozen=True, slots=True)
class Confirms(Action):
    """The application is told that all entries up to ``last`` are confirmed."""

    last: int


@dataclass(frozen=True, slots=True)
class WorksWith(Action):
    """Another ensemble, from here on."""

    fragments: Fragments


@dataclass(frozen=True, slots=True)
class AsksToFence(Action):
    request: int
    bookie: str


@dataclass(frozen=True, slots=True)
class HearsFenced(Action):
    request: int
    status: str
    last_add_confirmed: int
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class EndsFencing(Action):
    """It takes entries up to ``floor`` for confirmed, and reads from there on."""

    floor: int


@dataclass(frozen=True, slots=True)
class AsksToRead(Action):
    request: int
    bookie: str
    ids: Ids
    is_fencing: bool


@dataclass(frozen=True, slots=True)
class HearsEntries(Action):
    request: int
    ids: Ids


@dataclass(frozen=True, slots=True)
class HearsEnd(Action):
    """``status`` is about ``entry_id``; None: about the bookie as a whole."""

    request: int
    status: str
    entry_id: int | None


@dataclass(frozen=True, slots=True)
class Writes(Action):
    """It sends a compare-and-set."""

    ledger: Ledger
    expected_version: int


@dataclass(frozen=True, slots=True)
class Learns(Action):
    """The store answers what it holds, or that it took what was written."""

    version: int
    ledger: Ledger


# --- a bookie


@dataclass(frozen=True, slots=True)
class AnswersAdd(Action):
    """``is_durable``: an answer OK says that no crash takes the entries any more."""

    ids: Ids
    is_recovery: bool
    status: str
    is_durable: bool = True


@dataclass(frozen=True, slots=True)
class AnswersFence(Action):
    """``status`` OK: it has fenced the ledger, durably."""

    status: str


@dataclass(frozen=True, slots=True)
class AnswersRead(Action):
    """It gave ``ids`` and ended with ``status``, which is about ``entry_id``."""

    ids: tuple[Ids, ...]
    status: str
    entry_id: int


@dataclass(frozen=True, slots=True)
class Starts(Action):
    """A process of it. ``in_limbo``: it may have lost data, and knows it."""

    in_limbo: bool


@dataclass(frozen=True, slots=True)
class LosesData(Action):
    """What it has is not what it acknowledged, by a fault that the protocol does not cover."""


@dataclass(frozen=True, slots=True)
class DeletesLedger(Action):
    """It deletes what it has of a ledger, which is closed and names others, or is deleted itself."""


@dataclass(frozen=True, slots=True)
class LeavesLimbo(Action):
    """It has what it is to have again."""


# --- the metadata store


@dataclass(frozen=True, slots=True)
class Stores(Action):
    """``who`` wrote what is now at ``version``. ``is_edit``: somebody whose business is not the protocol did."""

    version: int
    ledger: Ledger
    is_edit: bool = False


def _kinds(of: type[Action]) -> dict[str, type[Action]]:
    return {kind.__name__: kind for kind in of.__subclasses__()}


def encode(action: Action) -> str:
    return json.dumps([type(action).__name__, *(_plain(getattr(action, one.name)) for one in dataclasses.fields(action))])


def decode(line: str) -> Action:
    name, *values = json.loads(line)
    kind = _kinds(Action)[name]
    fields = [_value(one.type, value) for one, value in zip(dataclasses.fields(kind), values, strict=True)]
    return kind(*fields)


def _plain(value: object) -> object:
    if isinstance(value, Ids | Ledger):
        return [getattr(value, one.name) for one in dataclasses.fields(value)]
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _value(kind: Any, value: Any) -> Any:
    """``kind`` is the annotation's text."""
    match kind:
        case "Ids":
            return Ids(*value)
        case "tuple[Ids, ...]":
            return tuple(Ids(*one) for one in value)
        case "Ledger":
            state, fragments, last = value
            return Ledger(state, _fragments(fragments), last)
        case "Fragments":
            return _fragments(value)
        case _:
            return value


def _fragments(plain: list[tuple[int, list[str]]]) -> Fragments:
    return tuple((first, tuple(ensemble)) for first, ensemble in plain)
