"""The ledgers of Pulsar's topics, as ZooKeeper names them and as bk_spark's client reads them.

Closed ledgers are opened as any others. The last one of a topic belongs to its broker: it is read up to its last add confirmed,
and never recovered.

Ref: Pulsar's MLDataFormats.proto, ManagedLedgerInfo and ManagedCursorInfo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from bk_spark.bookkeeper import BookKeeper
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.metadata.store import MetadataStore, NoNodeError
from tests.soak.pulsar.broker import ROOT
from tests.soak.pulsar.messages import every_field, expected, fields, messages
from tests.soak.pulsar.records import Records, from_rows
from tests.soak.pulsar.topics import TOPICS, Topic

LEDGER_INFO, LEDGER_ID, ENTRIES = 1, 1, 2
CURSORS_LEDGER_ID = 1
"""Fields of ManagedLedgerInfo, of the LedgerInfo in it, and of ManagedCursorInfo."""

NAME_TAG = "pulsar/managed-ledger"
"""Custom metadata of a ledger: which topic it belongs to."""


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    ledger_id: int
    entries: int
    """0 while the ledger is open."""


@dataclass(slots=True)
class Found:
    """What was read of a topic's ledgers."""

    records: Records
    ledgers: int
    entries: int
    unseen_after: dict[int, int]
    """Open ledgers, and the last entry that a reader sees of each."""
    violations: list[str]


def ledgers_of(store: MetadataStore, partition: str) -> list[LedgerInfo]:
    """Oldest first; the last one is open. None where there is no such partition."""
    try:
        value = store.get(_znode(partition)).value
    except NoNodeError:
        return []
    infos = [fields(bytes(one)) for number, one in every_field(value) if number == LEDGER_INFO]
    return [LedgerInfo(_signed(info[LEDGER_ID]), _signed(info.get(ENTRIES, 0))) for info in infos]


def cursor_ledgers_of(store: MetadataStore, partition: str) -> list[int]:
    """Where the partition's subscriptions keep their positions."""
    path = _znode(partition)
    values = [fields(store.get(f"{path}/{name}").value) for name in store.children(path)]
    return [ledger for value in values if (ledger := _signed(value[CURSORS_LEDGER_ID])) >= 0]


def read_topic(client: BookKeeper, store: MetadataStore, topic: Topic, *, is_open_only: bool = False) -> Found:
    """Every entry of all its ledgers, or of the open ones alone, each message checked."""
    rows: list[tuple[int, ...]] = []
    found = Found(from_rows([]), 0, 0, {}, [])
    for number, partition in enumerate(topic.partitions):
        infos = ledgers_of(store, partition)
        for info in infos[-1:] if is_open_only else infos:
            rows += _read_ledger(client, topic.name, number, info, info is infos[-1], found)
    found.records = from_rows(rows)
    return found


def remaining(client: BookKeeper) -> dict[int, str]:
    """The ledgers of this run's topics that have metadata, and the topic of each."""
    listed = list(client.list_ledgers())
    pages = [listed[start : start + 1_000] for start in range(0, len(listed), 1_000)]
    tags = {one.ledger_id: topic_of(one) for page in pages for one in client.existing_ledgers(page)}
    every = {partition for topic in TOPICS for partition in topic.partitions}
    return {ledger_id: topic for ledger_id, topic in tags.items() if topic in every}


def topic_of(metadata: LedgerMetadata) -> str:
    return dict(metadata.custom_metadata).get(NAME_TAG, b"").decode()


def _read_ledger(
    client: BookKeeper, topic: str, partition: int, info: LedgerInfo, is_last: bool, found: Found
) -> Iterator[tuple[int, ...]]:
    with client.open_ledger(info.ledger_id, recover=not is_last) as reader:
        last = reader.last_add_confirmed
        if is_last and reader.metadata.state is not LedgerState.CLOSED:
            found.unseen_after[info.ledger_id] = last
        elif (reader.metadata.state, last + 1) != (LedgerState.CLOSED, info.entries):
            state = reader.metadata.state.name
            found.violations.append(f"ledger {info.ledger_id} of {topic}: {state} with {last + 1} entries, Pulsar says {info}")
        found.ledgers += 1
        found.entries += last + 1
        if last < 0:
            return
        entry = 0
        for batch in reader.read(0, last):
            for payload in batch.column("payload").to_pylist():
                for one in messages(payload):
                    if one.payload != expected(topic, one.key, one.sequence):
                        found.violations.append(f"ledger {info.ledger_id} of {topic}: entry {entry} is not what was sent")
                    yield one.key, one.sequence, partition, one.batch, info.ledger_id, entry
                entry += 1
        if entry != last + 1:
            found.violations.append(f"ledger {info.ledger_id} of {topic}: {entry} entries were read of {last + 1}")


def _znode(partition: str) -> str:
    prefix, _, name = partition.rpartition("/")
    return f"{ROOT}/managed-ledgers/{prefix}/{quote(name, safe='')}"


def _signed(value: int | bytes) -> int:
    number = int(value)
    return number - (1 << 64) if number >> 63 else number
