"""The versions of a topic's schema, which Pulsar keeps in ledgers of their own.

A message names the version that its producer used. The newest version says which columns a reader gets.
"""

from __future__ import annotations

from bk_spark.errors import ConfigError, NoSuchEntryError, NoSuchLedgerError
from bk_spark.pulsar import stored
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.schemas import RAW, TopicSchema
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.store import TopicStore


class TopicSchemas:
    """Looks up schemas of one topic, each once. One thread uses it."""

    def __init__(self, access: TopicAccess, topic: TopicName) -> None:
        self._open = access.open_ledger
        self._store = TopicStore(access)
        self._topic = topic.base
        self._known: dict[int, TopicSchema] = {}

    def newest(self) -> TopicSchema | None:
        """None if the topic has no schema: its values are bytes. Raises ConfigError for one that is kept and cannot be read."""
        locator = self._store.schema_locator(self._topic)
        return None if locator is None else self._read(locator.newest)

    def of(self, version: bytes) -> TopicSchema:
        """The schema of a message's ``schema_version``. Raises ConfigError for one that the topic does not have."""
        number = int.from_bytes(version, "big", signed=True) if len(version) == 8 else -1
        if number not in self._known:
            locator = self._store.schema_locator(self._topic)
            found = [one for one in (() if locator is None else locator.versions) if one.version == number]
            if not found:
                problem = f"a message was written with it, and topic '{self._topic}' does not have it: {RAW}"
                raise ConfigError("schema version", version.hex(), problem)
            self._read(found[0])
        return self._known[number]

    def _read(self, version: stored.SchemaVersion) -> TopicSchema:
        try:
            handle = self._open(version.ledger_id)
            [entry] = [
                payload.as_buffer().to_pybytes()
                for batch in handle.read_unconfirmed(version.entry_id, version.entry_id)
                for payload in batch.column("payload")
            ]
        except (NoSuchLedgerError, NoSuchEntryError):
            problem = f"ledger {version.ledger_id}, which holds it, does not exist: {RAW}"
            raise ConfigError(f"a schema of topic '{self._topic}'", version.version, problem) from None
        self._known[version.version] = schema = stored.schema_entry(entry)
        return schema
