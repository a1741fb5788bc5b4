"""What auditors and people tell one another through the metadata store."""

from __future__ import annotations

import pytest

from bk_spark.metadata.protobuf_text import from_text
from bk_spark.metadata.registration import BookieAddress, initialise_cluster, register
from bk_spark.metadata.znodes import Znodes, is_bookie_id
from bk_spark.proto.under_replication_pb2 import AuditorVoteFormat
from bk_spark.replication.auditor_znodes import (
    AuditorElection,
    AuditorZnodes,
    auditor_report,
    candidates,
    current_auditor,
    is_requested,
    observe_bookies,
    request_audit,
)
from bk_spark.replication.lost_bookies import Observation
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")
HOUR_S = 3600.0


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree(lambda: 1_000)
    initialise_cluster(MemoryStore(tree), ZNODES)
    return tree


@pytest.fixture
def store(tree: MemoryTree) -> MemoryStore:
    return MemoryStore(tree)


# --- bookies


def test_read_only_bookies_are_there_like_writable_ones(store: MemoryStore) -> None:
    """Protocol rule 47: they serve reads, fences and recovery."""
    register(store, ZNODES, BookieAddress("b1", "host", 1))
    register(store, ZNODES, BookieAddress("b2", "host", 2), read_only=True)
    store.create(ZNODES.cookie("b3"))
    seen = observe_bookies(store, ZNODES, 5)
    assert seen == Observation(frozenset({"b1", "b2"}), frozenset({"b3"}), 5)


def test_a_registration_that_nobody_can_read_is_a_bookie_that_is_there(store: MemoryStore) -> None:
    store.create(ZNODES.registration("b1"), b"\xff junk", ephemeral=True)
    assert observe_bookies(store, ZNODES, 0).registered == {"b1"}


# --- the report


def test_an_auditor_that_ends_late_leaves_the_report_of_its_successor(tree: MemoryTree, store: MemoryStore) -> None:
    former, successor = AuditorZnodes(store, ZNODES), AuditorZnodes(MemoryStore(tree), ZNODES)
    former.report({"auditor": "a"})
    store.delete(ZNODES.auditor_report)  # its session expired
    successor.report({"auditor": "b"})
    former.withdraw_report()
    assert (auditor_report(store, ZNODES) or {})["auditor"] == "b"
    successor.withdraw_report()
    assert auditor_report(store, ZNODES) is None


# --- the election: situation 78


def test_the_oldest_vote_is_elected_and_the_next_one_when_it_goes(tree: MemoryTree) -> None:
    sessions = [MemoryStore(tree) for _ in range(3)]
    standing = [AuditorElection(one, ZNODES, f"auditor-{number}") for number, one in enumerate(sessions)]
    assert [one.is_elected() for one in standing] == [True, False, False]
    assert [one.is_elected() for one in reversed(standing)] == [False, False, True]
    assert current_auditor(sessions[2], ZNODES) == "auditor-0"
    assert candidates(sessions[2], ZNODES) == ["auditor-0", "auditor-1", "auditor-2"]
    sessions[0].close()
    assert [one.is_elected() for one in standing[1:]] == [True, False]
    standing[1].withdraw()
    assert standing[2].is_elected()


def test_who_lost_the_vote_votes_anew_and_stands_behind_the_others(tree: MemoryTree) -> None:
    store, other = MemoryStore(tree), MemoryStore(tree)
    first, second = AuditorElection(store, ZNODES, "first"), AuditorElection(other, ZNODES, "second")
    assert first.is_elected()
    assert not second.is_elected()
    first.withdraw()  # as the server does when it expires the session
    assert not first.is_elected()
    assert second.is_elected()
    assert candidates(store, ZNODES) == ["second", "first"]


def test_a_vote_whose_creation_was_never_answered_is_found_and_no_second_one_is_made(store: MemoryStore) -> None:
    create = store.create_sequential

    def lose_the_answer(prefix: str, value: bytes = b"", **options: bool) -> str:
        create(prefix, value, **options)
        raise ConnectionError

    store.create_sequential = lose_the_answer  # type: ignore[method-assign]
    election = AuditorElection(store, ZNODES, "only")
    with pytest.raises(ConnectionError):
        election.is_elected()
    assert election.is_elected()
    assert candidates(store, ZNODES) == ["only"]


def test_votes_are_apache_bookkeepers(store: MemoryStore) -> None:
    assert AuditorElection(store, ZNODES, "host:1").is_elected()
    (name,) = store.children("/ledgers/underreplication/auditorelection")
    assert name == "V_0000000000"
    assert store.get(f"{ZNODES.auditor_election}/{name}").value.startswith(b'bookieId: "host:1-')
    assert current_auditor(store, ZNODES) == "host:1"


def test_a_vote_is_a_valid_bookie_id_whatever_the_candidate_is_called(store: MemoryStore) -> None:
    """Apache's ZkLedgerAuditorManager.getCurrentAuditor takes no other: ``decommissionbookie`` and ``whoisauditor`` ask it."""
    assert AuditorElection(store, ZNODES, "Jo's host #1").is_elected()
    (name,) = store.children(ZNODES.auditor_election)
    vote = from_text(store.get(f"{ZNODES.auditor_election}/{name}").value, AuditorVoteFormat(), "the vote")
    assert is_bookie_id(vote.bookieId)
    assert candidates(store, ZNODES) == ["Jo_s_host__1"]


def test_without_candidates_nobody_is_the_auditor(store: MemoryStore) -> None:
    assert current_auditor(store, ZNODES) is None


# --- requests of Apache's tools


def test_a_delay_that_is_written_with_its_value_or_with_0_asks_for_one_audit(store: MemoryStore) -> None:
    """BookKeeperAdmin.triggerAudit writes what it read; Auditor.submitLostBookieRecoveryDelayChangedEvent takes 0 too."""
    auditor = AuditorZnodes(store, ZNODES)
    auditor.start_delay(60.0)
    assert store.get(ZNODES.lost_bookie_delay).value == b"60"
    assert not auditor.is_audit_signalled()
    for value, is_signal in ((b"60", True), (b"3600", False), (b"3600", True), (b"0", True)):
        store.set(ZNODES.lost_bookie_delay, value, store.get(ZNODES.lost_bookie_delay).version)
        assert auditor.is_audit_signalled() is is_signal
        assert not auditor.is_audit_signalled()


def test_a_delay_from_before_the_term_asks_for_nothing_and_is_kept(store: MemoryStore) -> None:
    store.create(ZNODES.lost_bookie_delay, b"0", make_parents=True)
    auditor = AuditorZnodes(store, ZNODES)
    auditor.start_delay(60.0)
    assert not auditor.is_audit_signalled()
    assert store.get(ZNODES.lost_bookie_delay).value == b"0"
    store.delete(ZNODES.lost_bookie_delay)
    assert not auditor.is_audit_signalled()


# --- requests for audits


def test_a_request_stands_until_it_was_fulfilled_by_whoever_is_the_auditor_then(tree: MemoryTree, store: MemoryStore) -> None:
    """Situation 78: the audit is not lost with the auditor."""
    request_audit(store, ZNODES, reads_replicas=False)
    with_session = MemoryStore(tree)
    assert AuditorZnodes(with_session, ZNODES).request() is not None
    with_session.close()
    successor = AuditorZnodes(MemoryStore(tree), ZNODES)
    request = successor.request()
    assert request is not None
    assert not request.reads_replicas
    successor.fulfil(request)
    assert not is_requested(store, ZNODES)


def test_a_request_that_is_made_during_an_audit_is_fulfilled_by_another_one(store: MemoryStore) -> None:
    znodes = AuditorZnodes(store, ZNODES)
    request_audit(store, ZNODES, reads_replicas=False)
    request = znodes.request()
    assert request is not None
    request_audit(store, ZNODES, reads_replicas=False)
    znodes.fulfil(request)
    assert is_requested(store, ZNODES)
    assert znodes.request() != request


def test_a_request_to_read_replicas_is_not_taken_back_by_a_smaller_one(store: MemoryStore) -> None:
    request_audit(store, ZNODES, reads_replicas=True)
    request_audit(store, ZNODES, reads_replicas=False)
    request = AuditorZnodes(store, ZNODES).request()
    assert request is not None
    assert request.reads_replicas


# --- the report


def test_the_report_is_what_the_auditor_said_last_and_goes_with_its_session(tree: MemoryTree, store: MemoryStore) -> None:
    session = MemoryStore(tree)
    znodes = AuditorZnodes(session, ZNODES)
    for lost in (["b1"], ["b1", "b2"]):
        znodes.report({"lost": lost})
        report = auditor_report(store, ZNODES)
        assert report is not None
        assert report["lost"] == lost
    session.close()
    assert auditor_report(store, ZNODES) is None


def test_a_report_without_news_is_not_written(store: MemoryStore) -> None:
    znodes = AuditorZnodes(store, ZNODES)
    znodes.report({"lost": []})
    znodes.report({"lost": []})
    assert store.get(ZNODES.auditor_report).version == 0


def test_a_report_of_a_newer_version_or_none_at_all_says_nothing(store: MemoryStore) -> None:
    store.create(ZNODES.auditor_report, b'{"version": 2}', make_parents=True)
    assert auditor_report(store, ZNODES) is None
    store.set(ZNODES.auditor_report, b"[", 0)
    assert auditor_report(store, ZNODES) is None


# --- the check's interval


def test_in_a_new_cluster_the_interval_of_the_check_begins_with_the_first_auditor(tree: MemoryTree, store: MemoryStore) -> None:
    znodes = AuditorZnodes(store, ZNODES)
    znodes.start_check_interval()
    assert not znodes.is_check_due(HOUR_S)
    first = store.get(ZNODES.ledger_check_time)
    AuditorZnodes(MemoryStore(tree), ZNODES).start_check_interval()
    assert store.get(ZNODES.ledger_check_time) == first


def test_a_check_is_due_once_the_last_one_is_so_long_ago(store: MemoryStore) -> None:
    znodes = AuditorZnodes(store, ZNODES)
    store.create(ZNODES.ledger_check_time, b"\x08\x80\xd0\xdb\xc3\xf4\x31", make_parents=True)  # in 2024
    assert znodes.is_check_due(HOUR_S)
    znodes.note_check()
    assert not znodes.is_check_due(HOUR_S)
    assert znodes.is_check_due(1e-9)


@pytest.mark.parametrize("value", [b"\xff", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"], ids=["junk", "in the far future"])
def test_where_the_time_of_the_last_check_cannot_be_right_a_check_is_due(store: MemoryStore, value: bytes) -> None:
    store.create(ZNODES.ledger_check_time, value, make_parents=True)
    assert AuditorZnodes(store, ZNODES).is_check_due(HOUR_S)


def test_a_candidate_that_knows_its_vote_reads_no_value_of_others(
    tree: MemoryTree, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each candidate asks every few seconds: all of them together would read the square of their number."""
    elected = AuditorElection(store, ZNODES, "a")
    others = [AuditorElection(MemoryStore(tree), ZNODES, f"b{number}") for number in range(5)]
    assert elected.is_elected()
    assert not any(one.is_elected() for one in others)
    read, get_many = list[str](), MemoryStore.get_many
    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "get_many", lambda self, paths: read.extend(paths) or get_many(self, paths))
        assert elected.is_elected()
        assert not any(one.is_elected() for one in others)
    assert len(read) == len(set(read)) == 6
    elected.withdraw()
    assert [one.is_elected() for one in others] == [True, False, False, False, False]
    assert not elected.is_elected()
    assert elected.votes == 2


def test_a_vote_of_the_same_name_that_somebody_else_made_is_not_its_own(tree: MemoryTree, store: MemoryStore) -> None:
    """ZooKeeper counts anew in a directory that was deleted and made again."""
    first, second = AuditorElection(store, ZNODES, "a"), AuditorElection(MemoryStore(tree), ZNODES, "b")
    assert first.is_elected()
    [vote] = store.children(ZNODES.auditor_election)
    first.withdraw()
    store.create(f"{ZNODES.auditor_election}/{vote}", second._value)
    assert second.is_elected()
    assert not first.is_elected()
    assert first.votes == 2
