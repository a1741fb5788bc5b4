"""Which ledgers may enter a log, and how they are deleted.

A ledger's custom metadata names one log, by uid, and one write job, by id: from its creation on, or by a compare-and-set
when a log adopts it. A job commits at most once, and its commit takes only ledgers with its own id. That is enough to make
sure that no ledger is listed twice or by two logs, and it costs the same however long the log is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from bk_spark.entries.log_secret import lost_secret
from bk_spark.errors import ConfigError, LedgerNotClosedError, MetadataConflictError, NoSuchLedgerError
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.tree import DELETES_AT_ONCE, READS_AT_ONCE, chunks
from bk_spark.log.stored.values import JOB_TAG, CommittedLedger, JobState
from bk_spark.metadata.ledger_metadata import LOG_TAG, LedgerMetadata
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Delete,
    MetadataStore,
    NoNodeError,
    StoreChange,
    TransactionFailedError,
    find,
)
from bk_spark.metadata.znodes import Znodes

_TRIES = 10
"""Each further try means that somebody else changed the same ledger, which nobody does more than a few times."""


@dataclass(frozen=True, slots=True)
class Claim:
    """For whom ledgers are claimed: the log, and the write job that is going to list them."""

    log_name: str
    uid: str
    paths: LogPaths
    job_id: str


class LogLedgers:
    """The ledgers of logs, in the metadata store alone."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes

    def describe(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """The metadata of each, which must be CLOSED. Raises NoSuchLedgerError, LedgerNotClosedError."""
        return [_closed(ledger_id, found) for ledger_id, found in zip(ledger_ids, self.find(ledger_ids), strict=True)]

    def find(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | None]:
        """The metadata of each, in their order; None for one that does not exist."""
        return [None if found is None else found[0] for ids in chunks(ledger_ids, READS_AT_ONCE) for found in self._read(ids)]

    def check_own(self, claim: Claim, ledger_id: int) -> int | None:
        """Returns the ledger if it is not keyed. Raises NoSuchLedgerError, or ConfigError for a ledger that was not created for
        the claim's log and job."""
        (metadata,) = self.find([ledger_id])
        if metadata is None:
            raise NoSuchLedgerError(ledger_id)
        if not _is_claimed(metadata, claim):
            raise _refusal(claim, ledger_id, f"it was not created by write job {claim.job_id}, which is to open it")
        return None if metadata.is_keyed else ledger_id

    def claim(self, claim: Claim, ledgers: Sequence[CommittedLedger]) -> int | None:
        """Make each ledger the job's own, or raise for the first that cannot be, with its id.

        Returns the first one that is not keyed, None if all are: a secured log takes no other ones.

        Raises NoSuchLedgerError; LedgerNotClosedError; ConfigError for a ledger of another log, for one that is listed
        already, and for one whose end is not the one given.
        """
        without_key: int | None = None
        for some in chunks(ledgers, READS_AT_ONCE):
            for ledger, found in zip(some, self._read([one.ledger_id for one in some]), strict=True):
                is_keyed = self._claim(claim, ledger, found)
                without_key = ledger.ledger_id if without_key is None and not is_keyed else without_key
        return without_key

    def refuse_without_key(self, log_name: str, uid: str, paths: LogPaths, ledger_id: int) -> NoReturn:
        """Refuse a commit to a secured log for its ledger without a key.

        Raises ConfigError, or CorruptionError if the secret is gone.
        """
        if find(self._store, paths.secret) is None:
            raise lost_secret(uid, f"to log '{log_name}'")
        remedy = (
            "it has no key, and the log is secured: anybody who reaches a bookie could read it. A write that began before the "
            "log was secured is to be run again; ledgers of others cannot be taken"
        )
        raise ConfigError(f"a ledger given to log '{log_name}'", ledger_id, remedy)

    def delete(self, ledger_ids: Sequence[int], job_id: str, index: Callable[[int], str] | None = None) -> None:
        """Delete the ledgers among these that carry ``job_id``, each together with its path in the index of its job."""
        for ids in chunks(ledger_ids, DELETES_AT_ONCE):
            self._delete(ids, JOB_TAG, job_id, index)

    def delete_listed(self, ledger_ids: Sequence[int], uid: str) -> int:
        """Delete the ledgers among these that belong to the log, which must not list them any more. Returns how many."""
        return sum(self._delete(ids, LOG_TAG, uid) for ids in chunks(ledger_ids, DELETES_AT_ONCE))

    def _read(self, ledger_ids: Sequence[int]) -> list[tuple[LedgerMetadata, int] | None]:
        """Metadata and znode version of each; None for one that does not exist."""
        stored = self._store.get_many([self._znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        pairs = zip(ledger_ids, stored, strict=True)
        return [(LedgerMetadata.decode(one, found.value), found.version) if found else None for one, found in pairs]

    def _delete(self, ids: Sequence[int], tag: str, value_of_tag: str, index: Callable[[int], str] | None = None) -> int:
        for _ in range(_TRIES):
            deletions = self._deletions(ids, tag, value_of_tag)
            changes = deletions + (self._present(ids, index) if index else [])
            try:
                if changes:
                    self._store.transaction(changes)
                return len(deletions)
            except TransactionFailedError:
                self._store.sync(self._znodes.root)  # somebody else deletes the same ones
        raise MetadataConflictError(f"ledgers {ids[0]} to {ids[-1]}", f"{_TRIES} tries to delete them met another change")

    def _deletions(self, ids: Sequence[int], tag: str, value_of_tag: str) -> list[StoreChange]:
        return [
            Delete(self._znodes.ledger(ledger_id), found[1])
            for ledger_id, found in zip(ids, self._read(ids), strict=True)
            if found is not None and _tag(found[0], tag) == value_of_tag
        ]

    def _present(self, ids: Sequence[int], index: Callable[[int], str]) -> list[StoreChange]:
        paths = [index(ledger_id) for ledger_id in ids]
        return [
            Delete(path, ANY_VERSION)
            for path, value in zip(paths, self._store.get_many(paths), strict=True)
            if value is not None
        ]

    def _claim(self, claim: Claim, ledger: CommittedLedger, found: tuple[LedgerMetadata, int] | None) -> bool:
        """Whether it is keyed."""
        for _ in range(_TRIES):
            if found is None:
                raise NoSuchLedgerError(ledger.ledger_id)
            metadata, znode_version = found
            _check_end(claim, ledger, _closed(ledger.ledger_id, metadata))
            if _is_claimed(metadata, claim):
                return metadata.is_keyed
            self._check_free(claim, metadata)
            tagged = metadata.with_custom(LOG_TAG, claim.uid.encode()).with_custom(JOB_TAG, claim.job_id.encode())
            try:
                self._store.set(self._znodes.ledger(ledger.ledger_id), tagged.encode(), znode_version)
                return metadata.is_keyed
            except (BadVersionError, NoNodeError):
                (found,) = self._read([ledger.ledger_id])
        raise MetadataConflictError(f"ledger {ledger.ledger_id}", f"{_TRIES} tries to adopt it met another change")

    def _check_free(self, claim: Claim, metadata: LedgerMetadata) -> None:
        """Raises ConfigError unless the job may take the ledger.

        It may if nobody owns it, if it is the job's own under another uid, or if a job of this log ended without listing it.
        """
        uid, job_id = _tag(metadata, LOG_TAG), _tag(metadata, JOB_TAG)
        if metadata.is_keyed and uid != claim.uid:
            raise _refusal(claim, metadata.ledger_id, f"its keys come from the secret of another log (uid {uid})")
        if job_id == claim.job_id:
            return
        if uid not in (None, claim.uid):
            problem = f"it belongs to another log (uid {uid}), and a ledger has one log for life"
            raise _refusal(claim, metadata.ledger_id, problem)
        if job_id is not None:
            self._check_job_ended(claim, metadata.ledger_id, job_id)

    def _check_job_ended(self, claim: Claim, ledger_id: int, job_id: str) -> None:
        paths = claim.paths.job(job_id)
        running, directory = self._store.get_many([paths.running, paths.root])  # in this order: see jobs.py
        state = JobState.decode(f"the state of write job {job_id}", directory.value) if directory else None
        if state is not None and state.version is not None:
            raise _refusal(claim, ledger_id, f"version {state.version} of the log has listed it already")
        if state is None or running is not None or state.home is not None:
            raise _refusal(claim, ledger_id, f"it belongs to another write job ({job_id}) that has not ended")


def _closed(ledger_id: int, metadata: LedgerMetadata | None) -> LedgerMetadata:
    if metadata is None:
        raise NoSuchLedgerError(ledger_id)
    if not metadata.is_closed:
        raise LedgerNotClosedError(ledger_id, metadata.state.name)
    return metadata


def _check_end(claim: Claim, ledger: CommittedLedger, metadata: LedgerMetadata) -> None:
    if (metadata.last_entry_id, metadata.length) != (ledger.last_entry_id, ledger.length):
        problem = (
            f"it was given with last entry {ledger.last_entry_id} and {ledger.length} bytes, "
            f"and was closed at entry {metadata.last_entry_id} with {metadata.length} bytes"
        )
        raise _refusal(claim, ledger.ledger_id, problem)


def _tag(metadata: LedgerMetadata, key: str) -> str | None:
    value = metadata.custom(key)
    return None if value is None else value.decode(errors="replace")


def _is_claimed(metadata: LedgerMetadata, claim: Claim) -> bool:
    return (_tag(metadata, LOG_TAG), _tag(metadata, JOB_TAG)) == (claim.uid, claim.job_id)


def _refusal(claim: Claim, ledger_id: int, problem: str) -> ConfigError:
    return ConfigError(f"a ledger given to log '{claim.log_name}'", ledger_id, problem)
