"""The cookie's compare-and-set: a lost reply is told from a lost race (docs/rules.md, storage rule 9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie_file import BootNumber, StoredCookie, apache_text, read_znode, write_znode
from bk_spark.config import BookieConfig
from bk_spark.errors import CorruptionError, MetadataConflictError, MetadataUnavailableError
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import BadVersionError, NodeExistsError
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")
TEXT = apache_text("b", "i", Directories.of(Path("/d"), BookieConfig()))


def cookie(number: int, token: str) -> StoredCookie:
    return StoredCookie("b", "i", (), BootNumber(number, token), TEXT)


class Flaky(MemoryStore):
    """Its next change may be done and then answered with an error, as a connection does that is lost in between."""

    def __init__(self) -> None:
        super().__init__(MemoryTree(lambda: 0))
        initialise_cluster(self, ZNODES)
        self.is_done = True
        self.answer: Exception | None = None

    def set(self, path: str, value: bytes, version: int) -> int:
        if self.is_done:
            version = super().set(path, value, version)
        return self._reply(version)

    def create(self, path: str, value: bytes = b"", **options: bool) -> None:
        if getattr(self, "is_done", True):
            super().create(path, value, **options)
        if getattr(self, "answer", None) is not None:
            self._reply(0)

    def _reply(self, version: int) -> int:
        if self.answer is not None:
            raise self.answer
        return version


@pytest.fixture
def store() -> Flaky:
    made = Flaky()
    write_znode(made, ZNODES, cookie(1, "a"), None)
    return made


def stored(store: Flaky) -> BootNumber:
    found = read_znode(store, ZNODES, "b")
    assert found is not None
    assert found.cookie is not None
    return found.cookie.boot


LOST_CONNECTION = MetadataUnavailableError("memory://", "the connection was lost")
REPEATED_SET = BadVersionError("path")
"""What the store's own client is told when it repeats a change that has taken effect."""


@pytest.mark.parametrize("answer", [LOST_CONNECTION, REPEATED_SET])
def test_a_change_that_took_effect_is_done_whatever_the_answer_was(store: Flaky, answer: Exception) -> None:
    found = read_znode(store, ZNODES, "b")
    store.answer = answer
    write_znode(store, ZNODES, cookie(2, "mine"), found)
    assert stored(store) == BootNumber(2, "mine")


@pytest.mark.parametrize("answer", [LOST_CONNECTION, NodeExistsError("path")])
def test_a_creation_that_took_effect_is_done_whatever_the_answer_was(answer: Exception) -> None:
    store = Flaky()
    store.answer = answer
    write_znode(store, ZNODES, cookie(2, "mine"), None)
    assert stored(store) == BootNumber(2, "mine")


def test_a_lost_race_is_a_conflict_also_against_a_boot_of_the_same_number(store: Flaky) -> None:
    found = read_znode(store, ZNODES, "b")
    write_znode(store, ZNODES, cookie(2, "theirs"), found)
    with pytest.raises(MetadataConflictError, match="another process starts or repairs the same bookie"):
        write_znode(store, ZNODES, cookie(2, "mine"), found)
    with pytest.raises(MetadataConflictError):
        write_znode(store, ZNODES, cookie(2, "mine"), None)
    assert stored(store) == BootNumber(2, "theirs")


def test_a_lost_reply_to_a_lost_race_is_unknown_or_a_conflict_but_never_done(store: Flaky) -> None:
    found = read_znode(store, ZNODES, "b")
    store.is_done, store.answer = False, LOST_CONNECTION
    with pytest.raises(MetadataUnavailableError):
        write_znode(store, ZNODES, cookie(2, "mine"), found)
    assert stored(store) == BootNumber(1, "a")


def test_a_cookie_deleted_meanwhile_is_a_conflict(store: Flaky) -> None:
    found = read_znode(store, ZNODES, "b")
    store.delete(ZNODES.cookie("b"))
    with pytest.raises(MetadataConflictError, match="or its cookie was deleted"):
        write_znode(store, ZNODES, cookie(2, "mine"), found)


def test_a_damaged_cookie_is_read_as_damage_and_can_be_replaced(store: Flaky) -> None:
    store.set(ZNODES.cookie("b"), b"4\nrubbish", 0)
    found = read_znode(store, ZNODES, "b")
    assert found is not None
    assert isinstance(found.damage, CorruptionError)
    write_znode(store, ZNODES, replace(cookie(2, "mine")), found)
    assert stored(store) == BootNumber(2, "mine")
