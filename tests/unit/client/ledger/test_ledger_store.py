"""Ledgers' metadata as a client creates and reads it: no reply that is lost, and none that misleads, makes it guess."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.config import LedgerOptions
from bk_spark.errors import ConfigError, JobEndedError, LedgerExistsError, MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata.store import ANY_VERSION, Check, StoreChange, TransactionFailedError, Version, Versioned
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")


class FlakyStore(MemoryStore):
    """Plays one event in place of the next transaction."""

    trouble: Callable[[Sequence[StoreChange]], None] | None = None

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        trouble, self.trouble = self.trouble, None
        (trouble or super().transaction)(changes)

    def lose_reply(self, changes: Sequence[StoreChange]) -> None:
        super().transaction(changes)
        raise MetadataUnavailableError("memory://", "connection lost")

    def lose_request(self, _: Sequence[StoreChange]) -> None:
        raise MetadataUnavailableError("memory://", "connection lost")

    def repeat_after_lost_reply(self, changes: Sequence[StoreChange]) -> None:
        super().transaction(changes)
        super().transaction(changes)


class LaggingStore(MemoryStore):
    """A session with a server that shows nothing new before it is synced."""

    is_synced = False

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        return super().get_many(paths) if self.is_synced else [None] * len(paths)

    def sync(self, path: str) -> None:
        self.is_synced = True


@pytest.fixture
def store() -> FlakyStore:
    flaky = FlakyStore(MemoryTree(lambda: 5))
    flaky.ensure_path(ZNODES.ledger(7).rsplit("/", 1)[0])
    return flaky


@pytest.fixture
def ledgers(store: FlakyStore) -> LedgerStore:
    return LedgerStore(store, ZNODES)


def _metadata(ledger_id: int = 7, token: int = 1) -> LedgerMetadata:
    return new_ledger(ledger_id, LedgerOptions(), ("b1", "b2", "b3"), created_ms=0, creator_token=token)


def _create(ledgers: LedgerStore, metadata: LedgerMetadata) -> None:
    ledgers.create(metadata, [], lambda failure: None)


def test_a_creation_whose_reply_was_lost_is_found_done(store: FlakyStore, ledgers: LedgerStore) -> None:
    """Ref: protocol rule 31."""
    store.trouble = store.lose_reply
    _create(ledgers, _metadata())
    assert ledgers.metadata(7) == _metadata()


def test_exists_already_after_a_lost_connection_is_ones_own_creation_if_the_token_is(
    store: FlakyStore, ledgers: LedgerStore
) -> None:
    """The first try took effect, its reply was lost, and the repetition finds the ledger there. Ref: protocol rule 31."""
    store.trouble = store.repeat_after_lost_reply
    _create(ledgers, _metadata())
    assert ledgers.metadata(7) == _metadata()


def test_exists_already_is_another_ledger_if_the_token_is_another(store: FlakyStore, ledgers: LedgerStore) -> None:
    """Ref: protocol rule 31."""
    _create(ledgers, _metadata(token=2))
    with pytest.raises(LedgerExistsError, match="ledger 7"):
        _create(ledgers, _metadata(token=1))
    store.trouble = store.lose_request
    with pytest.raises(MetadataUnavailableError):
        _create(ledgers, _metadata(token=1))
    assert ledgers.metadata(7).creator_token == 2


def test_a_creation_that_did_not_arrive_is_unknown(store: FlakyStore, ledgers: LedgerStore) -> None:
    store.trouble = store.lose_request
    with pytest.raises(MetadataUnavailableError):
        _create(ledgers, _metadata())
    with pytest.raises(NoSuchLedgerError):
        ledgers.metadata(7)


def test_a_refused_operation_beside_the_creation_is_explained(ledgers: LedgerStore) -> None:
    ended = JobEndedError("orders", "job")
    with pytest.raises(JobEndedError):
        ledgers.create(_metadata(), [Check("/gone", ANY_VERSION)], lambda failure: ended)
    with pytest.raises(TransactionFailedError):
        ledgers.create(_metadata(), [Check("/gone", ANY_VERSION)], lambda failure: None)
    with pytest.raises(NoSuchLedgerError):
        ledgers.metadata(7)


def test_the_version_that_a_compare_and_set_needs_comes_with_the_metadata(store: FlakyStore, ledgers: LedgerStore) -> None:
    _create(ledgers, _metadata())
    changed = replace(_metadata(), created_ms=9)
    store.set(ZNODES.ledger(7), changed.encode(), 0)
    assert ledgers.versioned(7) == (changed, 1)


IDS = ZNODES.id_prefix.rsplit("/", 1)[0]


def test_the_znode_of_an_id_goes_with_the_creation_of_its_ledger(store: FlakyStore, ledgers: LedgerStore) -> None:
    store.ensure_path(IDS)
    for number in range(3):
        with ledgers.new_id() as issued:
            assert len(store.children(IDS)) == 1
            ledgers.create(_metadata(issued.ledger_id), [], lambda failure: None, issued)
        assert issued.ledger_id == number
        assert store.children(IDS) == []
    assert list(ledgers.ids()) == [0, 1, 2]


def test_an_id_that_is_not_used_leaves_nothing_behind_and_is_not_given_again(store: FlakyStore, ledgers: LedgerStore) -> None:
    store.ensure_path(IDS)
    with pytest.raises(LookupError), ledgers.new_id() as unused:
        raise LookupError
    assert store.children(IDS) == []
    with ledgers.new_id() as issued:
        assert issued.ledger_id > unused.ledger_id


def test_a_store_that_does_not_answer_is_not_asked_to_delete_an_id_too(store: FlakyStore, ledgers: LedgerStore) -> None:
    store.ensure_path(IDS)
    with pytest.raises(MetadataUnavailableError), ledgers.new_id():
        raise MetadataUnavailableError("memory://", "cut off")
    assert len(store.children(IDS)) == 1


def test_a_ledger_is_created_after_its_ids_znode_went_with_the_session(store: FlakyStore, ledgers: LedgerStore) -> None:
    store.ensure_path(IDS)
    with ledgers.new_id() as issued:
        store.delete(issued.path, ANY_VERSION)
        ledgers.create(_metadata(), [], lambda failure: None, issued)
    assert ledgers.metadata(7) == _metadata()


def test_the_first_ledger_below_a_path_makes_it(store: FlakyStore, ledgers: LedgerStore) -> None:
    """And a refused operation beside it refuses the creation then, too."""
    store.ensure_path(IDS)
    with ledgers.new_id() as issued:
        ledgers.create(_metadata(70_001), [], lambda failure: None, issued)
    assert list(ledgers.ids()) == [70_001]
    assert store.children(IDS) == []
    with pytest.raises(TransactionFailedError):
        ledgers.create(_metadata(2_000_000_000), [Check("/gone", ANY_VERSION)], lambda failure: None)
    assert list(ledgers.ids()) == [70_001]


def test_ledgers_are_listed_ascending_and_deleted(ledgers: LedgerStore) -> None:
    for ledger_id in (70_001, 3, 2_000_000_000):
        _create(ledgers, _metadata(ledger_id))
    ids = list(ledgers.ids())
    assert ids == sorted(ids)
    assert len(ids) == 3
    seen = ledgers.metadata(3)
    assert ledgers.delete(seen)
    assert 3 not in list(ledgers.ids())
    with pytest.raises(NoSuchLedgerError):
        ledgers.delete(seen)
    assert [found.ledger_id for found in ledgers.existing([3, 70_001])] == [70_001]


def test_a_ledger_that_changed_since_it_was_looked_at_is_not_deleted(ledgers: LedgerStore, store: FlakyStore) -> None:
    _create(ledgers, _metadata())
    seen = ledgers.metadata(7)
    store.set(ZNODES.ledger(7), seen.with_custom("log", b"uid").encode(), 0)
    assert not ledgers.delete(seen)
    assert ledgers.metadata(7).custom("log") == b"uid"
    assert ledgers.delete(ledgers.metadata(7))


def test_a_change_between_the_last_look_and_the_deletion_keeps_the_ledger(ledgers: LedgerStore, store: FlakyStore) -> None:
    _create(ledgers, _metadata())
    seen = ledgers.metadata(7)
    delete = store.delete

    def adopt_then_delete(path: str, version: Version) -> None:
        store.set(path, seen.with_custom("log", b"uid").encode(), 0)
        delete(path, version)

    store.delete = adopt_then_delete  # type: ignore[assignment,method-assign]
    assert not ledgers.delete(seen)
    assert ledgers.metadata(7).custom("log") == b"uid"


@pytest.mark.parametrize("ledger_id", [None, "1", 1.5, True])
def test_an_id_that_is_no_number_is_refused(ledgers: LedgerStore, ledger_id: int) -> None:
    with pytest.raises(ConfigError, match="a ledger id"):
        ledgers.versioned(ledger_id)


@pytest.mark.parametrize(
    "look",
    [
        lambda ledgers: ledgers.metadata(7),
        lambda ledgers: ledgers.metadata_many([7])[0],
        lambda ledgers: ledgers.existing([8, 7])[0],
        lambda ledgers: ledgers.readable([7])[0],
    ],
)
def test_a_ledger_that_a_lagging_server_does_not_show_is_found(look: Callable[[LedgerStore], LedgerMetadata]) -> None:
    tree = MemoryTree(lambda: 5)
    MemoryStore(tree).ensure_path(ZNODES.ledger(7).rsplit("/", 1)[0])
    _create(LedgerStore(MemoryStore(tree), ZNODES), _metadata())
    assert look(LedgerStore(LaggingStore(tree), ZNODES)) == _metadata()


def test_a_ledger_that_does_not_exist_is_missed_once_the_server_is_synced() -> None:
    store = LaggingStore(MemoryTree(lambda: 5))
    with pytest.raises(NoSuchLedgerError):
        LedgerStore(store, ZNODES).metadata(7)
    assert store.is_synced
