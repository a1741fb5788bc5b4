"""A root without a cluster: the error names the roots of the same ZooKeeper that have one, the most alike first."""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, MetadataUnavailableError
from bk_spark.metadata.other_roots import MAX_NAMED, other_roots
from bk_spark.metadata.registration import initialise_cluster, intended_root, open_root
from bk_spark.metadata.uri import parse_uri
from tests.memory_store import MemoryStore, MemoryTree


class Mistyped(MemoryStore):
    uri = "zk://host:2181/ledgerz"


def store_with(*roots: str) -> MemoryStore:
    store = Mistyped(MemoryTree(lambda: 0))
    for root in roots:
        initialise_cluster(store, intended_root(store, root, None))
    return store


def test_a_typing_error_in_the_root_is_answered_with_the_root_that_is_there() -> None:
    store = store_with("/other", "/ledgers")
    store.ensure_path("/brokers/ids")
    with pytest.raises(ConfigError) as problem:
        open_root(store, "/ledgerz")
    found = str(problem.value)
    assert "there is one at zk://host:2181/ledgers, zk://host:2181/other: check the URI, or for a new cluster run" in found


def test_roots_beside_and_above_are_found_at_each_depth() -> None:
    store = store_with("/pulsar/ledgers", "/ledgers")
    assert other_roots(store, "/pulsar/ledger") == ["/pulsar/ledgers", "/ledgers"]
    assert other_roots(store, "/ledgers/typo") == ["/ledgers"]
    assert other_roots(store, "/nowhere/at/all") == ["/ledgers"]


def test_many_roots_are_named_in_part() -> None:
    with pytest.raises(ConfigError, match="and 3 more: check the URI"):
        open_root(store_with(*(f"/cluster-{number}" for number in range(MAX_NAMED + 3))), "/ledgerz")


def test_without_another_cluster_or_without_an_answer_only_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(path: str) -> list[str]:
        raise MetadataUnavailableError("zk://host:2181", "it does not answer")

    empty, unreadable = store_with(), store_with("/ledgers")
    monkeypatch.setattr(unreadable, "children", silent)
    for store in (empty, unreadable):
        with pytest.raises(ConfigError, match="no cluster is initialised there: check the URI, or for a new cluster run"):
            open_root(store, "/ledgerz")


@pytest.mark.parametrize("root", ["/ledgers?x=1", "/ledgers#1", "/a=b", "/led gers"])
def test_nobody_is_told_to_make_a_cluster_at_a_root_that_is_a_typing_error(root: str) -> None:
    with pytest.raises(ConfigError, match=r"there is one at .*/ledgers: check the URI$"):
        open_root(store_with("/ledgers"), root)


@pytest.mark.parametrize("uri", ["zk://h:2181", "zk://h:2181/", "zk://h:2181,g:2181"])
def test_a_uri_without_a_root_is_told_so(uri: str) -> None:
    with pytest.raises(ConfigError, match="the cluster's root, such as /ledgers, is missing at its end"):
        parse_uri(uri)
    with pytest.raises(ConfigError, match="the metadata URI is 'http://h/': write it as"):
        parse_uri("http://h/")
