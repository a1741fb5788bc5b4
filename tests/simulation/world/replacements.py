"""What a re-replication may write: new bookies for such that are leaving, where these have all that they are to stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bk_spark.client.protocol.placement.rack_spread import location_of, spread_of
from bk_spark.config import DEFAULT_RACK
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.simulation.engines.history import History


@dataclass(frozen=True, slots=True)
class _Replaced:
    index: int
    """Of the fragment."""
    slot: int
    old: str
    new: str


def as_before_replacement(old: LedgerMetadata, new: LedgerMetadata) -> LedgerMetadata:
    """``old``, with the ensembles that a replacement may have changed: all else must be as it was."""
    return replace(old, fragments=new.fragments) if _borders(old) == _borders(new) else old


def wrong_replacement(history: History, new: LedgerMetadata, leaving: frozenset[str]) -> str:
    """Why ``new`` is not what re-replication may make of the current metadata; empty if it is."""
    old = history.current
    if replace(new, fragments=old.fragments) != old or _borders(old) != _borders(new):
        return f"a re-replication changed more than bookies: from {old} to {new}"
    for one in _replaced(old, new):
        ensemble = new.fragments[one.index].ensemble
        if one.old not in leaving or len(set(ensemble)) < len(ensemble):
            return f"{one.new} takes the place of {one.old} in {ensemble}; only {sorted(leaving)} are leaving"
        problem = _unknown_end(history, new, one) or _missing(history, new, one)
        if problem:
            return problem
    return ""


def not_wider(old: LedgerMetadata, new: LedgerMetadata, racks: Mapping[str, str]) -> str:
    """Why the change of ensembles is no move to more racks; empty if it is."""
    for before, after in zip(old.fragments, new.fragments, strict=False):
        spreads = [
            spread_of([location_of(racks.get(one, DEFAULT_RACK)) for one in fragment.ensemble], new.write_quorum)
            for fragment in (before, after)
        ]
        if before != after and spreads[1] <= spreads[0]:
            return f"copies moved from {before.ensemble} to {after.ensemble}, and span no more racks: {spreads}"
    return ""


def _replaced(old: LedgerMetadata, new: LedgerMetadata) -> Iterator[_Replaced]:
    for index, (before, after) in enumerate(zip(old.fragments, new.fragments, strict=True)):
        for slot, pair in enumerate(zip(before.ensemble, after.ensemble, strict=True)):
            if pair[0] != pair[1]:
                yield _Replaced(index, slot, *pair)


def _unknown_end(history: History, new: LedgerMetadata, one: _Replaced) -> str:
    """Protocol rules 53 and 55."""
    if new.is_closed:
        return ""
    if one.index == len(new.fragments) - 1:
        return f"{one.new} got a place in the open tail"
    known = max(history.told_lac, history.shown_lac)  # what was written and never synced may be read again after a restart
    if one.index == len(new.fragments) - 2 and known < (end := new.last_fragment.first_entry_id - 1):
        return f"a fragment up to {end} was copied while no bookie knew more than {known} to be confirmed"
    return ""


def _missing(history: History, new: LedgerMetadata, one: _Replaced) -> str:
    missing = sorted(_wanted(new, one.index, one.slot) - history.acknowledged.get(one.new, set()))
    return f"{one.new} takes the place of {one.old} without entries {missing}" if missing else ""


def wanted_of(bookie: str, metadata: LedgerMetadata) -> set[int]:
    """What a bookie should hold of a closed ledger."""
    fragments = enumerate(metadata.fragments)
    slots = [(index, one.ensemble.index(bookie)) for index, one in fragments if bookie in one.ensemble]
    return set().union(*(_wanted(metadata, *where) for where in slots))


def _wanted(metadata: LedgerMetadata, index: int, slot: int) -> set[int]:
    """What a slot of a fragment that has an end is to hold."""
    first, last = metadata.fragments[index].first_entry_id, metadata.last_entry_id
    if index + 1 < len(metadata.fragments):
        last = metadata.fragments[index + 1].first_entry_id - 1
    assert last is not None
    return set(metadata.slot_pattern(slot).ids(first, last).tolist())


def _borders(metadata: LedgerMetadata) -> list[int]:
    return [one.first_entry_id for one in metadata.fragments]
