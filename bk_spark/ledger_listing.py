"""Which ledgers there are: the tree of ledger znodes, listed.

What else stands below the root, and directories without ledgers, are crossed. A listing is whole or raises; it proves an
absence only after a ``sync`` of the same session, and then only for ledgers that were known before it.

Memory: the names of one directory at a time, at most 10,000 of them. A flat cluster is one directory: all of its ledgers.

Ref: docs/rules.md, protocol rule 44 and storage rule 8; ledger_layout.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from bk_spark.ledger_layout import Cut
from bk_spark.metadata_store import MetadataStore, NoNodeError
from bk_spark.znodes import Znodes

PAGE = 1000
"""Ledgers a page: their metadata, some hundred bytes each, are asked for at once."""


def ledger_ids(store: MetadataStore, znodes: Znodes, after: int = -1) -> Iterator[int]:
    """The ids of all ledgers above ``after``, ascending."""
    for cut in znodes.layout.cuts:
        if cut.last > after:
            yield from _below(store, znodes.root, cut, "", 0, after)


def ledger_pages(store: MetadataStore, znodes: Znodes, after: int = -1, page: int = PAGE) -> Iterator[list[int]]:
    """The same in lists of ``page`` ids, the last one shorter; none is empty. A listing goes on after the last id of a page."""
    ids = ledger_ids(store, znodes, after)
    while found := list(itertools.islice(ids, page)):
        yield found


def listed_among(store: MetadataStore, znodes: Znodes, ledger_ids: Iterable[int]) -> set[int]:
    """Those of ``ledger_ids``, which ascend, that are listed: reads only the directories in which they would be."""
    found: set[int] = set()
    for directory, wanted in itertools.groupby(ledger_ids, lambda ledger_id: znodes.ledger(ledger_id).rsplit("/", 1)[0]):
        names = set(_children(store, directory))
        found |= {ledger_id for ledger_id in wanted if znodes.ledger(ledger_id).rsplit("/", 1)[1] in names}
    return found


def _below(store: MetadataStore, path: str, cut: Cut, digits: str, level: int, after: int) -> Iterator[int]:
    """The ids below ``path``, whose names so far spell ``digits``; directories that hold none above ``after`` are left out."""
    names = filter(cut.names(level).fullmatch, _children(store, path))
    if level == len(cut.widths) - 1:
        ids = (int(digits + name[1:]) for name in names)
        yield from (found for found in ids if found > after and cut.first <= found <= cut.last)
        return
    for name in names:
        if cut.largest_below(digits + name) > after:
            yield from _below(store, f"{path}/{name}", cut, digits + name, level + 1, after)


def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNodeError:
        return []
