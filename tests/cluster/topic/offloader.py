"""What Pulsar's offloader does with a ledger of a topic: two objects, what Pulsar notes of them, and no ledger on bookies."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from bk_spark.bookkeeper import BookKeeper
from tests.cluster.lake.object_store import BUCKET, REGION, ObjectStore
from tests.cluster.topic.written_topics import WrittenTopic
from tests.unit.pulsar.copies import WrittenCopy, written_copy


@dataclass(frozen=True)
class Offloader:
    """Copies ledgers into one object store."""

    bookkeeper: BookKeeper
    store: ObjectStore
    block_bytes: int = 400
    """Pulsar's own blocks have 5 MiB and more."""

    def offload(
        self, topic: WrittenTopic, index: int, *, keep: bool = False, driver: str = "aws-s3", endpoint: str = ""
    ) -> str:
        """Copy a closed ledger; ``keep`` it on the bookies, too. Returns the data object's path."""
        ledger_id = topic.ledger_ids[index]
        with self.bookkeeper.open_ledger(ledger_id, recover=False) as reader:
            entries = [
                one for batch in reader.read(0, reader.last_add_confirmed) for one in batch.column("payload").to_pylist()
            ]
        uid = uuid.uuid4()
        path = f"{BUCKET}/{uid}-ledger-{ledger_id}"
        self.put(path, written_copy(entries, self.block_bytes))
        noted = {"bucket": BUCKET, "region": REGION, "serviceEndpoint": endpoint or self.store.endpoint}
        topic.note_copy(index, driver, uid, noted, deleted=not keep)
        if not keep:
            self.bookkeeper.delete_ledger(ledger_id, of_application="pulsar")
        return path

    def put(self, path: str, copy: WrittenCopy) -> None:
        client = self.store.client()
        for name, content in ((path, copy.data), (f"{path}-index", copy.index)):
            with client.open_output_stream(name) as out:
                out.write(content)
