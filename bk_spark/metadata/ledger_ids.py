"""Ledger ids: numbers that the metadata store hands out once each, rising.

The metadata store numbers the children of one path for good, in the order in which it commits their creation. Whoever
takes a number therefore knows that every id issued before is lower, whatever a lagging follower shows: a creation goes
through the leader.

Such numbers end before 2**31 - 1. A flat cluster then has no more ids. In the others every number that is too large sends
its taker on to a *bucket*, ``idgen-long/HOB-<high>``, whose own numbers are the lower bits of an id and ``high`` the upper
32 bits; the first bucket is 1, and a full one sends on to the next. So ids still rise. Where ``idgen-long`` is there, ids come
from the last bucket, also if somebody made it by hand.

Ref: Apache BookKeeper's ZkLedgerIdGenerator and LongZkLedgerIdGenerator; docs/rules.md, storage rule 11.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from bk_spark.errors import ConfigError, MetadataUnavailableError
from bk_spark.metadata.ledger_layout import LARGEST_INT, Cut, LedgerLayout
from bk_spark.metadata.store import MetadataStore, NoNodeError
from bk_spark.metadata.znodes import Znodes

_BUCKET = re.compile(r"HOB-([0-9]{10})")


@dataclass(frozen=True, slots=True)
class IssuedId:
    """A number that was taken, and may become a ledger's id."""

    ledger_id: int
    path: str
    """The ephemeral znode whose number it is. Nobody needs it any more: it is deleted with the ledger's creation, or by
    ``forget``, at the latest with the session."""


def issue_ledger_id(store: MetadataStore, znodes: Znodes) -> IssuedId:
    """An id that no other ledger of this cluster got, above all that were issued before.

    Raises MetadataUnavailableError, and ConfigError where the layout has no more ids.
    """
    bucket = _last_bucket(store, znodes)
    if bucket is None:
        issued = _next_number(store, znodes.id_prefix)
        if issued is not None:
            return issued
    return _long_id(store, znodes, bucket or 1)


def forget(store: MetadataStore, issued: IssuedId) -> None:
    """Delete an id's znode."""
    with suppress(NoNodeError, MetadataUnavailableError):  # it is ephemeral: at the latest it goes with this session
        store.delete(issued.path)


def highest_issued_id(store: MetadataStore, znodes: Znodes) -> int:
    """An id that no ledger issued so far is above. It costs one id, taken and never used. Raises as ``issue_ledger_id``."""
    issued = issue_ledger_id(store, znodes)
    forget(store, issued)
    return issued.ledger_id


def _last_bucket(store: MetadataStore, znodes: Znodes) -> int | None:
    """The last bucket that this session sees, the first if it sees none; None where ids do not come from buckets.

    An older one than the last does no harm: it is full.
    """
    if znodes.layout is LedgerLayout.FLAT:
        return None
    try:
        names = store.children(znodes.long_id_generator)
    except NoNodeError:
        return None
    return max((int(found[1]) for name in names if (found := _BUCKET.fullmatch(name))), default=1)


def _long_id(store: MetadataStore, znodes: Znodes, bucket: int) -> IssuedId:
    if znodes.layout is LedgerLayout.FLAT:
        remedy = f"its ids end before {LARGEST_INT}: initialise another root with the layout hierarchical"
        raise ConfigError(f"the ledger layout of {store.uri}", znodes.layout.value, remedy)
    while bucket <= LARGEST_INT:
        store.ensure_path(znodes.id_bucket(bucket))
        issued = _next_number(store, f"{znodes.id_bucket(bucket)}/ID-")
        if issued is not None:
            return IssuedId(bucket << 32 | issued.ledger_id, issued.path)
        bucket += 1
    raise ConfigError(f"the ledger ids of {store.uri}", "used up", "initialise another root")


def _next_number(store: MetadataStore, prefix: str) -> IssuedId | None:
    """None if the numbers of this prefix are used up: they go on below zero then."""
    path = store.create_sequential(prefix, ephemeral=True)
    issued = IssuedId(int(path.removeprefix(prefix)), path)
    if 0 <= issued.ledger_id < LARGEST_INT:
        return issued
    forget(store, issued)
    return None


# --- Which ledgers there are: the tree of ledger znodes, listed
#
# What else stands below the root, and directories without ledgers, are crossed. A listing is whole or raises; it proves an
# absence only after a ``sync`` of the same session, and then only for ledgers that were known before it.
#
# Memory: the names of one directory at a time, at most 10,000 of them. A flat cluster is one directory: all of its ledgers.
#
# Ref: docs/rules.md, protocol rule 44 and storage rule 8; ledger_layout.py.

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
