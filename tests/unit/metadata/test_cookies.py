"""What everybody may read of a bookie's cookie."""

from __future__ import annotations

from bk_spark.bookie.identity.cookie_file import BootNumber, DirectoryPlace, StoredCookie, encode_stored
from bk_spark.metadata.cookies import all_cookies, facts_of
from bk_spark.metadata.store import Versioned
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

APACHE = b'4\nbookieHost: "b1"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\ninstanceId: "i"\n'


def _stored(boot: BootNumber) -> bytes:
    places = (DirectoryPlace("data", "d1"), DirectoryPlace("journal-0", "d1"), DirectoryPlace("entry_log-0", "d2"))
    return encode_stored(StoredCookie("b1", "i", places, boot, APACHE.decode()))


def _found(value: bytes) -> Versioned:
    return Versioned(value, 0, 5000, 0, 0)


def test_a_cookie_tells_its_boot_its_epoch_and_the_last_sign_of_life() -> None:
    facts = facts_of("b1", _found(_stored(BootNumber(7, "token", 3))))
    assert (facts.boot, facts.epoch, facts.directories, facts.last_seen_ms) == (7, 3, 2, 5000)


def test_a_bookie_that_was_never_started_gave_no_sign_of_life() -> None:
    facts = facts_of("b1", _found(_stored(BootNumber(0, "token"))))
    assert (facts.boot, facts.last_seen_ms, facts.changed_ms) == (0, None, 5000)


def test_of_a_cookie_of_apache_s_the_last_sign_of_life_is_unknown() -> None:
    for value in (APACHE, b"", b"\xff\x00 # bk_spark boot: 7 token 3"):
        facts = facts_of("b1", _found(value))
        assert (facts.boot, facts.epoch, facts.last_seen_ms) == (None, None, None)


def test_all_cookies_come_by_id_and_none_where_no_bookie_was_ever_formatted() -> None:
    store, znodes = MemoryStore(MemoryTree(lambda: 9000)), Znodes("/ledgers")
    assert all_cookies(store, znodes) == {}
    for name in ("b2", "b1"):
        store.create(znodes.cookie(name), _stored(BootNumber(1, "t")), make_parents=True)
    assert [(name, facts.last_seen_ms) for name, facts in all_cookies(store, znodes).items()] == [("b1", 9000), ("b2", 9000)]
