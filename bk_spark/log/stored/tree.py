"""Reads and deletes of many znodes, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from bk_spark.errors import MetadataConflictError
from bk_spark.metadata.store import ANY_VERSION, Delete, MetadataStore, NoNodeError, NotEmptyError, TransactionFailedError

READS_AT_ONCE = 1000
"""Ledger metadata is below 1 KiB as a rule: a megabyte in flight."""
DELETES_AT_ONCE = 100
"""Twice as many operations of 100 bytes each stay far below ZooKeeper's 1 MiB per request."""
_TRIES = 10
"""Each further try means that a late task created something below the path meanwhile."""

_Item = TypeVar("_Item")


def chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def children_of(store: MetadataStore, path: str) -> list[str]:
    """The names right below ``path``, sorted; none if it does not exist."""
    try:
        return store.children(path)
    except NoNodeError:
        return []


def grandchildren_of(store: MetadataStore, path: str) -> Iterator[str]:
    """The paths two levels below ``path``: what is spread over directories there."""
    for name in children_of(store, path):
        yield from (f"{path}/{name}/{child}" for child in children_of(store, f"{path}/{name}"))


def number_of(path: str) -> int:
    """The number that is the last part of a path."""
    return int(path.rsplit("/", 1)[1])


def remove_tree(store: MetadataStore, root: str) -> None:
    """Delete ``root`` and all below it, if it exists."""
    for _ in range(_TRIES):
        try:
            for names in chunks(store.children(root), DELETES_AT_ONCE):
                _remove_children(store, [f"{root}/{name}" for name in names])
            return store.delete(root, ANY_VERSION)
        except NoNodeError:
            return None
        except NotEmptyError:
            continue  # a late task made something there meanwhile
    raise MetadataConflictError(root, f"something was created there during each of {_TRIES} tries to delete it")


def _remove_children(store: MetadataStore, paths: list[str]) -> None:
    try:
        store.transaction([Delete(path, ANY_VERSION) for path in paths])
    except TransactionFailedError:
        for path in paths:
            remove_tree(store, path)
