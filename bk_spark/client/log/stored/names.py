"""Names of logs: which are valid, what they point to, and how a log comes into being.

A name only points to a uid. A log is there from the moment at which one transaction creates its name and its head.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from bk_spark.client.log.stored.json_values import decode, encode, text
from bk_spark.client.log.stored.paths import LogPaths
from bk_spark.client.log.stored.values import Head
from bk_spark.errors import ConfigError, MetadataConflictError, NoSuchLogError
from bk_spark.metadata.store import (
    BadVersionError,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    StoreChange,
    TransactionFailedError,
)
from bk_spark.metadata.znodes import Znodes

MAX_LOGS = 10_000
"""Names stand in one directory, and listing it must fit into one reply of ZooKeeper (1 MiB)."""
MAX_NAME_CHARACTERS = 200
_TRIES = 100
"""Each of them means that a commit to the log succeeded meanwhile."""

_FORBIDDEN_CATEGORIES = {"Cc", "Cs", "Co"}
"""Control characters, surrogates and private use: ZooKeeper refuses them in paths."""


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A head as it was read; a commit is a compare-and-set on ``znode_version``."""

    head: Head
    znode_version: int


def encode_name(uid: str) -> bytes:
    return encode(uid=uid)


def decode_name(what: str, value: bytes) -> str:
    return decode(what, value, lambda record: uid_in(record["uid"]))


def uid_in(value: object) -> str:
    """A uid is a part of paths."""
    uid = text(value)
    if not re.fullmatch(r"[\w-]{1,100}", uid, re.ASCII):
        raise ValueError(f"{uid[:100]!r} is no uid")
    return uid


def check_log_name(name: str) -> None:
    """Raises ConfigError unless ``name`` can name a log."""
    problem = _name_problem(name)
    if problem:
        raise ConfigError("log name", name, problem)


def _name_problem(name: str) -> str | None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        return f"it must have 1 to {MAX_NAME_CHARACTERS} characters"
    if name in (".", "..") or "/" in name:
        return "it must not be '.' or '..' nor contain '/'"
    if any(unicodedata.category(c) in _FORBIDDEN_CATEGORIES or "\ufff0" <= c <= "\uffff" for c in name):
        return "it must not contain control characters"
    return None


class LogNames:
    """The names in one metadata store. Each method is a few round trips; nothing is cached."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes

    def paths(self, uid: str) -> LogPaths:
        return LogPaths(self._znodes.log(uid))

    def find(self, name: str) -> str | None:
        """The uid that ``name`` points to, None if there is no such log. Raises ConfigError for an invalid name."""
        check_log_name(name)
        try:
            stored = self._store.get(self._znodes.log_name(name))
        except NoNodeError:
            return None
        return decode_name(f"the name of log '{name}'", stored.value)

    def uid(self, name: str) -> str:
        """As ``find``; raises NoSuchLogError."""
        uid = self.find(name)
        if uid is None:
            raise NoSuchLogError(name)
        return uid

    def head(self, name: str, uid: str) -> StoredHead:
        """The head of a log; raises NoSuchLogError if it is gone or being deleted."""
        try:
            stored = self._store.get(self.paths(uid).head)
        except NoNodeError:
            raise NoSuchLogError(name) from None
        head = Head.decode(f"the head of log '{name}'", stored.value)
        if head.deleting:
            raise NoSuchLogError(name)
        return StoredHead(head, stored.version)

    def change_head(self, name: str, uid: str, change: Callable[[Head], Head]) -> Head:
        """Compare-and-set what ``change`` makes of the head, again on each head that comes between; gives the new one.

        Raises NoSuchLogError; MetadataUnavailableError, then the outcome is unknown: ``change`` may be made again.
        """
        for _ in range(_TRIES):
            self._store.sync(self.paths(uid).head)  # a head that is old may look as if there was nothing to change
            stored = self.head(name, uid)
            changed = change(stored.head)
            if changed == stored.head:
                return changed
            try:
                self._store.set(self.paths(uid).head, changed.encode(), stored.znode_version)
                return changed
            except BadVersionError:
                continue
            except NoNodeError:
                raise NoSuchLogError(name) from None
        raise MetadataConflictError(f"log '{name}'", f"{_TRIES} commits came between: stop its writers for a moment, try again")

    def check_free(self, name: str) -> None:
        """Raises unless a log named ``name``, which ``find`` did not see, can be made."""
        self._store.ensure_path(self._znodes.log_names)
        if self._store.get(self._znodes.log_names).children >= MAX_LOGS:
            raise ConfigError("log name", name, f"there are {MAX_LOGS} logs already, the maximum: delete some first")

    def check_not_deleting(self, name: str, uid: str) -> None:
        """Raises MetadataConflictError where a deletion of the log was begun and not finished."""
        try:
            self.head(name, uid)
        except NoSuchLogError:
            problem = f"it is being deleted; 'bk-spark log delete {name}' finishes a deletion that was cut short"
            raise MetadataConflictError(f"log '{name}'", problem) from None

    def prepare(self, uid: str) -> None:
        """Make the directories of a new log. Nobody sees them before its head is there."""
        paths = self.paths(uid)
        for directory in (paths.version_bucket(0), *paths.directories):
            self._store.ensure_path(directory)

    def creation(self, name: str, uid: str, head: Head) -> list[StoreChange]:
        """What makes the log visible, all in one transaction."""
        return [Create(self._znodes.log_name(name), encode_name(uid)), Create(self.paths(uid).head, head.encode())]

    def create(self, name: str, uid: str, time_ms: int) -> bool:
        """Make an empty log. False if the name was taken meanwhile."""
        self.check_free(name)
        self.prepare(uid)
        try:
            self._store.transaction(self.creation(name, uid, Head(name, time_ms=time_ms)))
        except TransactionFailedError as failure:
            if isinstance(failure.reason, NodeExistsError):
                return False
            problem = "a sweep of orphans removed the directories that were made for it: open it again"
            raise MetadataConflictError(f"log '{name}'", problem) from failure
        return True

    def all(self) -> list[str]:
        """Every name, sorted."""
        try:
            return self._store.children(self._znodes.log_names)
        except NoNodeError:
            return []
