"""What may be the name of a log: what stands in a path of ZooKeeper."""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError
from bk_spark.log.stored.names import LogNames, check_log_name
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree


@pytest.mark.parametrize("name", ["a", "ü x", "日本", "…", "'", "\u2028", "\uf900", "\uffef", "a" * 200, "...", "zookeeper"])
def test_a_name_that_zookeeper_takes_in_a_path_is_a_name(name: str) -> None:
    check_log_name(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("\U0001d11e", "U[+]1D11E"),
        ("sales-\U0001f600", "U[+]1F600"),
        ("\U000f0000", "U[+]F0000"),
        ("\ud800", "U[+]D800"),
        ("a\udfffb", "U[+]DFFF"),
        ("\ue000", "U[+]E000"),
        ("\uf8ff", "U[+]F8FF"),
        ("\ufff0", "U[+]FFF0"),
        ("\uffff", "U[+]FFFF"),
        ("a\0", "U[+]0000"),
        ("a\nb", "U[+]000A"),
        ("\x7f", "U[+]007F"),
        ("\x9f", "U[+]009F"),
        ("a/b", "nor contain '/'"),
        ("..", "must not be"),
        ("", "1 to 200 characters"),
        ("a" * 201, "1 to 200 characters"),
    ],
    ids=ascii,
)
def test_a_name_that_zookeeper_refuses_in_a_path_is_refused_with_the_character(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        check_log_name(name)
    str(caught.value).encode()


def test_a_wrong_name_among_several_is_refused_before_anything_is_asked() -> None:
    names = LogNames(MemoryStore(MemoryTree(lambda: 0)), Znodes("/ledgers"))
    assert names.find_many(["orders"]) == {}
    with pytest.raises(ConfigError, match=r"U[+]1F600"):
        names.find_many(["orders", "\U0001f600"])
