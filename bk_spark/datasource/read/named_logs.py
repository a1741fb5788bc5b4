"""Which logs the options ``logs`` and ``logsPattern`` of a stream name now: looked at in the background, told from memory.

The names are looked at every NAMES_S seconds. A look is one small read, as long as no log of the cluster was created or
deleted; then all names are read again, 1 MiB at most.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from bk_spark.datasource.background.heard import STALE_S
from bk_spark.datasource.background.stream_thread import StreamThread
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.loaded_logs import matching_now
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log.stored.names import LogNames

NAMES_S = 2.0
"""Time between two looks at the names: as long as a few micro-batches take, and hardly a cost for the metadata store."""


class NamedLogs:
    """The logs that a stream's options name, by uid. One thread calls ``now``, the stream's thread looks."""

    def __init__(self, names: LogNames, options: SourceOptions, thread: StreamThread) -> None:
        self._names = names
        self._options = options
        self._thread = thread
        self._changes: tuple[int, int] | None = None
        self._known: Mapping[str, str] | None = None
        self._looked_s = 0.0
        self._due_s = 0.0
        self._failure: BaseException | None = None
        self._trouble: BookKeeperError | None = None

    def names(self, name: str) -> bool:
        """Whether the options name a log of this name, if there is one."""
        pattern = self._options.logs_pattern
        return name in self._options.logs if pattern is None else re.fullmatch(pattern, name) is not None

    def fresh(self) -> Mapping[str, str]:
        """The name of each log, by uid, with every log that was created before the call. Raises ConfigError for too many."""
        self._names.sync()
        return self._read()

    def now(self) -> Mapping[str, str]:
        """As ``fresh``, from memory: as it was at the last look. Raises why nothing was heard of the names for STALE_S."""
        if self._known is None:
            self._names.sync()
            self._known, self._looked_s = self._look(), time.monotonic()
            self._due_s = self._looked_s + NAMES_S
            self._thread.add(self)
        if self._failure is not None:
            raise self._failure
        if time.monotonic() - self._looked_s > STALE_S + NAMES_S:
            problem = f"nothing was heard of the names of logs for {STALE_S:g} s"
            raise self._trouble or MetadataUnavailableError("that holds the logs", problem)
        return self._known

    # The thread calls the methods below.

    def wait_s(self) -> float:
        """See ``Work``."""
        return NAMES_S if self._failure is not None else self._due_s - time.monotonic()

    def step(self) -> None:
        """See ``Work``."""
        try:
            self._known = self._look()
            self._trouble, self._looked_s = None, time.monotonic()
        except BookKeeperError as problem:
            self._trouble = problem
            if not problem.retryable:
                self._failure = problem
        except BaseException as problem:
            self._failure = problem
        self._due_s = time.monotonic() + NAMES_S

    def end(self) -> None:
        """See ``Work``. It holds nothing."""

    def _look(self) -> Mapping[str, str]:
        changes = self._names.changes()  # before the names, so that what changes meanwhile is seen the next time
        if self._known is not None and changes == self._changes:
            return self._known
        found = self._read()
        self._changes = changes
        return found

    def _read(self) -> Mapping[str, str]:
        pattern = self._options.logs_pattern
        wanted = self._options.logs if pattern is None else matching_now(pattern, self._names.all())
        return {uid: name for name, uid in self._names.find_many(wanted).items()}
