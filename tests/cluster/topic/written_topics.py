"""Topics as a broker of Pulsar leaves them: ledgers on real bookies, and their list in a real ZooKeeper."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.metadata.store import ANY_VERSION, NodeExistsError
from bk_spark.proto.pulsar_pb2 import (
    IndexEntry,
    KeyValue,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
    SchemaEntry,
    SchemaInfo,
    SchemaLocator,
)
from bk_spark.pulsar.names import TopicName

PULSAR = {"application": b"pulsar", "component": b"managed-ledger"}


class WrittenTopic:
    """One topic without partitions, or one partition, written as its broker does: one open ledger at its end."""

    def __init__(self, bookkeeper: BookKeeper, name: str, root: str = "") -> None:
        self.name = TopicName.parse(name)
        self._bookkeeper = bookkeeper
        self._store = bookkeeper.metadata_store
        self._root = root
        self._path = f"{root}/{self.name.managed_ledger_path}"
        self.info = ManagedLedgerInfo()
        self.writer: WriteHandle | None = None
        self._schemas: list[IndexEntry] = []

    def __str__(self) -> str:
        return str(self.name)

    @property
    def ledger_ids(self) -> list[int]:
        return [one.ledgerId for one in self.info.ledgerInfo]

    def append(self, *entries: bytes) -> list[str]:
        """Write entries into the open ledger, which is made if there is none. Returns their positions."""
        if self.writer is None:
            self.writer = self._bookkeeper.create_ledger(3, 2, 2, custom_metadata=PULSAR)
            self.info.ledgerInfo.append(ManagedLedgerInfo.LedgerInfo(ledgerId=self.writer.ledger_id))
            self.publish()
        return [f"{self.writer.ledger_id}:{self.writer.append(entry)}" for entry in entries]

    def roll(self) -> int:
        """Close the open ledger, as brokers do before they begin the next one. Returns its id."""
        assert self.writer is not None
        ledger_id = self.writer.ledger_id
        self.writer.close()
        self.writer = None
        metadata = self._bookkeeper.ledger_metadata(ledger_id)
        listed = self.info.ledgerInfo[-1]
        listed.entries, listed.size, listed.timestamp = (metadata.last_entry_id or 0) + 1, metadata.length, 1_700_000_000_000
        self.publish()
        return ledger_id

    def write(self, ledgers: Sequence[Sequence[bytes]]) -> list[str]:
        """Each list of entries as a ledger of its own; the last one is closed, too."""
        found = []
        for entries in ledgers:
            found += self.append(*entries)
            self.roll()
        return found

    def trim(self, count: int = 1) -> None:
        """Delete the first ledgers, as retention does: from the list first."""
        gone = self.ledger_ids[:count]
        del self.info.ledgerInfo[:count]
        self.publish()
        for ledger_id in gone:
            self._bookkeeper.delete_ledger(ledger_id, of_application="pulsar")

    def note_copy(self, index: int, driver: str, uid: UUID, noted: dict[str, str], *, deleted: bool = True) -> None:
        """Say that a ledger is copied to an object store, and whether it is deleted on the bookies."""
        context = self.info.ledgerInfo[index].offloadContext
        context.uidMsb, context.uidLsb = struct.unpack(">qq", uid.bytes)
        context.complete, context.bookkeeperDeleted = True, deleted
        context.driverMetadata.name = driver
        del context.driverMetadata.properties[:]
        context.driverMetadata.properties.extend(KeyValue(key=key, value=value) for key, value in noted.items())
        self.publish()

    def delete(self) -> None:
        """Delete the topic and its ledgers."""
        self._store.delete(self._path, ANY_VERSION)
        for ledger_id in self.ledger_ids:
            self._bookkeeper.delete_ledger(ledger_id, of_application="pulsar")

    def publish(self) -> None:
        """Store the list of ledgers."""
        self._put(self._path, self.info.SerializeToString())

    def subscribe(self, name: str, marked: tuple[int, int], *, in_ledger: bool = False) -> None:
        """A durable subscription that has read up to an entry, inclusive. ``in_ledger``: as while its broker is active."""
        info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=marked[0], markDeleteEntryId=marked[1])
        if in_ledger:
            position = PositionInfo(ledgerId=marked[0], entryId=marked[1]).SerializeToString()
            with self._bookkeeper.create_ledger(3, 2, 2, custom_metadata=PULSAR) as writer:
                writer.append(position)
            info = ManagedCursorInfo(cursorsLedgerId=writer.ledger_id, markDeleteLedgerId=marked[0], markDeleteEntryId=-1)
        self._put(f"{self._root}/{self.name.cursor_path(name)}", info.SerializeToString())

    def register(self, kind: str, definition: bytes = b"", properties: dict[str, str] | None = None) -> bytes:
        """Make this the topic's newest schema. Returns its version, as messages name it."""
        number = SchemaInfo.SchemaType.Value(kind.replace("_", ""))
        info = SchemaInfo(schema_id="s", user="", type=number, schema=definition, timestamp=0, deleted=False)
        info.props.extend(KeyValue(key=key, value=value) for key, value in (properties or {}).items())
        with self._bookkeeper.create_ledger(3, 2, 2, custom_metadata=PULSAR) as writer:
            writer.append(SchemaEntry(schema_data=info.SerializeToString()).SerializeToString())
        version = len(self._schemas)
        position = PositionInfo(ledgerId=writer.ledger_id, entryId=0)
        self._schemas.append(IndexEntry(version=version, position=position, hash=b""))
        locator = SchemaLocator(info=self._schemas[-1], index=self._schemas)
        self._put(f"{self._root}/{self.name.schema_path}", locator.SerializeToString())
        return version.to_bytes(8, "big")

    def _put(self, path: str, value: bytes) -> None:
        put(self._bookkeeper, path, value)


def partitioned(bookkeeper: BookKeeper, name: str, count: int, root: str = "") -> list[WrittenTopic]:
    """The partitions of a partitioned topic; none has messages yet."""
    topic = TopicName.parse(name)
    put(bookkeeper, f"{root}/{topic.partitions_path}", json.dumps({"partitions": count}).encode())
    return [WrittenTopic(bookkeeper, str(topic.of_partition(index)), root) for index in range(count)]


def put(bookkeeper: BookKeeper, path: str, value: bytes) -> None:
    """Make a znode have a value."""
    store = bookkeeper.metadata_store
    with suppress(NodeExistsError):
        store.create(path, value, make_parents=True)
        return
    store.set(path, value, store.get(path).version)
