"""The ledgers' metadata in the metadata store, as a client looks at it and creates it.

A creation whose reply was lost may have happened, and its repetition by the store's own client then finds that the ledger
exists already: both are settled by the creator's token in the stored value, never by a guess.

Ref: docs/rules.md, protocol rule 31.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bk_spark.errors import BookKeeperError, ConfigError, LedgerExistsError, MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_ids import IssuedId, forget, issue_ledger_id, ledger_ids
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    StoreChange,
    TransactionFailedError,
    Versioned,
)
from bk_spark.metadata.znodes import Znodes

Explain = Callable[[TransactionFailedError], BookKeeperError | None]
"""What it means that one of the other operations of a creation was refused; None if it means nothing known."""


class LedgerStore:
    """What a client does with ledgers' metadata outside of its state machines. Threads may share it."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedgerError."""
        return self.versioned(ledger_id)[0]

    def versioned(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        """The metadata and its version, for a compare-and-set. Raises NoSuchLedgerError."""
        self._check_id(ledger_id)
        found = self._store.get_many([self._znodes.ledger(ledger_id)])[0]
        if found is None:
            raise NoSuchLedgerError(ledger_id)
        return LedgerMetadata.decode(ledger_id, found.value), found.version

    def metadata_many(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """In their order. Raises NoSuchLedgerError."""
        for ledger_id in ledger_ids:
            self._check_id(ledger_id)
        found = self._store.get_many([self._znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        return [_decoded(ledger_id, value) for ledger_id, value in zip(ledger_ids, found, strict=True)]

    def existing(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """As ``metadata_many``, without those that do not exist (any more)."""
        found = self._store.get_many([self._znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        pairs = zip(ledger_ids, found, strict=True)
        return [LedgerMetadata.decode(ledger_id, value.value) for ledger_id, value in pairs if value is not None]

    def readable(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        """In their order: None for one that does not exist, an error for one whose stored value cannot be read."""
        found = self._store.get_many([self._znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        return [None if value is None else _tried(ledger_id, value) for ledger_id, value in zip(ledger_ids, found, strict=True)]

    def ids(self, after: int = -1) -> Iterator[int]:
        """The ids of all ledgers above ``after``, ascending."""
        return ledger_ids(self._store, self._znodes, after)

    @contextmanager
    def new_id(self) -> Iterator[IssuedId]:
        """An id that no other ledger of this cluster got, for ``create``. Where the block fails it is given up."""
        issued = issue_ledger_id(self._store, self._znodes)
        try:
            yield issued
        except MetadataUnavailableError:
            raise  # the store would not answer this either: the znode goes with the session
        except BaseException:
            forget(self._store, issued)
            raise

    def create(
        self, metadata: LedgerMetadata, changes: Sequence[StoreChange], explain: Explain, issued: IssuedId | None = None
    ) -> None:
        """Store a new ledger's metadata together with ``changes``, and delete what ``issued`` its id: all or none.

        Raises LedgerExistsError where somebody else's ledger has the id, what ``explain`` makes of a refused operation, and
        MetadataUnavailableError where the store did not answer and does not hold the ledger: then it may still come.
        """
        creation = Create(self._znodes.ledger(metadata.ledger_id), metadata.encode())
        try:
            self._create([creation, *changes], issued)
        except TransactionFailedError as failure:
            if failure.index == 0 and isinstance(failure.reason, NodeExistsError):
                if self._is_mine(metadata):
                    return
                raise LedgerExistsError(metadata.ledger_id) from None
            raise explain(failure) or failure from None
        except MetadataUnavailableError:
            if not self._is_mine(metadata):
                raise

    def _create(self, changes: Sequence[StoreChange], issued: IssuedId | None) -> None:
        """Two paths may be missing, which is no refusal: the ledger's parent, and that of the id, if its session expired.

        Thousands of ids share a parent, so it is looked for only then.
        """
        end = [] if issued is None else [Delete(issued.path)]
        try:
            self._store.transaction([*changes, *end])
        except TransactionFailedError as failure:
            if not isinstance(failure.reason, NoNodeError) or failure.index not in (0, len(changes)):
                raise
            self._store.ensure_path(changes[0].path.rsplit("/", 1)[0])
            self._store.transaction(changes)
            if issued is not None:
                forget(self._store, issued)

    def delete(self, ledger_id: int) -> None:
        """Raises NoSuchLedgerError."""
        try:
            self._store.delete(self._znodes.ledger(ledger_id))
        except NoNodeError:
            raise NoSuchLedgerError(ledger_id) from None

    def _is_mine(self, metadata: LedgerMetadata) -> bool:
        """Whether this very creation took effect: then the stored value carries its token."""
        path = self._znodes.ledger(metadata.ledger_id)
        self._store.sync(path)
        found = self._store.get_many([path])[0]
        return found is not None and _decoded(metadata.ledger_id, found).creator_token == metadata.creator_token

    def _check_id(self, ledger_id: object) -> None:
        if not isinstance(ledger_id, int) or isinstance(ledger_id, bool):
            raise ConfigError("a ledger id", ledger_id, "it must be a whole number")
        if not 0 <= ledger_id <= self._znodes.layout.largest_id:
            raise NoSuchLedgerError(ledger_id)


def _tried(ledger_id: int, value: Versioned) -> LedgerMetadata | BookKeeperError:
    try:
        return _decoded(ledger_id, value)
    except BookKeeperError as problem:
        return problem


def _decoded(ledger_id: int, value: Versioned | None) -> LedgerMetadata:
    if value is None:
        raise NoSuchLedgerError(ledger_id)
    return LedgerMetadata.decode(ledger_id, value.value)
