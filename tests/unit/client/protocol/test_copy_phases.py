"""The phases of a re-replication, and what may follow each."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from bk_spark.client.protocol.rereplicate_fragment import NEXT_PHASES, CopyPhase, RereplicateFragment
from bk_spark.entries.rate import ByteRate
from tests.unit.client.protocol.copy_model import LIMITS, Copying, World, ledger

FOLLOWING = {
    CopyPhase.START: {CopyPhase.CHOOSE, CopyPhase.FORCE},
    CopyPhase.CHOOSE: {CopyPhase.COPY, CopyPhase.FORCE},
    CopyPhase.COPY: {CopyPhase.CHOOSE, CopyPhase.FORCE, CopyPhase.ENDED},
    CopyPhase.FORCE: {CopyPhase.CHOOSE, CopyPhase.REPLACE},
    CopyPhase.REPLACE: {CopyPhase.ENDED},
    CopyPhase.ENDED: set(),
}


def _reachable(first: CopyPhase) -> set[CopyPhase]:
    found = {first}
    waiting = [first]
    while waiting:
        new = NEXT_PHASES[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _ways_of(copying: Copying, monkeypatch: pytest.MonkeyPatch) -> list[tuple[CopyPhase, CopyPhase]]:
    """Run it, and note each phase with the one that followed."""
    ways = []
    enter = RereplicateFragment._enter

    def note(machine: RereplicateFragment, phase: CopyPhase) -> None:
        ways.append((machine._phase, phase))
        enter(machine, phase)

    monkeypatch.setattr(RereplicateFragment, "_enter", note)
    copying.run()
    return ways


def test_every_phase_says_what_may_follow_it() -> None:
    assert NEXT_PHASES == FOLLOWING
    assert set(NEXT_PHASES) == set(CopyPhase)


def test_every_phase_is_reached_and_leads_to_the_end_which_nothing_follows() -> None:
    assert _reachable(CopyPhase.START) == set(CopyPhase)
    assert all(CopyPhase.ENDED in _reachable(phase) for phase in CopyPhase)
    assert [phase for phase, following in NEXT_PHASES.items() if not following] == [CopyPhase.ENDED]


def test_a_bookie_gets_its_slot_only_once_the_copies_were_forced() -> None:
    """Ref: protocol rule 61."""
    assert [phase for phase in CopyPhase if CopyPhase.REPLACE in NEXT_PHASES[phase]] == [CopyPhase.FORCE]


@pytest.mark.parametrize(("phase", "after"), list(product(CopyPhase, CopyPhase)), ids=lambda one: one.name)
def test_a_phase_that_may_not_follow_raises(phase: CopyPhase, after: CopyPhase) -> None:
    machine = RereplicateFragment(World(ledger(1, 3, 3, 2)).task("b0"), LIMITS, ByteRate(1 << 40))
    machine._phase = phase
    if after in FOLLOWING[phase]:
        machine._enter(after)
        assert machine._phase is after
    else:
        with pytest.raises(AssertionError, match=f"that {phase.value} does not go on to {after.name}"):
            machine._enter(after)
        assert machine._phase is phase


def test_a_re_replication_that_meets_no_failure_goes_through_its_phases_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ledger(4, 3, 3, 2))
    copying = Copying(world, world.task("b0"))
    order = [CopyPhase.CHOOSE, CopyPhase.COPY, CopyPhase.FORCE, CopyPhase.REPLACE, CopyPhase.ENDED]
    assert copying.machine._phase is CopyPhase.CHOOSE
    assert _ways_of(copying, monkeypatch) == list(pairwise(order))


def test_a_re_replication_whose_new_bookie_loses_its_copy_chooses_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ledger(4, 3, 3, 2))
    copying = Copying(world, world.task("b0"))
    while copying.machine._phase is not CopyPhase.FORCE:
        copying.step()
    world.bookies["s0"].boot += 1
    ways = _ways_of(copying, monkeypatch)
    assert ways[0] == (CopyPhase.FORCE, CopyPhase.CHOOSE)
    assert ways[-1] == (CopyPhase.REPLACE, CopyPhase.ENDED)


def test_a_re_replication_that_finds_no_bookie_ends_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ledger(4, 3, 3, 2))
    for name in [one for one in world.bookies if one.startswith("s")]:
        del world.bookies[name]
    copying = Copying(world, world.task("b0"))
    ways = _ways_of(copying, monkeypatch)
    assert ways == [
        (CopyPhase.CHOOSE, CopyPhase.FORCE),
        (CopyPhase.FORCE, CopyPhase.REPLACE),
        (CopyPhase.REPLACE, CopyPhase.ENDED),
    ]
