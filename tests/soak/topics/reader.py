"""A process that reads a topic as our users do: ``python -m tests.soak.topics.reader METADATA PULSAR TOPIC KIND``.

``we follow`` looks every second for messages behind the last one that it has; anything else reads all of them, again and again.
For each line on standard input, a line of JSON with the messages read so far goes out.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator

import pyarrow as pa

from bk_spark import BookKeeper
from tests.soak.topics.compare import ids_of
from tests.soak.topics.windows import FOLLOW

LOOK_S = 1.0


class Reader(threading.Thread):
    def __init__(self, metadata_uri: str, pulsar_uri: str, topic: str, kind: str) -> None:
        super().__init__(daemon=True)
        self.messages = 0
        self._uris = metadata_uri, pulsar_uri
        self._topic = topic
        self._kind = kind
        self._behind: dict[str, str] = {}
        """The place behind the last message of each partition."""

    def run(self) -> None:
        with BookKeeper(self._uris[0]) as bookkeeper:
            topic = bookkeeper.open_topic(self._topic, pulsar_metadata=self._uris[1])
            for start in self._starts():
                for batch in topic.read(start):
                    self.messages += batch.num_rows
                    self._note(batch)

    def _starts(self) -> Iterator[str]:
        """Where each read begins. Who follows gets all that there is at first."""
        while self._kind != FOLLOW:
            yield "earliest"
        while True:
            yield json.dumps(self._behind) if self._behind else "earliest"
            time.sleep(LOOK_S)

    def _note(self, batch: pa.RecordBatch) -> None:
        """A batch is of one partition."""
        last = ids_of(batch.slice(batch.num_rows - 1))[0]
        self._behind[batch.column("_topic")[0].as_py()] = f"{last['ledger_id']}:{last['entry_id'] + 1}"


def main() -> int:
    reader = Reader(*sys.argv[1:])
    reader.start()
    for _ in sys.stdin:
        print(json.dumps({"messages": reader.messages}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
