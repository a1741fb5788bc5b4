"""The compare-and-set loop. Ref: protocol rule 22, situation 43."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from bk_spark.client.protocol.state_machine import (
    Command,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    MetadataWritten,
    ReadMetadata,
    WriteMetadata,
)
from bk_spark.client.protocol.update_metadata import MAX_LOST_WRITES, MAX_UNKNOWN_ANSWERS, UpdateMetadata
from bk_spark.config import LedgerOptions
from bk_spark.errors import LedgerClosedError, MetadataConflictError, MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState, new_ledger

LOST = MetadataUnknown(MetadataUnavailableError("zk://x/y", "lost"))


def _ledger() -> LedgerMetadata:
    return new_ledger(7, LedgerOptions(), ("b0", "b1", "b2"), created_ms=0, creator_token=1)


def _tagged(name: str) -> LedgerMetadata:
    return _ledger().with_custom(name, b"1")


def _tag(name: str, current: LedgerMetadata) -> LedgerMetadata:
    if current.is_closed:
        raise LedgerClosedError(current.ledger_id)
    return current.with_custom(name, b"1")


@dataclass
class Store:
    """What two updates compete for."""

    metadata: LedgerMetadata = field(default_factory=_ledger)
    version: int = 0

    def carry_out(self, update: UpdateMetadata, commands: list[Command]) -> None:
        while commands:
            (command,) = commands
            if isinstance(command, WriteMetadata) and command.expected_version == self.version:
                self.metadata, self.version = command.metadata, self.version + 1
                commands = update.handle(MetadataWritten(self.version))
            else:
                commands = update.handle(MetadataRead(self.metadata, self.version))


def _update(name: str) -> UpdateMetadata:
    return UpdateMetadata(_ledger(), 0, lambda current: _tag(name, current))


def test_two_clients_that_change_at_once_both_get_their_change_in() -> None:
    store = Store()
    one, other = _update("one"), _update("other")
    first, second = one.start(), other.start()
    store.carry_out(one, first)
    store.carry_out(other, second)
    assert dict(store.metadata.custom_metadata) == {"one": b"1", "other": b"1"}
    assert (one.is_done, other.is_done, other.version) == (True, True, 2)


def test_the_condition_is_tested_again_on_what_was_found() -> None:
    update = _update("one")
    update.start()
    assert update.handle(MetadataRead(_ledger().closed_at(3, 30), 1)) == []
    assert isinstance(update.error, LedgerClosedError)


def test_a_change_that_is_there_already_is_not_written_again() -> None:
    update = UpdateMetadata(_tagged("one"), 4, lambda current: _tag("one", current))
    assert update.start() == []
    assert (update.is_done, update.error, update.version) == (True, None, 4)


@pytest.mark.parametrize("applied", [True, False])
def test_after_a_lost_reply_the_store_is_read_and_decides(applied: bool) -> None:
    update = _update("one")
    (write,) = update.start()
    assert update.handle(LOST) == [ReadMetadata()]
    if applied:
        assert update.handle(MetadataRead(_tagged("one"), 1)) == []
        assert update.version == 1
    else:
        assert update.handle(MetadataRead(_ledger(), 0)) == [write]
        assert not update.is_done


def test_a_store_that_stays_silent_is_given_up_with_its_own_error() -> None:
    update = _update("one")
    update.start()
    for _ in range(MAX_UNKNOWN_ANSWERS):
        assert update.handle(LOST) == [ReadMetadata()]
    assert update.handle(LOST) == []
    assert update.error is LOST.error


def test_an_update_that_always_loses_gives_up() -> None:
    update = _update("one")
    update.start()
    for version in range(1, MAX_LOST_WRITES + 2):
        changed = replace(_ledger(), state=LedgerState.OPEN, created_ms=version)
        update.handle(MetadataRead(changed, version))
    assert isinstance(update.error, MetadataConflictError)


def test_an_update_of_a_deleted_ledger_says_so() -> None:
    update = _update("one")
    update.start()
    update.handle(MetadataGone())
    assert isinstance(update.error, NoSuchLedgerError)
