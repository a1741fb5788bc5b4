"""The entries of a topic's ledgers, wherever they are: on bookies, or in the copies that Pulsar's offloader made.

Bookies are asked first: while they have a ledger they are nearer. Pulsar notes a copy as complete before it deletes the ledger,
so a ledger that is gone and has no copy was trimmed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from bk_spark.errors import CorruptionError, NoSuchEntryError, NoSuchLedgerError, StorageError, UnreadableMessagesError
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.offloaded import DamagedCopyError
from bk_spark.pulsar.stored import OffloadedCopy, StoredLedger
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.copies import CopiedLedger, address_of, properties_of, refusal
from bk_spark.topic.store import TopicStore

_ACCESS = "credentials come from the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_OTHER_ENDPOINT = "option 'offloadEndpoint' has to name another endpoint"

MAX_OPEN_COPIES = 8
"""A reader goes along a topic, and looks ahead and back from there."""


class TopicEntries:
    """Reads ledgers of one topic, or of one of its partitions. One thread uses it."""

    def __init__(self, access: TopicAccess, topic: TopicName) -> None:
        self._open = access.open_ledger
        self._endpoint = access.offload_endpoint
        self._store = TopicStore(access)
        self._topic = topic
        self._copied: dict[int, StoredLedger] = {}
        """The ledgers that bookies were found not to have."""
        self._opened: dict[int, CopiedLedger] = {}

    def read(self, ledger_id: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Entries that are known to be confirmed, with columns ``entry_id`` and ``payload``, first and last inclusive.

        Raises NoSuchLedgerError, NoSuchEntryError where they are gone for good; UnreadableMessagesError for a copy that is
        damaged or not understood; StorageError where its store does not answer or refuses; BookieUnavailableError …
        """
        try:
            if ledger_id not in self._copied:
                for batch in self._open(ledger_id).read_unconfirmed(first, last):
                    yield batch
                    first = int(batch.column("entry_id")[-1].as_py()) + 1
                return
        except (NoSuchLedgerError, NoSuchEntryError):
            listed = self._listed(ledger_id)
            if listed is None or listed.copy is None:
                raise
            self._copied[ledger_id] = listed
        yield from self._from_copy(ledger_id, first, last)

    def _from_copy(self, ledger_id: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        copy = self._copied[ledger_id].copy
        assert copy is not None
        refused = refusal(copy)
        if refused is not None:
            raise self._unreadable(ledger_id, refused)
        where = f"its copy {address_of(copy, ledger_id)}"
        if self._endpoint or copy.endpoint:
            where += f" at {self._endpoint or copy.endpoint}"
        try:
            yield from self._open_copy(ledger_id, copy).read(first, last)
        except DamagedCopyError as problem:
            raise self._unreadable(ledger_id, f"{where} is damaged: {problem}") from None
        except CorruptionError:
            if self._listed(ledger_id) is None:
                raise NoSuchLedgerError(ledger_id) from None  # trimmed meanwhile: from the list first, then the copy
            raise self._unreadable(ledger_id, f"{where} is gone, unless {_OTHER_ENDPOINT}") from None
        except StorageError as problem:
            what = f"reading ledger {ledger_id} of topic '{self._topic}' from {where}"
            raise StorageError(what, f"{problem.problem}; {_ACCESS}, and perhaps {_OTHER_ENDPOINT}") from problem

    def _open_copy(self, ledger_id: int, copy: OffloadedCopy) -> CopiedLedger:
        from bk_spark.files.file_store import store_with  # and pyarrow.fs, which others need not wait for

        if ledger_id not in self._opened:
            while len(self._opened) >= MAX_OPEN_COPIES:
                del self._opened[next(iter(self._opened))]
            store = store_with(properties_of(copy, self._endpoint))
            self._opened[ledger_id] = CopiedLedger(store, address_of(copy, ledger_id), self._copied[ledger_id])
        return self._opened[ledger_id]

    def _unreadable(self, ledger_id: int, problem: str) -> UnreadableMessagesError:
        return UnreadableMessagesError(str(self._topic), f"ledger {ledger_id}", problem)

    def _listed(self, ledger_id: int) -> StoredLedger | None:
        [found] = self._store.managed_ledgers([self._topic])
        return next((one for one in found.ledgers if one.ledger_id == ledger_id), None) if found else None
