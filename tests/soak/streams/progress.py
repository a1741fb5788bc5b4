"""Where a query stands, seen from outside: in its checkpoint, and in the log that it writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.write.writer import application_of
from bk_spark.errors import NoSuchLogError
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.values import ApplicationState
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from tests.soak.streams.plan import ANY, NOTED, PLANNED, SUNK, WRITING


@dataclass(frozen=True, slots=True)
class Standing:
    """The last batch that got so far; -1 for none."""

    planned: int
    """Its offsets are in the checkpoint."""
    sunk: int
    """The log has it."""
    noted: int
    """Spark has noted that, in the checkpoint."""

    def reached(self, moment: str, before: Standing) -> bool:
        """Whether ``moment`` came since ``before``."""
        return {
            PLANNED: self.planned > before.planned,
            WRITING: self.planned > before.planned,
            SUNK: self.sunk > before.sunk,
            NOTED: self.noted > before.noted,
            ANY: True,
        }[moment]

    @property
    def describes(self) -> str:
        """What a driver that ends here leaves behind."""
        if self.sunk > self.noted:
            return "committed in the log, not noted by Spark"
        if self.planned > self.noted:
            return "planned or being written"
        return "between two batches"


class Watched:
    """One query."""

    def __init__(self, client: BookKeeper, metadata_uri: str, log: str, checkpoint: Path) -> None:
        self._client = client
        self._metadata_uri = metadata_uri
        self._log = log
        self._checkpoint = checkpoint
        self._uid: str | None = None

    def stands(self) -> Standing:
        """Read in the order in which a batch moves, backwards: ``noted`` is never ahead of ``sunk`` in the answer."""
        noted = last_batch(self._checkpoint / "commits")
        sunk = self._sunk()
        return Standing(last_batch(self._checkpoint / "offsets"), sunk, noted)

    def dropped(self) -> int:
        """How many of its batches came again, and were dropped as duplicates."""
        application_id = application_of(json.loads((self._checkpoint / "metadata").read_text())["id"])
        with connect(self._metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
            names = LogNames(store, Znodes(parse_uri(self._metadata_uri)[1]))
            stored = store.get(names.paths(self._client.logs.open(self._log)).application(application_id))
        return ApplicationState.decode(application_id, stored.value).dropped

    def _sunk(self) -> int:
        """Each batch is one version of the log, which nobody else writes: batch 0 is version 1."""
        if self._uid is None:
            try:
                self._uid = self._client.logs.open(self._log)
            except NoSuchLogError:
                return -1
        return self._client.logs.names.head(self._log, self._uid).version - 1


def last_batch(directory: Path) -> int:
    """The highest number that is a file's name in a directory of a checkpoint; Spark keeps the last hundred. -1 for none."""
    if not directory.exists():
        return -1
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)
