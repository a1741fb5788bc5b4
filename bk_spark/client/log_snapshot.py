"""Reading a log: the commits that make up one version, folded into the list of its ledgers.

Everything below a head is immutable, so a reader that has read a head reads one consistent log, whatever is committed
meanwhile. It folds from the last overwrite at or below its version, not from the log's beginning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bk_spark.client.log_layout import CommitKind, CommittedLedger, Content, Head, LogVersion, Page, decode_schema
from bk_spark.client.log_ledgers import chunks
from bk_spark.client.log_names import LogNames
from bk_spark.client.log_paths import LogPaths
from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError
from bk_spark.metadata_store import MetadataStore

_VERSIONS_AT_ONCE = 1000
"""A version's record is below 1 KiB: a megabyte in flight."""
_PAGES_AT_ONCE = 64
"""Pages of full size: 32 MiB in flight."""

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """A log as it stands at one version."""

    name: str
    uid: str
    version: int
    time_ms: int
    content: Content | None
    """None for a log without any commit."""
    schema_id: int | None
    schema_json: str | None
    """Spark's JSON, every column nullable; None unless the content is rows."""
    ledgers: tuple[CommittedLedger, ...]
    """In log order."""


class LogReader:
    """Reads heads, versions, pages and schemas. Pipelined: a log of a thousand commits costs about five round trips."""

    def __init__(self, store: MetadataStore, names: LogNames) -> None:
        self._store = store
        self._names = names

    def snapshot(self, name: str, version: int | None = None) -> LogSnapshot:
        """The log at ``version``, by default the newest. Raises NoSuchLogError; ConfigError for a version that is not there."""
        uid = self._names.uid(name)
        head = self._names.head(name, uid).head
        check_version(name, head, version)
        wanted = head.version if version is None else version
        if wanted == 0:
            return LogSnapshot(name, uid, 0, head.time_ms if head.version == 0 else 0, None, None, None, ())
        at = self.version(name, uid, wanted)
        schema, ledgers = self._schema_json(name, uid, at), self.ledgers(name, uid, at)
        return LogSnapshot(name, uid, wanted, at.time_ms, at.content, at.schema_id, schema, ledgers)

    def version(self, name: str, uid: str, version: int) -> LogVersion:
        """One commit. Raises NoSuchLogError where the log was deleted meanwhile."""
        return next(self.versions(name, uid, version, version))

    def versions(self, name: str, uid: str, first: int, last: int) -> Iterator[LogVersion]:
        """The commits ``first`` to ``last``, inclusive."""
        paths = self._names.paths(uid)
        for numbers in chunks(range(first, last + 1), _VERSIONS_AT_ONCE):
            wanted = [(f"version {n} of log '{name}'", paths.version(n)) for n in numbers]
            yield from self._records(name, uid, wanted, LogVersion.decode)

    def schema(self, name: str, uid: str, schema_id: int) -> dict[str, object]:
        """A schema's parsed JSON."""
        wanted = [(f"schema {schema_id} of log '{name}'", self._names.paths(uid).schema(schema_id))]
        return next(self._records(name, uid, wanted, decode_schema))

    def ledgers(self, name: str, uid: str, at: LogVersion) -> tuple[CommittedLedger, ...]:
        """What the log lists at a version, in log order."""
        listed: list[CommittedLedger] = []
        for commit, pages in self.commits(name, uid, max(at.base_version, 1), at.version):
            _apply(name, listed, commit, pages)
        return tuple(listed)

    def commits(self, name: str, uid: str, first: int, last: int) -> Iterator[tuple[LogVersion, list[Page]]]:
        """Each commit from ``first`` to ``last``, inclusive, with its pages."""
        paths = self._names.paths(uid)
        for commits in chunks(list(self.versions(name, uid, first, last)), _PAGES_AT_ONCE):
            pages = self._records(name, uid, _pages_of(name, paths, commits), Page.decode)
            for commit in commits:
                yield commit, [next(pages) for _ in range(commit.pages)]

    def _schema_json(self, name: str, uid: str, at: LogVersion) -> str | None:
        return None if at.schema_id is None else json.dumps(self.schema(name, uid, at.schema_id))

    def _records(
        self, name: str, uid: str, wanted: Sequence[tuple[str, str]], decode: Callable[[str, bytes], _Record]
    ) -> Iterator[_Record]:
        for some in chunks(wanted, _VERSIONS_AT_ONCE if decode is LogVersion.decode else _PAGES_AT_ONCE):
            values = self._store.get_many([path for _, path in some])
            for (what, _), value in zip(some, values, strict=True):
                if value is None:
                    self._names.head(name, uid)  # raises NoSuchLogError where the log was deleted under this reader
                    raise CorruptionError(what, "it is missing from the metadata store")
                yield decode(what, value.value)


def check_version(name: str, head: Head, version: int | None) -> None:
    """Raises ConfigError for a version that the log does not have."""
    if version is None or (type(version) is int and 0 <= version <= head.version):
        return
    raise ConfigError("versionAsOf", version, f"log '{name}' has the versions 0 to {head.version}")


def position_of(name: str, listed: Sequence[CommittedLedger], removed: Sequence[int]) -> int:
    """Where ``removed`` stands in the list, as one stretch. Raises MetadataConflictError if it does not."""
    ids = [one.ledger_id for one in listed]
    missing = sorted(set(removed) - set(ids))
    if missing:
        raise MetadataConflictError(f"log '{name}'", f"it does not list ledger {missing[0]}, which is to be replaced")
    start = ids.index(removed[0])
    if ids[start : start + len(removed)] != list(removed):
        raise MetadataConflictError(f"log '{name}'", f"ledgers {list(removed)[:10]} are not one stretch of it in this order")
    return start


def _pages_of(name: str, paths: LogPaths, commits: Iterable[LogVersion]) -> list[tuple[str, str]]:
    return [
        (f"page {index} of version {commit.version} of log '{name}'", paths.job(commit.job_id).page(index))
        for commit in commits
        for index in range(commit.pages)
    ]


def _apply(name: str, listed: list[CommittedLedger], commit: LogVersion, pages: list[Page]) -> None:
    added = [ledger for page in pages for ledger in page.ledgers]
    if commit.kind is CommitKind.OVERWRITE:
        listed[:] = added
    elif commit.kind is CommitKind.APPEND:
        listed += added
    else:
        removed = [one for page in pages for one in page.removed]
        start = position_of(name, listed, removed)
        listed[start : start + len(removed)] = added
