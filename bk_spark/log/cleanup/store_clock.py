"""ZooKeeper's own time: now, and when commits were made.

Everything that is deleted by age is deleted by this time alone. A client's clock may be a week ahead or behind; the times in
the metadata store come from one clock, that of its leader.
"""

from __future__ import annotations

from collections.abc import Iterator

from bk_spark.errors import CorruptionError
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.metadata.store import BadVersionError, MetadataStore
from bk_spark.metadata.znodes import Znodes


class StoreTimes:
    """Reads the store's clock. All times are in milliseconds since 1970."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes

    def now_ms(self) -> int:
        """The time at which the store carried out a write made by this call, or by another client at the same moment."""
        path = self._znodes.log_clock
        self._store.ensure_path(path)
        try:
            self._store.set(path, b"", self._store.get(path).version)
        except BadVersionError:
            self._store.sync(path)
        return self._store.get(path).modified_ms

    def of_versions(self, paths: LogPaths, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Each version from ``first`` to ``last``, inclusive, with the time of its commit.

        Raises CorruptionError for a version that is missing.
        """
        for numbers in chunks(range(first, last + 1), READS_AT_ONCE):
            stored = self._store.get_many([paths.version(number) for number in numbers])
            for number, value in zip(numbers, stored, strict=True):
                if value is None:
                    what = f"version {number} of the log at {paths.root}"
                    raise CorruptionError(what, "it is missing from the metadata store")
                yield number, value.modified_ms

    def last_before(self, paths: LogPaths, first: int, last: int, time_ms: int) -> int:
        """The newest version from ``first`` to ``last`` that was committed before ``time_ms``; ``first - 1`` if none was."""
        low, high = first - 1, last
        while low < high:
            middle = (low + high + 1) // 2
            [(_, committed_ms)] = self.of_versions(paths, middle, middle)
            low, high = (middle, high) if committed_ms < time_ms else (low, middle - 1)
        return low
