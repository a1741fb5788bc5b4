"""Tokens and grants in the metadata store, and how they change.

::

    bk_spark/access/head              AccessHead: each change is a compare-and-set here
    bk_spark/access/tokens/<id>       one token, immutable
    bk_spark/access/grants/<32 hex>   one grant, immutable; its name follows from its content
    bk_spark/access/changes/<number>  what one change did, the last 1,000

A change is one transaction: the head, at the version that the change was decided on, what it creates and deletes, and its own
record. So all changes stand in one order, a reader that finds the same head before and after has seen one moment, and two
operators at once never undo each other: the second one decides anew on what the first one left.

After a lost answer the record under the change's number says whose change that was. Ref: DESIGN.md, "Who may do what".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from bk_spark.errors import CorruptionError, MetadataConflictError, MetadataUnavailableError
from bk_spark.gateway.access_records import (
    AccessChange,
    AccessHead,
    decode_change,
    decode_grant,
    decode_head,
    decode_token,
    encode_change,
    encode_grant,
    encode_head,
    encode_token,
    grant_key,
)
from bk_spark.gateway.access_rules import AccessContent, applied
from bk_spark.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    NoNodeError,
    SetValue,
    StoreChange,
    TransactionFailedError,
    Versioned,
    find,
    find_children,
)
from bk_spark.metadata.znodes import Znodes

KEPT_CHANGES = 1_000
"""Records of changes that stay, for people, and for gateways that were away from ZooKeeper meanwhile."""

MOST_FOLLOWED = 100
"""Changes that are followed one by one; after more of them everything is read again, in some seconds at most."""

_TRIES = 100
"""Each further try means that another change succeeded meanwhile."""

_Kept = TypeVar("_Kept")
Decide = Callable[[AccessContent], AccessChange]
"""A pure function: what is to change. An empty change does nothing."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What a change is decided on, with the versions that its transaction names."""

    content: AccessContent
    head_version: int | None
    """None while there is no head."""


class StoredAccess:
    """Tokens and grants of one cluster. What it gives back is what holds: for how long, ``held_access.py`` decides."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._last = AccessContent()
        """What was read last. The next read follows the changes since then, where it can."""

    @property
    def uri(self) -> str:
        return self._store.uri

    def read(self) -> AccessContent:
        """All of one moment, with every change that was done before the call.

        While nothing has changed it is the same object as before, at one small read behind a sync; after a few changes it costs
        one more round trip. Raises MetadataUnavailableError, MetadataConflictError, CorruptionError, FormatVersionError.
        """
        return self._read().content

    def watch(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` (from any thread, briefly) after each change, until the returned function is called."""
        return self._store.watch(self._znodes.access_head, on_change)

    def changes(self, after: int, until: int) -> list[tuple[int, AccessChange]]:
        """The records of the changes from number ``after`` + 1 to ``until``, as far as they are kept."""
        numbers = range(max(after, until - KEPT_CHANGES) + 1, until + 1)
        found = self._store.get_many([self._change_path(number) for number in numbers])
        pairs = zip(numbers, found, strict=True)
        return [(number, decode_change(number, one.value)) for number, one in pairs if one is not None]

    def change(self, decide: Decide, *, change_id: str, by: str, at_ms: int) -> AccessChange:
        """Do what ``decide`` makes of the tokens and grants that there are, and give it back.

        If another change comes between, ``decide`` is asked again. Raises what it raises, and MetadataUnavailableError, after
        which the outcome is unknown: look, or do it again.
        """
        sent: AccessHead | None = None
        for _ in range(_TRIES):
            read = self._read()
            if sent is not None and (made := self._made(sent)) is not None:
                return made
            wanted = decide(read.content)
            if not wanted:
                return wanted
            stamped = replace(wanted, change=change_id, by=by, at_ms=at_ms)
            sent = AccessHead(self._next_number(read), change_id)
            try:
                self._store.transaction(self._operations(read, sent, stamped))
            except TransactionFailedError:
                continue
            except MetadataUnavailableError:
                if self._made(sent) is None:
                    continue  # if the lost one arrives after all, it and the next try are for one version of the head
            return stamped
        raise MetadataConflictError("tokens and grants", f"{_TRIES} changes came between: try again")

    def _read(self) -> _Read:
        self._store.sync(self._znodes.access_head)
        for _ in range(_TRIES):
            found = find(self._store, self._znodes.access_head)
            if found is None:
                return self._nothing()
            head = decode_head(found.value)
            content = self._last if head == self._last.head else self._followed(head) or self._all(head)
            if content is not None:
                self._last = content
                return _Read(content, found.version)
        raise MetadataConflictError("tokens and grants", f"{_TRIES} changes came while they were read: try again")

    def _nothing(self) -> _Read:
        if self._last.head.number:
            problem = "it has lost its tokens and grants, nothing is concluded from that: restore the metadata store"
            raise MetadataConflictError(f"the metadata store {self._store.uri}", problem)
        return _Read(self._last, None)

    def _followed(self, head: AccessHead) -> AccessContent | None:
        """What was read last, with the changes since; None if their records do not lead from there to this head."""
        content = self._last
        first = content.head.number
        if not 1 <= first < head.number <= first + MOST_FOLLOWED:
            return None
        records = self.changes(first - 1, head.number)
        if len(records) != head.number - first + 1 or records[0][1].change != content.head.change:
            return None
        for number, change in records[1:]:
            content = applied(content, number, change)
        return content if content.head == head else None

    def _all(self, head: AccessHead) -> AccessContent | None:
        """None if a change came meanwhile."""
        tokens = self._values(self._znodes.access_tokens, decode_token)
        grants = self._values(self._znodes.access_grants, decode_grant)
        after = find(self._store, self._znodes.access_head)
        if after is None or decode_head(after.value) != head:
            return None
        missing = [what for what, values in (("tokens", tokens), ("grants", grants)) if values is None]
        if tokens is None or grants is None:
            raise CorruptionError("tokens and grants", f"{missing[0]} are missing of which the head knows")
        return AccessContent(head, tokens, grants)

    def _values(self, directory: str, decode: Callable[[str, bytes], _Kept]) -> dict[str, _Kept] | None:
        """What stands in a directory by its names. None if some of it went while it was read."""
        try:
            names = self._store.children(directory)
        except NoNodeError:
            return None
        found = self._store.get_many([f"{directory}/{name}" for name in names])
        if None in found:
            return None
        return {name: decode(name, one.value) for name, one in zip(names, found, strict=True) if one is not None}

    def _next_number(self, read: _Read) -> int:
        if read.head_version is not None:
            return read.content.head.number + 1
        for directory in (self._znodes.access_tokens, self._znodes.access_grants, self._znodes.access_changes):
            self._store.ensure_path(directory)
        return 1 + max((int(name) for name in find_children(self._store, self._znodes.access_changes)), default=0)

    def _made(self, sent: AccessHead) -> AccessChange | None:
        """The change that was sent under this number and id, if it was made."""
        self._store.sync(self._znodes.access_head)
        found = find(self._store, self._change_path(sent.number))
        made = None if found is None else decode_change(sent.number, found.value)
        return made if made is not None and made.change == sent.change else None

    def _operations(self, read: _Read, head: AccessHead, change: AccessChange) -> Sequence[StoreChange]:
        value, version = encode_head(head), read.head_version
        path = self._znodes.access_head
        first: StoreChange = Create(path, value) if version is None else SetValue(path, value, version)
        return [
            first,
            *(Delete(self._token_path(one.token_id), 0) for one in change.revoked),
            *(Create(self._token_path(one.token_id), encode_token(one)) for one in change.created),
            *(Delete(self._grant_path(grant_key(one)), 0) for one in change.removed),
            *(Create(self._grant_path(grant_key(one)), encode_grant(one)) for one in change.granted),
            Create(self._change_path(head.number), encode_change(change)),
            *self._drop_old(head.number),
        ]

    def _drop_old(self, number: int) -> list[StoreChange]:
        path = self._change_path(number - KEPT_CHANGES)
        found: Versioned | None = find(self._store, path) if number > KEPT_CHANGES else None
        return [] if found is None else [Delete(path, found.version)]

    def _token_path(self, token_id: str) -> str:
        return f"{self._znodes.access_tokens}/{token_id}"

    def _grant_path(self, key: str) -> str:
        return f"{self._znodes.access_grants}/{key}"

    def _change_path(self, number: int) -> str:
        return f"{self._znodes.access_changes}/{number}"
