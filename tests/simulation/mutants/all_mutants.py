"""The deliberate bugs that the simulator must catch, each with the engine that does, and those that it cannot, with the reason.

A *mutant* takes one guard out of the shipped code (bookie_mutants.py, recovery_mutants.py,
replication_mutants.py, restored_disk_mutants.py, writer_mutants.py). It is caught if
an engine meets a violation of one of the named invariants within its budget; a script that breaks an expectation has caught a
bug of liveness, I14. ``make test`` uses the first engine named, a script or a small scope; ``make mutants`` uses all of
them.

*Survivors* are guards behind which another one stands. Each is caught together with the other one.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

from tests.simulation.engines.exhaustive import Scope
from tests.simulation.mutants import bookie_mutants, recovery_mutants, writer_mutants
from tests.simulation.mutants.mutant import Bag, Engine, Exhaustive, Patch, Script, Survivor, VirtualTime, caught, together
from tests.simulation.mutants.mutant import mutant as _mutant
from tests.simulation.mutants.mutants_of_replication import REPLICATION_MUTANTS, REPLICATION_SURVIVORS
from tests.simulation.mutants.restored_disk_mutants import RESTORED_DISK_MUTANTS

GAPS = Script("rule_63_a_writer_marks_the_gaps_that_it_leaves")
TWO, TWO_ONE = (2, 2, 2), (2, 2, 1)

MUTANTS = (
    _mutant(
        "recovery reads fence (1)",
        recovery_mutants.reads_do_not_fence,
        "I1 I7",
        Script("s1_recovery_reads_fence_two_bookies"),
        Script("s1_recovery_reads_fence_three_bookies"),
        Exhaustive(Scope(TWO)),
        Bag(),
    ),
    _mutant(
        "absent is what Qw - Qa + 1 deny (5)", recovery_mutants.negatives_at_ack_quorum, "I7 I8", Exhaustive(Scope(TWO_ONE))
    ),
    _mutant(
        "absent is what Qw - Qa + 1 deny (5)",
        recovery_mutants.one_negative_is_enough,
        "I7 I8",
        Script("s4_no_false_negative_in_limbo"),
        Exhaustive(Scope(TWO_ONE)),
        Bag(),
        VirtualTime(),
    ),
    _mutant("unknown is not absent (5)", recovery_mutants.unknown_is_negative, "I7 I8", Script("s9_damage_is_not_absence")),
    _mutant(
        "recovery reads from the first ensemble (8)",
        recovery_mutants.reads_follow_the_changed_ensemble,
        "I6 I7",
        Script("s8_recovery_reads_stay_with_the_first_ensemble"),
        VirtualTime(),
    ),
    _mutant(
        "recovery's ensembles stay local (9)",
        recovery_mutants.recovery_publishes_its_ensembles,
        "I5 I6 I7",
        Script("s7_recovery_keeps_its_ensembles_to_itself"),
        Bag(),
        VirtualTime(),
    ),
    _mutant("known gaps are marked (63)", writer_mutants.gaps_are_not_noted, "I14 I17", GAPS, VirtualTime()),
    _mutant("at the close, too (63)", writer_mutants.a_writer_that_closes_does_not_mark, "I14 I17", GAPS, VirtualTime()),
    _mutant(
        "a replaced bookie's acks are taken back (17)",
        writer_mutants.replaced_bookies_keep_their_acks,
        "I3 I6 I7 I8",
        Script("acks_of_a_replaced_bookie_are_taken_back_first"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "late replies of replaced bookies are ignored (20)",
        writer_mutants.late_acks_of_replaced_bookies_count,
        "I3 I6 I7 I8",
        Script("late_acks_of_replaced_bookies_do_not_count"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "acks are taken back from all entries first (18, issue 3005)",
        writer_mutants.confirms_between_taking_acks_back,
        "I3 I6",
        Script("acks_of_a_replaced_bookie_are_taken_back_first"),
    ),
    _mutant(
        "nothing is confirmed while the ensemble changes (16)",
        writer_mutants.confirms_while_the_ensemble_changes,
        "I3 I6",
        Script("nothing_is_confirmed_while_the_ensemble_changes"),
        VirtualTime(),
    ),
    _mutant(
        "a new fragment starts at LAC + 1 (20)",
        writer_mutants.new_fragment_starts_behind_what_was_pushed,
        "I3 I6 I8",
        Script("a_lost_request_of_a_metadata_write_is_no_success"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "what is pending is sent to new bookies",
        writer_mutants.nothing_is_resent_to_new_bookies,
        "I14",
        Script("a_lost_request_of_a_metadata_write_is_no_success"),
        VirtualTime(),
    ),
    _mutant(
        "close is at the LAC (25)",
        writer_mutants.close_at_what_was_pushed,
        "I7 I8",
        Exhaustive(Scope(TWO, closes=True)),
        Script("a_writer_closes_at_what_is_confirmed"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "metadata writes compare (22)",
        writer_mutants.compare_and_set_does_not_compare,
        "I4",
        Script("s6_recovery_writes_carry_a_frozen_lac"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "close leaves a recovery alone (26)",
        writer_mutants.writer_close_ignores_recovery,
        "I14",
        Script("a_writer_does_not_close_over_a_recovery"),
    ),
    _mutant(
        "an ensemble change leaves a recovery alone (12)",
        writer_mutants.ensemble_change_whatever_the_state,
        "I5",
        Exhaustive(Scope(TWO, spares=1, timeouts=1)),
    ),
    _mutant(
        "entries are confirmed in order (16)",
        writer_mutants.confirms_out_of_order,
        "I2",
        Script("nothing_is_confirmed_while_the_ensemble_changes"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "adds carry the LAC",
        writer_mutants.adds_carry_what_was_pushed_as_lac,
        "I9",
        Script("a_lost_request_of_a_metadata_write_is_no_success"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "recovery's LAC is frozen (Recovery's writes)",
        recovery_mutants.recovery_writes_carry_a_growing_lac,
        "I9 I13",
        Script("s6_recovery_writes_carry_a_frozen_lac"),
        VirtualTime(),
    ),
    _mutant("a bookie's LAC never falls", bookie_mutants.lac_is_overwritten, "I9", Script("the_lac_of_a_bookie_never_falls")),
    _mutant(
        "acks come after the sync (37)",
        bookie_mutants.acks_before_the_sync,
        "I3 I11",
        Script("an_add_is_acked_once_it_is_durable"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "fences are answered after the sync (35)",
        bookie_mutants.fences_are_answered_before_the_sync,
        "I1 I10",
        Script("a_fence_is_answered_once_it_is_durable"),
        VirtualTime(),
    ),
    _mutant(
        "limbo covers closed ledgers (storage rule 11)",
        bookie_mutants.limbo_is_for_open_ledgers_only,
        "I1 I10",
        Script("s5_lost_fence_after_the_close"),
    ),
    _mutant(
        "limbo after a loss: no forgotten fence (50)",
        bookie_mutants.no_limbo,
        "I1 I10 I11",
        Script("s3_lost_fence_before_the_close"),
        VirtualTime(),
    ),
    _mutant(
        "limbo after a loss: no false negative (50)",
        bookie_mutants.no_limbo,
        "I7 I11",
        Script("s4_no_false_negative_in_limbo_two_bookies"),
    ),
    _mutant(
        "recovery waits for its write-backs (11)",
        recovery_mutants.recovery_does_not_wait_for_its_writes,
        "I8",
        Script("recovery_waits_for_its_writes"),
        Exhaustive(Scope(TWO)),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "a write whose reply is lost may not have happened (22)",
        writer_mutants.lost_reply_is_success,
        "I3 I4 I6",
        Script("a_lost_request_of_a_metadata_write_is_no_success"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "an ack counts once",
        writer_mutants.an_ack_that_comes_twice_counts_twice,
        "I3",
        Script("s1_recovery_reads_fence_two_bookies"),
        Bag(),
        VirtualTime(),
    ),
    _mutant("damage is unknown (39)", bookie_mutants.damage_is_absence, "I7 I11", Script("s9_damage_is_not_absence")),
    _mutant(
        "recovery starts above the older fragments (6)",
        recovery_mutants.recovery_starts_at_the_beginning,
        "I5 I7",
        Script("s2_recovery_starts_above_older_fragments"),
        VirtualTime(),
    ),
    _mutant(
        "a fenced bookie takes recovery's adds",
        bookie_mutants.fences_refuse_recovery_adds,
        "I14",
        Script("recovery_waits_for_its_writes"),
        Bag(),
        VirtualTime(),
    ),
    _mutant(
        "adds name the bookie that they mean (49)",
        bookie_mutants.adds_for_another_bookie_are_taken,
        "I1",
        Script("a_new_bookie_at_an_old_address_takes_no_old_adds"),
    ),
    _mutant(
        "an explicit LAC is told until readers learn it (62)",
        writer_mutants.an_explicit_lac_is_told_once,
        "I14 I16",
        Script("an_idle_tail_becomes_visible"),
        VirtualTime(),
    ),
    _mutant(
        "a quorum that readers meet has the explicit LAC (62)",
        writer_mutants.one_bookie_that_took_an_explicit_lac_is_enough,
        "I14 I16",
        Script("an_idle_tail_becomes_visible"),
        VirtualTime(),
    ),
    _mutant(
        "a witness tells what must exist of the logs (storage 15)",
        bookie_mutants.nothing_tells_of_the_logs,
        "I7 I8 I11",
        Script("a_lost_newest_journal_is_not_absence"),
        Script("a_lost_end_of_a_journal_is_not_a_tear"),
        VirtualTime(),
    ),
    _mutant(
        "no id names two ledgers (64)",
        bookie_mutants.an_id_names_one_ledger,
        "I7 I9 I12 I13",
        Script("an_id_that_was_given_out_twice_names_two_ledgers"),
        VirtualTime(),
    ),
    _mutant(
        "bookies that are all slow are waited for (68)",
        writer_mutants.silent_bookies_are_given_up_whoever_is_left,
        "I14",
        Script("bookies_that_are_all_slow_are_waited_for"),
    ),
    *REPLICATION_MUTANTS,
    *RESTORED_DISK_MUTANTS,
)

SURVIVORS = (
    Survivor(
        "fencing ends at Qa bookies",
        "recovery reads fence, and a negative verdict needs Qw - Qa + 1 of them: the end is fenced before it is decided",
        recovery_mutants.fence_coverage_at_ack_quorum,
        recovery_mutants.reads_do_not_fence,
        ("I1", "I7"),
        Exhaustive(Scope(TWO_ONE)),
        (Scope(TWO_ONE),),
    ),
    Survivor(
        "fencing ends at Qw - Qa + 1 bookies, whatever the ensemble's size",
        "as above; where the ensemble is the write set it is the right number",
        recovery_mutants.fence_coverage_from_the_write_quorum,
        recovery_mutants.reads_do_not_fence,
        ("I1", "I7"),
        Exhaustive(Scope((3, 2, 2))),
        (Scope((3, 2, 2)),),
    ),
    Survivor(
        "there is no fencing phase",
        "as above; what is lost is the floor, and the older writer learns of its fate later",
        recovery_mutants.recovery_fences_nobody_first,
        recovery_mutants.reads_do_not_fence,
        ("I1", "I7"),
        Exhaustive(Scope(TWO_ONE)),
        (Scope(TWO_ONE), Scope(TWO, closes=True)),
    ),
    Survivor(
        "recovery does not mark the ledger",
        "its closing write refuses a ledger whose last fragment has changed",
        recovery_mutants.recovery_is_not_marked,
        recovery_mutants.recovery_closes_over_what_has_changed,
        ("I6", "I7"),
        Script("a_writer_keeps_its_ensemble_during_recovery"),
        (Scope(TWO_ONE), Scope(TWO)),
    ),
    Survivor(
        "a fenced writer goes on",
        "it can only replace the bookie that refused it, and its ensemble change refuses a ledger in recovery",
        writer_mutants.fenced_writer_goes_on,
        writer_mutants.ensemble_change_whatever_the_state,
        ("I5",),
        Exhaustive(Scope(TWO, spares=2)),
        (Scope(TWO, spares=2),),
    ),
    Survivor(
        "an ensemble change whose reply is lost did not happen",
        "the failed bookies stay failed: nothing relies on the former ensemble, and the next write finds another tail",
        writer_mutants.lost_reply_is_failure,
        writer_mutants.unreplaced_bookies_are_welcome_at_once,
        ("I3", "I6"),
        Script("a_lost_reply_of_a_metadata_write_is_no_failure"),
    ),
    *REPLICATION_SURVIVORS,
)


def table(processes: int) -> Iterator[tuple[str, bool]]:
    """Search for all mutants with all their engines: a line each, and whether at least one of the engines caught it."""
    yield f"{'mutant':<60} engine: runs until caught", True
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_line_of_mutant, range(len(MUTANTS)))
        yield from pool.imap(_line_of_survivor, range(len(SURVIVORS)))


def _line_of_mutant(number: int) -> tuple[str, bool]:
    mutant = MUTANTS[number]
    return _line(mutant.name, mutant.patch, mutant.invariants, mutant.engines)


def _line_of_survivor(number: int) -> tuple[str, bool]:
    one = SURVIVORS[number]
    return _line(f"{one.name}, with its partner", together(one.patch, one.partner), one.invariants, (one.engine,))


def _line(name: str, patch: Patch, invariants: tuple[str, ...], engines: tuple[Engine, ...]) -> tuple[str, bool]:
    with patch():
        runs = {type(engine).__name__: caught(engine.runs(), invariants) for engine in engines}
    texts = [f"{engine}: {number or 'not caught'}" for engine, number in runs.items()]
    return f"{name:<60.60} {', '.join(texts)}", any(runs.values())
