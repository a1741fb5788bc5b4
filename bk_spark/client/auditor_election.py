"""Who is the auditor: of all that stand for election, the one with the oldest vote.

A vote is an ephemeral sequential znode, so it goes with the session of who made it, and the next oldest one takes over. A vote
is known by a random token in its value: one that was made without its maker learning of it is its maker's all the same.

Two may believe themselves elected for a moment: one that was suspended until after its session expired, until it asks again.
It does no harm. All that an auditor does is to mark ledgers, and to read; marks are idempotent and grow by compare-and-set, so
both together mark what each would have; and a mark too many costs one look of a worker, which finds all copies there. It
asks before each page of marks, so it soon stops.

Ref: Apache BookKeeper's ZkLedgerAuditorManager; situation 78; docs/formats.md.
"""

from __future__ import annotations

import contextlib
import uuid

from bk_spark.errors import CorruptionError
from bk_spark.metadata_store import MetadataStore, NoNodeError
from bk_spark.proto.under_replication_pb2 import AuditorVoteFormat
from bk_spark.protobuf_text import from_text, to_text
from bk_spark.znodes import Znodes


class AuditorElection:
    """One candidate. All raise MetadataUnavailableError, and may then be repeated."""

    def __init__(self, store: MetadataStore, znodes: Znodes, auditor_id: str) -> None:
        self._store = store
        self._znodes = znodes
        self.votes = 0
        """How often it voted: an office ends with its vote, also if the next vote is elected at once."""
        self._value = to_text(AuditorVoteFormat(bookieId=f"{auditor_id} #{uuid.uuid4().hex}"))

    def is_elected(self) -> bool:
        """Whether this candidate has the oldest vote now; it votes if it has none, or lost it with its session."""
        self._store.sync(self._znodes.root)
        votes = _votes(self._store, self._znodes)
        if self._value not in votes.values():
            self._store.ensure_path(self._znodes.auditor_election)
            self.votes += 1
            self._store.create_sequential(self._znodes.auditor_vote_prefix, self._value, ephemeral=True)
            votes = _votes(self._store, self._znodes)
        return next(iter(votes.values()), None) == self._value

    def withdraw(self) -> None:
        """Take back the vote, so that another one is elected at once."""
        for path, value in _votes(self._store, self._znodes).items():
            if value == self._value:
                with contextlib.suppress(NoNodeError):
                    self._store.delete(path)


def current_auditor(store: MetadataStore, znodes: Znodes) -> str | None:
    """The id of the elected auditor; None if nobody stands for election."""
    value = next(iter(_votes(store, znodes).values()), None)
    return None if value is None else _decoded(value)


def candidates(store: MetadataStore, znodes: Znodes) -> list[str]:
    """The ids of all that stand for election, the auditor first."""
    return [_decoded(value) for value in _votes(store, znodes).values()]


def _votes(store: MetadataStore, znodes: Znodes) -> dict[str, bytes]:
    """Paths and values, the oldest vote first."""
    prefix = znodes.auditor_vote_prefix.rsplit("/", 1)[1]
    try:
        names = [name for name in store.children(znodes.auditor_election) if name.startswith(prefix)]
    except NoNodeError:
        return {}
    paths = [f"{znodes.auditor_election}/{name}" for name in sorted(names)]
    return {path: found.value for path, found in zip(paths, store.get_many(paths), strict=True) if found is not None}


def _decoded(value: bytes) -> str:
    """The candidate's id without its token; the value as it stands if it is no vote of this form."""
    try:
        return from_text(value, AuditorVoteFormat(), "a vote").bookieId.split(" #")[0]
    except CorruptionError:
        return value.decode(errors="replace")
