"""How a client looks up, creates and deletes the metadata of ledgers.

If the reply to a creation is lost, the ledger may have been created, and when the store's own client repeats the request it
finds that the ledger exists. In both cases the creator's token in the stored value decides, never a guess.

Ref: docs/rules.md, protocol rule 31.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bk_spark.errors import BookKeeperError, ConfigError, LedgerExistsError, MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_ids import IssuedId, forget, issue_ledger_id, ledger_ids
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
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
"""The error to raise if one of the other changes of a creation was refused; None if the refusal has no known meaning."""


class LedgerStore:
    """A client's work on ledgers' metadata outside of its state machines. Threads may share it."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedgerError."""
        return self.versioned(ledger_id)[0]

    def versioned(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        """The metadata and its version, for a compare-and-set. Raises NoSuchLedgerError."""
        self._check_id(ledger_id)
        [(_, found)] = self._stored([ledger_id])
        if found is None:
            raise NoSuchLedgerError(ledger_id)
        return _decoded(ledger_id, found), found.version

    def metadata_many(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """In their order. Raises NoSuchLedgerError."""
        for ledger_id in ledger_ids:
            self._check_id(ledger_id)
        return [_decoded(ledger_id, value) for ledger_id, value in self._stored(ledger_ids)]

    def existing(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """As ``metadata_many``, without the ledgers that do not exist (any more)."""
        return [_decoded(ledger_id, value) for ledger_id, value in self._stored(ledger_ids) if value is not None]

    def readable(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        """In their order: None if the ledger does not exist, an error if its stored value cannot be read."""
        return [None if value is None else _decoded_or_error(ledger_id, value) for ledger_id, value in self._stored(ledger_ids)]

    def ids(self, after: int = -1) -> Iterator[int]:
        """The ids of all ledgers above ``after``, ascending."""
        return ledger_ids(self._store, self._znodes, after)

    @contextmanager
    def new_id(self) -> Iterator[IssuedId]:
        """An id for ``create`` that no other ledger of this cluster ever gets. If the block fails it is given up."""
        issued = issue_ledger_id(self._store, self._znodes)
        try:
            yield issued
        except MetadataUnavailableError:
            raise  # the store would not answer ``forget`` either: the znode goes with the session
        except BaseException:
            forget(self._store, issued)
            raise

    def create(
        self,
        metadata: LedgerMetadata,
        changes: Sequence[StoreChange],
        explain: Explain,
        issued: IssuedId | None = None,
        readers: tuple[str, ...] = (),
    ) -> None:
        """Store a new ledger's metadata and apply ``changes``, and delete the znode that issued its id: all or nothing.

        ``readers`` may read the metadata beside the cluster's members.

        Raises LedgerExistsError if another creator's ledger has the id, the error of ``explain`` for a refused change, and
        MetadataUnavailableError if the store did not answer and does not hold the ledger: then it may still appear.
        """
        creation = Create(self._znodes.ledger(metadata.ledger_id), metadata.encode(), readers)
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
        """Missing paths are no refusal: the ledger's parent may be missing, and the id's znode, if its session expired.

        Thousands of ids share a parent, so it is created only when it is missed.
        """
        end = [] if issued is None else [Delete(issued.path, ANY_VERSION)]
        try:
            self._store.transaction([*changes, *end])
        except TransactionFailedError as failure:
            if not isinstance(failure.reason, NoNodeError) or failure.index not in (0, len(changes)):
                raise
            self._store.ensure_path(changes[0].path.rsplit("/", 1)[0])
            self._store.transaction(changes)
            if issued is not None:
                forget(self._store, issued)

    def delete(self, seen: LedgerMetadata) -> bool:
        """Delete the ledger if its metadata is still what the caller has seen. False if it is not: look at it again.

        Raises NoSuchLedgerError.
        """
        path = self._znodes.ledger(seen.ledger_id)
        self._store.sync(path)  # a server that lags behind would answer with the old metadata, and then refuse the version
        found, version = self.versioned(seen.ledger_id)
        if found != seen:
            return False
        try:
            self._store.delete(path, version)
        except BadVersionError:
            return False
        except NoNodeError:
            raise NoSuchLedgerError(seen.ledger_id) from None
        return True

    def _is_mine(self, metadata: LedgerMetadata) -> bool:
        """Whether this very creation took effect: then the stored value carries its token."""
        self._store.sync(self._znodes.ledger(metadata.ledger_id))
        found = self.existing([metadata.ledger_id])
        return bool(found) and found[0].creator_token == metadata.creator_token

    def _stored(self, ledger_ids: Sequence[int]) -> list[tuple[int, Versioned | None]]:
        """None for a ledger that does not exist. Only a synced server of the store says so: one that lags proves nothing."""
        found = self._values(ledger_ids)
        missing = [ledger_id for ledger_id, value in found.items() if value is None]
        if missing:
            self._store.sync(self._znodes.root)
            found |= self._values(missing)
        return [(ledger_id, found[ledger_id]) for ledger_id in ledger_ids]

    def _values(self, ledger_ids: Sequence[int]) -> dict[int, Versioned | None]:
        found = self._store.get_many([self._znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        return dict(zip(ledger_ids, found, strict=True))

    def _check_id(self, ledger_id: object) -> None:
        if not isinstance(ledger_id, int) or isinstance(ledger_id, bool):
            raise ConfigError("a ledger id", ledger_id, "it must be a whole number")
        if not 0 <= ledger_id <= self._znodes.layout.largest_id:
            raise NoSuchLedgerError(ledger_id)


def _decoded_or_error(ledger_id: int, value: Versioned) -> LedgerMetadata | BookKeeperError:
    try:
        return _decoded(ledger_id, value)
    except BookKeeperError as problem:
        return problem


def _decoded(ledger_id: int, value: Versioned | None) -> LedgerMetadata:
    if value is None:
        raise NoSuchLedgerError(ledger_id)
    return LedgerMetadata.decode(ledger_id, value.value)
