"""Issues ledger ids, and lists the ledgers that exist.

**Ids.** The metadata store numbers the children of one path, each number once, in the order in which it commits their
creation. Creations go through the leader, so a new id is above every id issued before, even those that a lagging follower
does not show yet.

These numbers end before 2**31 - 1. A flat cluster then has no more ids. In the other layouts ids then come from a *bucket*,
``idgen-long/HOB-<high>``: ``high`` is the upper 32 bits of the id, a number in the bucket the lower ones. The first bucket is
1, and the next one follows when it is full, so ids still rise. If ``idgen-long`` exists, ids come from its last bucket, even if
somebody made it by hand. Apache's tools leave the numbered path to the first client; it is never made where ledgers exist, for
its numbers would begin at 0 again.

**Listings** walk the tree of ledger znodes and ignore everything else below the root. A listing is complete or raises. It
proves that a ledger is absent only after a ``sync`` of the same session, and only for ledgers known before the ``sync``.
It holds the names of one directory at a time, at most 10,000; a flat cluster is one directory with all ledgers.

Ref: Apache BookKeeper's ZkLedgerIdGenerator and LongZkLedgerIdGenerator; docs/rules.md, protocol rule 44, storage rules 8, 11.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from bk_spark.errors import ConfigError, MetadataUnavailableError, State
from bk_spark.metadata.ledger_layout import LARGEST_INT, Cut, LedgerLayout
from bk_spark.metadata.store import ANY_VERSION, MetadataStore, NoNodeError, find, find_children, name_of, parent_of
from bk_spark.metadata.znodes import Znodes

_BUCKET = re.compile(r"HOB-([0-9]{10})")


@dataclass(frozen=True, slots=True)
class IssuedId:
    """An id that was issued, and may become a ledger's."""

    ledger_id: int
    path: str
    """The ephemeral znode that got the number. It is not needed any more, and is deleted with the ledger's creation, by
    ``forget``, or at the latest with the session."""


def issue_ledger_id(store: MetadataStore, znodes: Znodes) -> IssuedId:
    """A new id, above all that were issued before in this cluster.

    Raises MetadataUnavailableError, and ConfigError if the layout has no more ids, or nobody knows which were issued.
    """
    bucket = _last_bucket(store, znodes)
    if bucket is None:
        try:
            issued = _next_number(store, znodes.id_prefix)
        except NoNodeError:
            _make_first_generator(store, znodes)
            issued = _next_number(store, znodes.id_prefix)
        if issued is not None:
            return issued
    return _long_id(store, znodes, bucket or 1)


def forget(store: MetadataStore, issued: IssuedId) -> None:
    """Delete an id's znode."""
    with suppress(NoNodeError, MetadataUnavailableError):  # it is ephemeral, and goes with this session at the latest
        store.delete(issued.path, ANY_VERSION)


def highest_issued_id(store: MetadataStore, znodes: Znodes) -> int:
    """An id that is not below any issued so far. Uses up one id. Raises the same errors as ``issue_ledger_id``."""
    issued = issue_ledger_id(store, znodes)
    forget(store, issued)
    return issued.ledger_id


def next_ledger_id(store: MetadataStore, znodes: Znodes) -> int:
    """The id that is issued next. Uses up none. After a ``sync``, every id issued before it is lower."""
    return _next_in(store, znodes, _last_bucket(store, znodes))


def next_ledger_id_from(store: MetadataStore, znodes: Znodes, known: int) -> int:
    """The same with one read and without a ``sync``, if ``known`` was the next id before. All lower ids were issued; others may
    have been, too."""
    return _next_in(store, znodes, known >> 32 or None)


def _next_in(store: MetadataStore, znodes: Znodes, bucket: int | None) -> int:
    found = find(store, znodes.id_generator if bucket is None else znodes.id_bucket(bucket))
    return (bucket or 0) << 32 | (0 if found is None else found.next_sequence)


MAX_STEPS = 10_000
"""Ids that are used up one by one, in some ten seconds, before a new bucket is begun, in which ids have ten digits and more."""


def raise_ledger_ids(store: MetadataStore, znodes: Znodes, held: int) -> int:
    """Have all ids from now on issued above ``held``, and return the next one. Changes nothing if that is so already.

    A session that lags may for a moment still take ids from the bucket before a new one.
    Raises MetadataUnavailableError, and ConfigError if the layout has no such ids; it may be called again.
    """
    if znodes.layout is LedgerLayout.FLAT and held >= LARGEST_INT - 1:
        raise ConfigError(
            "the highest ledger id that a bookie holds", held, f"the flat layout has no ids from {LARGEST_INT} on"
        )
    store.ensure_path(znodes.id_generator)
    store.sync(znodes.root)
    missing = held + 1 - next_ledger_id(store, znodes)
    if missing > MAX_STEPS and znodes.layout is not LedgerLayout.FLAT:
        bucket = (held >> 32) + 1
        if bucket > LARGEST_INT:
            raise ConfigError("the highest ledger id that a bookie holds", held, "no ids are left above it")
        store.ensure_path(znodes.id_bucket(bucket))
    else:
        for _ in range(missing):
            forget(store, issue_ledger_id(store, znodes))
    store.sync(znodes.root)
    return next_ledger_id(store, znodes)


def _last_bucket(store: MetadataStore, znodes: Znodes) -> int | None:
    """The last bucket that this session sees, or the first; None if ids do not come from buckets.

    A session that lags may see an older bucket. That does no harm: it is full.
    """
    if znodes.layout is LedgerLayout.FLAT:
        return None
    try:
        names = store.children(znodes.long_id_generator)
    except NoNodeError:
        return None
    return max((int(found[1]) for name in names if (found := _BUCKET.fullmatch(name))), default=1)


def _make_first_generator(store: MetadataStore, znodes: Znodes) -> None:
    store.sync(znodes.root)  # otherwise a listing does not prove that there is no ledger
    ledger = next(ledger_ids(store, znodes), None)
    if ledger is not None:
        remedy = f"ids would begin at 0 again, and ledger {ledger} exists: run bk-spark cluster raise-ledger-ids"
        raise ConfigError(f"the counter of ledger ids of {store.uri}", State("missing"), remedy)
    store.ensure_path(znodes.id_generator)


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
    raise ConfigError(f"the last ledger id of {store.uri}", State("used up"), "initialise another root")


def _next_number(store: MetadataStore, prefix: str) -> IssuedId | None:
    """None if the numbers of this prefix are used up: then they continue below zero."""
    path = store.create_sequential(prefix, ephemeral=True)
    issued = IssuedId(int(path.removeprefix(prefix)), path)
    if 0 <= issued.ledger_id < LARGEST_INT:
        return issued
    forget(store, issued)
    return None


PAGE = 1000
"""Ledgers of a page: their metadata, some hundred bytes each, are read at once."""


def ledger_ids(store: MetadataStore, znodes: Znodes, after: int = -1) -> Iterator[int]:
    """The ids of all ledgers above ``after``, ascending."""
    for cut in znodes.layout.cuts:
        if cut.last > after:
            yield from _below(store, znodes.root, cut, "", 0, after)


def ledger_pages(store: MetadataStore, znodes: Znodes, after: int = -1, page: int = PAGE) -> Iterator[list[int]]:
    """The same ids in lists of ``page``; only the last list may be shorter, and none is empty."""
    ids = ledger_ids(store, znodes, after)
    while found := list(itertools.islice(ids, page)):
        yield found


def listed_among(store: MetadataStore, znodes: Znodes, ledger_ids: Iterable[int]) -> set[int]:
    """Which of the ascending ``ledger_ids`` exist. Lists only the directories in which they would be."""
    found: set[int] = set()
    for directory, wanted in itertools.groupby(ledger_ids, lambda ledger_id: parent_of(znodes.ledger(ledger_id))):
        names = set(find_children(store, directory))
        found |= {ledger_id for ledger_id in wanted if name_of(znodes.ledger(ledger_id)) in names}
    return found


def _below(store: MetadataStore, path: str, cut: Cut, digits: str, level: int, after: int) -> Iterator[int]:
    """The ids above ``after`` below ``path``, whose elements so far spell ``digits``."""
    names = filter(cut.names(level).fullmatch, find_children(store, path))
    if level == len(cut.widths) - 1:
        ids = (int(digits + name[1:]) for name in names)
        yield from (found for found in ids if found > after and cut.first <= found <= cut.last)
        return
    for name in names:
        if cut.largest_below(digits + name) > after:
            yield from _below(store, f"{path}/{name}", cut, digits + name, level + 1, after)
