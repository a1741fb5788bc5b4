"""The deliberate bugs of re-replication (replication_mutants.py) with the engines that catch them, as in mutants.py."""

from __future__ import annotations

from tests.simulation.mutants import replication_mutants as bugs
from tests.simulation.mutants.mutant import RereplicatedLedger, Script, Survivor, UnjournaledBookies, mutant

NAMED = Script("a_new_bookie_is_named_once_all_is_durable")
OPEN_TAIL = Script("rule_53_the_open_tail_is_fenced_not_copied")
LAST_BUT_ONE = Script("rule_55_the_last_fragment_but_one_may_be_open")
FENCED_FIRST = Script("situation_40_a_fenced_bookie_takes_copies")
FENCED_MEANWHILE = Script("situation_40_a_fence_comes_while_copies_are_made")
LOST_LOCK = Script("a_copy_under_a_lost_lock_is_not_named")
OLD_DECISION = Script("an_old_decision_deletes_no_new_copies")
ONE_BOOT = Script("rule_61_copies_are_durable_in_one_boot_before_they_are_named")
ONE_BOOT_OF_RECOVERY = Script("rule_61_a_bookie_that_joins_a_recovery_is_named_with_all_it_acked")
RACK_IS_BACK = Script("situation_89_copies_move_to_a_rack_that_is_there_again")
OPEN_END_STAYS = Script("situation_89_the_open_end_of_a_ledger_does_not_move")
FILLED_SLOT = Script("a_slot_that_was_filled_keeps_its_bookie")

REPLICATION_MUTANTS = (
    mutant("the open tail is not copied (53)", bugs.the_open_tail_is_copied, "I15", OPEN_TAIL, RereplicatedLedger()),
    mutant(
        "nor what no bookie knows to be confirmed (55)",
        bugs.the_last_fragment_but_one_counts_as_closed,
        "I15",
        LAST_BUT_ONE,
        RereplicatedLedger(),
    ),
    mutant(
        "copies are durable before they are named (53)", bugs.copies_need_not_be_durable, "I15", NAMED, RereplicatedLedger()
    ),
    mutant(
        "copies are forced before they are named (61)",
        bugs.copies_are_not_forced,
        "I6 I8 I15",
        ONE_BOOT,
        ONE_BOOT_OF_RECOVERY,
        UnjournaledBookies(),
    ),
    mutant(
        "in the boot that acked them (61)",
        bugs.copies_count_in_whatever_boot,
        "I6 I8 I15",
        ONE_BOOT,
        ONE_BOOT_OF_RECOVERY,
        UnjournaledBookies(),
    ),
    mutant("every entry is copied (53)", bugs.joining_batches_drops_one, "I15", NAMED, RereplicatedLedger()),
    mutant("copies are adds of a recovery (53)", bugs.copies_are_ordinary_adds, "I14", FENCED_FIRST, RereplicatedLedger()),
    mutant(
        "changes of others stay (22)",
        bugs.changes_of_others_are_overwritten,
        "I4 I5 I15",
        FENCED_MEANWHILE,
        RereplicatedLedger(),
    ),
    mutant("no bookie twice in an ensemble", bugs.a_bookie_of_the_ensemble_may_be_chosen, "I14", NAMED, RereplicatedLedger()),
    mutant(
        "a worker whose session is lost changes nothing (45)",
        bugs.metadata_is_written_without_the_guard,
        "I15",
        LOST_LOCK,
        RereplicatedLedger(),
    ),
    mutant("copies move only to more racks (89)", bugs.copies_move_for_nothing, "I15", RACK_IS_BACK, RereplicatedLedger()),
    mutant("the open end of a ledger does not move (55)", bugs.the_open_end_moves, "I15", OPEN_END_STAYS, RereplicatedLedger()),
    mutant(
        "copies that came since stay (45)", bugs.copies_that_came_since_are_deleted, "I15", OLD_DECISION, RereplicatedLedger()
    ),
    mutant("flushed ones, too (45)", bugs.a_checkpoint_makes_copies_old, "I15", OLD_DECISION),
    mutant(
        "and such as were here already (45)",
        bugs.copies_that_are_here_already_go_unnoticed,
        "I15",
        OLD_DECISION,
        RereplicatedLedger(),
    ),
)

REPLICATION_SURVIVORS = (
    Survivor(
        "a refused copy counts",
        "whoever refuses or breaks off does not answer the force that follows, or answers it in another boot",
        bugs.a_refused_copy_counts,
        bugs.copies_are_not_forced,
        ("I15",),
        NAMED,
    ),
    Survivor(
        "a slot is given away whoever has it",
        "two workers would have to be at one fragment: the lock keeps them apart, and the guard one whose lock is gone",
        bugs.a_slot_is_taken_whoever_has_it,
        bugs.metadata_is_written_without_the_guard,
        ("I15",),
        FILLED_SLOT,
    ),
)
