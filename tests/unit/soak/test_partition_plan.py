"""What the rounds of the partitions draw."""

from __future__ import annotations

from itertools import chain

from tests.soak.partitions.faults import links_of
from tests.soak.partitions.link import Link
from tests.soak.partitions.plan import (
    BOOKIES,
    CLIENTS,
    CLOCK_JUMP,
    DISK_FAULTS,
    LINK_FAULTS,
    LIVES,
    PROCESS_FAULTS,
    ROUND_S,
    WITH_CLOCKS,
    ZOOKEEPERS,
    Fault,
    draw,
)

PLANS = [draw(seed) for seed in range(60)]
CUT, LOSSY = Link(is_cut=True), Link(loss=0.5)


def test_a_seed_draws_the_same_plan_again_and_other_seeds_draw_others() -> None:
    assert draw(5) == draw(5)
    assert len(set(PLANS)) == len(PLANS)


def test_every_kind_of_fault_comes_up_within_the_round() -> None:
    faults = list(chain.from_iterable(plan.faults for plan in PLANS))
    assert {fault.kind for fault in faults} == {*LINK_FAULTS, *PROCESS_FAULTS, *DISK_FAULTS, CLOCK_JUMP}
    assert all(0 <= fault.after_s < ROUND_S for fault in faults)
    assert {len(plan.lives) for plan in PLANS} == {LIVES}


def test_a_fault_of_the_network_is_between_different_nodes_and_never_touches_the_one_that_judges() -> None:
    for fault in chain.from_iterable(plan.faults for plan in PLANS):
        assert {*fault.nodes, *fault.peers} <= {*ZOOKEEPERS, *BOOKIES, *CLIENTS}
        assert not fault.is_of_network or fault.links()


def test_a_bridge_leaves_one_bookie_that_sees_both_halves() -> None:
    bridges = [fault for plan in PLANS for fault in plan.faults if fault.kind == "bridge"]
    assert bridges
    for bridge in bridges:
        (shared,) = {*ZOOKEEPERS, *BOOKIES, *CLIENTS} - {*bridge.nodes, *bridge.peers}
        assert shared in BOOKIES


def test_only_a_cut_one_way_lets_packets_back() -> None:
    assert Fault("one way", ("a",), ("b",), 0, 1, CUT, is_one_way=True).links() == {("a", "b"): CUT}
    assert Fault("cut", ("a",), ("b",), 0, 1, CUT).links() == {("a", "b"): CUT, ("b", "a"): CUT}


def test_a_link_has_all_faults_that_hold_at_once() -> None:
    faults = [Fault("one way", ("a",), ("b",), 0, 1, CUT, is_one_way=True), Fault("lossy", ("a",), ("b", "c"), 0, 1, LOSSY)]
    assert links_of(faults) == {
        ("a", "b"): Link(is_cut=True, loss=0.5),
        ("b", "a"): LOSSY,
        ("a", "c"): LOSSY,
        ("c", "a"): LOSSY,
    }


def test_disks_fail_at_bookies_and_clocks_of_our_processes_jump() -> None:
    faults = list(chain.from_iterable(plan.faults for plan in PLANS))
    assert {node for fault in faults if fault.kind in DISK_FAULTS for node in fault.nodes} <= {*BOOKIES}
    jumps = [fault for fault in faults if fault.kind == CLOCK_JUMP]
    assert {node for fault in jumps for node in fault.nodes} <= {*WITH_CLOCKS}
    assert min(fault.ahead_s for fault in jumps) < 0 < max(fault.ahead_s for fault in jumps)
