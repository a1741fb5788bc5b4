"""Which bookies are lost and which ledgers lack copies: protocol rule 54, situations 76 and 79. No clock, no store."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bk_spark.config import LedgerOptions
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.replication.lost_bookies import LostBookies, Observation, missing_of

GRACE_MS = 60_000
ALL = frozenset({"b1", "b2", "b3", "b4"})


@dataclass
class Cluster:
    """An auditor that has seen all four bookies at 0 ms, and what it is shown."""

    bookies: LostBookies = field(default_factory=lambda: LostBookies(GRACE_MS))
    cookies: frozenset[str] = ALL
    marks: int = 0

    def __post_init__(self) -> None:
        self.look(0)

    def look(self, now_ms: int, *gone: str) -> frozenset[str]:
        """All but ``gone`` are registered; gives back who is lost."""
        self.bookies.observe(Observation(ALL - set(gone), self.cookies, self.marks), now_ms)
        return self.bookies.lost


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# --- the grace period


def test_while_all_are_there_none_is_lost_and_nothing_is_due(cluster: Cluster) -> None:
    assert cluster.look(10 * GRACE_MS) == set()
    assert cluster.bookies.deadline_ms() is None
    assert not cluster.bookies.is_audit_due


def test_a_bookie_is_lost_once_it_was_gone_for_the_grace_period(cluster: Cluster) -> None:
    assert cluster.look(1_000, "b1") == set()
    assert cluster.bookies.deadline_ms() == 1_000 + GRACE_MS
    assert cluster.look(999 + GRACE_MS, "b1") == set()
    assert cluster.look(1_000 + GRACE_MS, "b1") == {"b1"}
    assert cluster.bookies.is_audit_due


def test_a_bookie_that_is_back_in_time_makes_no_work(cluster: Cluster) -> None:
    """Situation 79."""
    cluster.look(1_000, "b1")
    assert cluster.look(999 + GRACE_MS) == set()
    assert cluster.look(2 * GRACE_MS) == set()
    assert cluster.bookies.deadline_ms() is None


def test_each_absence_has_a_grace_period_of_its_own(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS - 1)
    assert cluster.look(GRACE_MS, "b1") == set()
    assert cluster.look(2 * GRACE_MS, "b1") == {"b1"}


def test_how_long_a_bookie_is_waited_for_is_told(cluster: Cluster) -> None:
    cluster.look(1_000, "b2")
    assert cluster.bookies.waiting(11_000) == {"b2": GRACE_MS - 10_000}
    assert cluster.bookies.waiting(10 * GRACE_MS) == {"b2": 0}


def test_a_bookie_that_ledgers_name_and_that_was_never_seen_is_lost_after_the_grace_period() -> None:
    bookies = LostBookies(GRACE_MS, ["b1", "b9"])
    bookies.observe(Observation(ALL, ALL | {"b9"}, 0), 0)
    assert bookies.waiting(0) == {"b9": GRACE_MS}
    bookies.observe(Observation(ALL, ALL | {"b9"}, 0), GRACE_MS)
    assert bookies.lost == {"b9"}


# --- at once


def test_a_second_loss_while_one_is_waited_for_ends_the_waiting_for_both(cluster: Cluster) -> None:
    """Situation 79."""
    cluster.look(0, "b1")
    assert cluster.look(5_000, "b1", "b2") == {"b1", "b2"}


def test_two_that_go_at_the_same_moment_are_lost_at_once(cluster: Cluster) -> None:
    assert cluster.look(5_000, "b1", "b2") == {"b1", "b2"}


def test_a_second_loss_after_the_first_is_back_waits(cluster: Cluster) -> None:
    """A rolling restart: one after the other."""
    cluster.look(0, "b1")
    cluster.look(5_000)
    assert cluster.look(6_000, "b2") == set()


def test_one_that_goes_as_another_comes_back_is_waited_for(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    assert cluster.look(5_000, "b2") == set()
    assert cluster.bookies.waiting(5_000) == {"b2": GRACE_MS}


def test_a_loss_while_copies_of_an_earlier_one_are_missing_is_at_once(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.marks = 3
    assert cluster.look(GRACE_MS + 1, "b1", "b2") == {"b1", "b2"}


def test_a_loss_after_all_copies_of_an_earlier_one_were_made_again_is_waited_for(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    assert cluster.look(GRACE_MS + 1, "b1", "b2") == {"b1"}


def test_a_bookie_whose_cookie_is_gone_was_decommissioned_and_has_no_grace(cluster: Cluster) -> None:
    cluster.cookies = ALL - {"b1"}
    assert cluster.look(1_000, "b1") == {"b1"}


def test_a_registered_bookie_without_a_cookie_is_there(cluster: Cluster) -> None:
    cluster.cookies = frozenset()
    assert cluster.look(1_000) == set()


def test_an_audit_that_is_asked_for_waits_for_nobody(cluster: Cluster) -> None:
    cluster.look(1_000, "b1")
    cluster.bookies.wait_no_longer()
    assert cluster.bookies.lost == {"b1"}
    assert cluster.bookies.is_audit_due


# --- unknown is never lost


def test_registrations_that_cannot_be_read_say_nothing(cluster: Cluster) -> None:
    cluster.look(1_000, "b1")
    cluster.bookies.observe_nothing()
    assert cluster.bookies.lost == set()
    assert cluster.look(GRACE_MS + 2_000) == set()


def test_several_that_are_missing_after_the_store_was_away_are_waited_for_together(cluster: Cluster) -> None:
    """Their sessions may have expired with the server's; they come back one by one."""
    cluster.bookies.observe_nothing()
    assert cluster.look(1_000, "b1", "b2") == set()
    assert cluster.look(2_000, "b2") == set()
    assert cluster.look(3_000) == set()


def test_several_that_are_missing_at_an_auditors_first_look_are_waited_for_together() -> None:
    bookies = LostBookies(GRACE_MS, ALL)
    bookies.observe(Observation(frozenset({"b1"}), ALL, 0), 0)
    assert bookies.lost == set()
    bookies.observe(Observation(frozenset({"b1"}), ALL, 0), GRACE_MS)
    assert bookies.lost == {"b2", "b3", "b4"}


def test_a_loss_after_the_first_look_is_at_once_while_others_are_waited_for() -> None:
    bookies = LostBookies(GRACE_MS, ALL)
    bookies.observe(Observation(ALL - {"b1"}, ALL, 0), 0)
    bookies.observe(Observation(ALL - {"b1", "b2"}, ALL, 0), 1)
    assert bookies.lost == {"b1", "b2"}


def test_that_no_bookie_at_all_is_registered_says_nothing_of_any(cluster: Cluster) -> None:
    assert cluster.look(1_000, *ALL) == set()
    assert cluster.look(100 * GRACE_MS, *ALL) == set()
    assert cluster.bookies.deadline_ms() is None


def test_after_none_was_registered_the_grace_of_all_begins_with_the_first_that_is_back(cluster: Cluster) -> None:
    """The power was off: they boot, one after the other."""
    cluster.look(0, "b1")
    cluster.look(1_000, *ALL)
    assert cluster.look(10 * GRACE_MS, "b2", "b3", "b4") == set()
    assert cluster.bookies.waiting(10 * GRACE_MS) == dict.fromkeys(["b2", "b3", "b4"], GRACE_MS)
    assert cluster.look(11 * GRACE_MS, "b4") == {"b4"}


def test_times_that_passed_while_autorecovery_was_disabled_do_not_count(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.bookies.start_over()
    assert cluster.look(10 * GRACE_MS, "b1") == set()
    assert cluster.look(11 * GRACE_MS, "b1") == {"b1"}


def test_a_bookie_that_was_lost_before_autorecovery_was_disabled_is_audited_again(cluster: Cluster) -> None:
    """It may have come back meanwhile, unseen, and gone again: ledgers that were made then name it, and are not marked."""
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.bookies.note_audit(["b1"], ["b1"])
    cluster.bookies.start_over()
    assert cluster.look(2 * GRACE_MS, "b1") == set()
    assert cluster.look(3 * GRACE_MS, "b1") == {"b1"}
    assert cluster.bookies.is_audit_due


# --- after an audit


def test_a_lost_bookie_is_audited_once_while_its_ledgers_are_marked(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.marks = 3
    cluster.bookies.note_audit(["b1"], ["b1", "b2", "b3"])
    assert not cluster.bookies.is_audit_due
    assert cluster.look(2 * GRACE_MS, "b1") == {"b1"}
    assert not cluster.bookies.is_audit_due


def test_a_lost_bookie_that_no_ledger_names_is_forgotten(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.bookies.note_audit(["b1"], ["b2", "b3"])
    assert cluster.look(10 * GRACE_MS, "b1") == set()
    assert cluster.bookies.deadline_ms() is None


def test_when_no_ledger_is_marked_any_more_it_is_looked_whether_the_lost_are_still_named(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.bookies.note_audit({"b1"}, ALL)
    cluster.marks = 5
    cluster.look(GRACE_MS + 1, "b1")
    assert not cluster.bookies.is_audit_due
    cluster.marks = 0
    assert cluster.look(GRACE_MS + 2, "b1") == {"b1"}
    assert cluster.bookies.is_audit_due
    cluster.bookies.note_audit({"b1"}, ALL - {"b1"})
    assert cluster.look(GRACE_MS + 3, "b1") == set()


def test_copies_that_were_all_made_during_the_audit_have_another_one_follow(cluster: Cluster) -> None:
    """The marks came and went between two looks: it is not known yet that no ledger names the bookie any more."""
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.bookies.note_audit({"b1"}, ALL)
    assert cluster.look(GRACE_MS + 1, "b1") == {"b1"}
    assert cluster.bookies.is_audit_due
    cluster.bookies.note_audit({"b1"}, ALL - {"b1"})
    assert cluster.look(GRACE_MS + 2, "b1") == set()
    assert not cluster.bookies.is_audit_due


def test_a_bookie_that_was_lost_during_an_audit_needs_another_one(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    begun_with = cluster.bookies.lost
    cluster.marks = 1
    cluster.look(GRACE_MS + 1, "b1", "b2")
    cluster.bookies.note_audit(begun_with, ["b1", "b2"])
    assert cluster.bookies.is_audit_due


def test_a_bookie_that_is_back_is_not_lost_and_its_next_loss_is_audited_again(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.bookies.note_audit(["b1"], ["b1"])
    assert cluster.look(GRACE_MS + 1) == set()
    cluster.look(GRACE_MS + 2, "b1")
    assert cluster.look(2 * GRACE_MS + 2, "b1") == {"b1"}
    assert cluster.bookies.is_audit_due


def test_an_audit_that_is_asked_for_looks_again_for_bookies_that_are_lost_already(cluster: Cluster) -> None:
    cluster.look(0, "b1")
    cluster.look(GRACE_MS, "b1")
    cluster.bookies.note_audit(["b1"], ["b1"])
    cluster.bookies.wait_no_longer()
    assert cluster.bookies.is_audit_due


# --- ledgers


def ledger(*ensembles: tuple[int, tuple[str, ...]]) -> LedgerMetadata:
    size = len(ensembles[0][1])
    options = LedgerOptions(ensemble_size=size, write_quorum=size, ack_quorum=1)
    metadata = new_ledger(1, options, ensembles[0][1], created_ms=0, creator_token=0)
    for first, ensemble in ensembles[1:]:
        metadata = metadata.with_ensemble(first, ensemble)
    return metadata


def test_a_ledger_lacks_the_copies_of_every_lost_bookie_in_any_of_its_fragments() -> None:
    metadata = ledger((0, ("b1", "b2")), (5, ("b3", "b2")), (9, ("b3", "b4")))
    assert metadata.bookies == {"b1", "b2", "b3", "b4"}
    assert missing_of(metadata, frozenset({"b4", "b1", "b9"})) == ("b1", "b4")
    assert missing_of(metadata, frozenset({"b9"})) == ()


@pytest.mark.parametrize("closed", [False, True])
def test_a_ledger_without_entries_lacks_copies_too(closed: bool) -> None:
    """Protocol rule 54."""
    metadata = ledger((0, ("b1", "b2")))
    assert missing_of(metadata.closed_at(-1, 0) if closed else metadata, frozenset({"b2"})) == ("b2",)


def test_a_last_fragment_without_entries_lacks_copies_too() -> None:
    """Protocol rule 54."""
    metadata = ledger((0, ("b1", "b2")), (5, ("b1", "b3")))
    assert missing_of(metadata.closed_at(4, 100), frozenset({"b3"})) == ("b3",)
