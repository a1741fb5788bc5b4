"""Entries come from bookies while these have a ledger, then from its copy, without a gap and without doubles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.fs
import pytest

from bk_spark.errors import NoSuchEntryError, NoSuchLedgerError, StorageError, UnreadableMessagesError
from bk_spark.files.file_store import FileStore
from bk_spark.proto.pulsar_pb2 import KeyValue, ManagedLedgerInfo
from bk_spark.pulsar.names import TopicName
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.copies import SCHEMA
from bk_spark.topic.entries import TopicEntries
from tests.unit.pulsar.copies import written_copy
from tests.unit.pulsar.entries import single
from tests.unit.topic.test_store import LaggingStore

TOPIC = TopicName.parse("persistent://public/default/visits")
UID = UUID(int=7 << 64 | 9)
ENTRIES = [single(b"%d" % number) for number in range(9)]


@dataclass
class Bookies:
    """Ledgers, of which the entries below ``until`` are there; without it, there is no such ledger."""

    until: int | None = len(ENTRIES)
    opened: int = 0

    def open_ledger(self, ledger_id: int) -> Bookies:
        self.opened += 1
        if self.until is None:
            raise NoSuchLedgerError(ledger_id)
        return self

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        assert self.until is not None
        for entry_id in range(first, last + 1):
            if entry_id >= self.until:
                raise NoSuchEntryError(5, entry_id)
            yield pa.RecordBatch.from_pydict({"entry_id": [entry_id], "payload": [ENTRIES[entry_id]]}, SCHEMA)

    is_closed, last_add_confirmed, length = True, len(ENTRIES) - 1, 0

    def read_last_add_confirmed(self) -> int:
        return self.last_add_confirmed


@dataclass
class Place:
    """A topic with ledgers 5 and 6, and where their copies are: in a folder, which stands for the bucket of an object store."""

    folder: Path
    bookies: Bookies = field(default_factory=Bookies)
    values: dict[str, bytes] = field(default_factory=dict)
    driver: str = "aws-s3"

    def list(self, *, complete: bool = True) -> None:
        info = ManagedLedgerInfo()
        for ledger_id in (5, 6):
            listed = info.ledgerInfo.add(ledgerId=ledger_id, entries=len(ENTRIES), size=sum(map(len, ENTRIES)))
            context = listed.offloadContext
            context.uidMsb, context.uidLsb, context.complete, context.bookkeeperDeleted = 7, 9, complete, True
            context.driverMetadata.name = self.driver
            noted = {"bucket": "b", "serviceEndpoint": "http://noted"}
            context.driverMetadata.properties.extend(KeyValue(key=key, value=value) for key, value in noted.items())
        self.values[f"/{TOPIC.managed_ledger_path}"] = info.SerializeToString()

    def copy(self) -> None:
        copy = written_copy(ENTRIES, 400)
        for ledger_id in (5, 6):
            (self.folder / f"{UID}-ledger-{ledger_id}").write_bytes(copy.data)
            (self.folder / f"{UID}-ledger-{ledger_id}-index").write_bytes(copy.index)

    def entries(self, endpoint: str | None = None) -> TopicEntries:
        return TopicEntries(TopicAccess(LaggingStore(self.values), "", self.bookies.open_ledger, endpoint), TOPIC)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    def at(store: FileStore, address: str) -> tuple[pa.fs.FileSystem, str]:
        return pa.fs.LocalFileSystem(), address.replace("s3://b/", f"{tmp_path}/")

    monkeypatch.setattr(FileStore, "_at", at)
    made = Place(tmp_path)
    made.list()
    made.copy()
    return made


def read(entries: TopicEntries, first: int = 0, last: int = len(ENTRIES) - 1, ledger_id: int = 5) -> list[bytes]:
    return [one for batch in entries.read(ledger_id, first, last) for one in batch.column("payload").to_pylist()]


def test_bookies_are_read_while_they_have_a_ledger_though_there_is_a_copy(place: Place) -> None:
    for one in place.folder.iterdir():
        one.unlink()
    assert read(place.entries(), 2, 4) == ENTRIES[2:5]


@pytest.mark.parametrize("until", [None, *range(len(ENTRIES))])
def test_a_copy_goes_on_where_bookies_have_no_entry_any_more(place: Place, until: int | None) -> None:
    place.bookies.until = until
    assert read(place.entries()) == ENTRIES
    assert read(place.entries(), 3, 5) == ENTRIES[3:6]


def test_bookies_are_asked_once_for_a_ledger_that_they_do_not_have(place: Place) -> None:
    place.bookies.until = None
    entries = place.entries()
    assert read(entries, 0, 3) + read(entries, 4, 8) == ENTRIES
    assert place.bookies.opened == 1


def test_a_ledger_without_a_complete_copy_is_gone_where_bookies_do_not_have_it(place: Place) -> None:
    place.bookies.until = None
    place.list(complete=False)
    with pytest.raises(NoSuchLedgerError):
        read(place.entries())
    place.values.clear()
    with pytest.raises(NoSuchLedgerError):
        read(place.entries())


def test_a_copy_that_is_gone_with_its_ledger_was_trimmed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bk_spark.topic.entries.MAX_OPEN_COPIES", 1)
    place.bookies.until = None
    entries = place.entries()
    for ledger_id in (5, 6):
        assert read(entries, 0, 0, ledger_id) == ENTRIES[:1]
    place.values.clear()
    for one in place.folder.iterdir():
        one.unlink()
    with pytest.raises(NoSuchLedgerError):
        read(entries)


def test_a_copy_that_is_gone_while_pulsar_lists_it_is_named_with_the_way_out(place: Place) -> None:
    place.bookies.until = None
    for one in place.folder.iterdir():
        one.unlink()
    with pytest.raises(UnreadableMessagesError) as caught:
        read(place.entries())
    assert str(caught.value) == (
        f"ledger 5 of topic '{TOPIC}' cannot be read: its copy s3://b/{UID}-ledger-5 at http://noted is gone, unless option "
        "'offloadEndpoint' has to name another endpoint; to leave such messages out, set unreadable to skip"
    )
    with pytest.raises(UnreadableMessagesError, match="at http://other is gone"):
        read(place.entries("http://other"))


def test_a_damaged_copy_is_named_with_what_is_wrong(place: Place) -> None:
    place.bookies.until = None
    (place.folder / f"{UID}-ledger-5-index").write_bytes(b"no index, but longer than the head of one")
    with pytest.raises(
        UnreadableMessagesError, match=rf"ledger 5 of topic .*s3://b/{UID}-ledger-5 .* is damaged: it begins with"
    ):
        read(place.entries())


def test_a_copy_of_a_driver_that_is_not_understood_is_refused_by_name(place: Place) -> None:
    place.bookies.until, place.driver = None, "filesystem"
    place.list()
    with pytest.raises(UnreadableMessagesError, match="offloaded it to 'filesystem' and deleted it on the bookies"):
        read(place.entries())


def test_a_store_that_refuses_is_named_with_where_credentials_come_from(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(store: FileStore, address: str) -> pa.NativeFile:
        raise StorageError(f"reading {address}", "ACCESS_DENIED")

    place.bookies.until = None
    monkeypatch.setattr(FileStore, "open_input", refused)
    with pytest.raises(StorageError) as caught:
        read(place.entries())
    for part in (
        "ledger 5",
        str(TOPIC),
        f"s3://b/{UID}-ledger-5",
        "ACCESS_DENIED",
        "AWS_ACCESS_KEY_ID",
        "offloadEndpoint",
    ):
        assert part in str(caught.value)


def test_few_copies_stay_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bk_spark.topic.entries.MAX_OPEN_COPIES", 1)
    place.bookies.until = None
    entries = place.entries()
    for ledger_id in (5, 6, 5):
        assert read(entries, ledger_id=ledger_id) == ENTRIES
        assert list(entries._opened) == [ledger_id]
