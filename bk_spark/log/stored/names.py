"""Names and heads of logs: which names are valid, what they point to, where a log stands, and how it is created.

A name only points to a uid. A log exists from the moment when one transaction creates its name and its head.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from bk_spark.errors import ConfigError, MetadataConflictError, NoSuchLogError
from bk_spark.log.stored.json_values import decode, encode, text
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.tree import children_of
from bk_spark.log.stored.values import Head
from bk_spark.metadata.store import (
    BadVersionError,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    StoreChange,
    TransactionFailedError,
    Versioned,
    find,
)
from bk_spark.metadata.znodes import Znodes

MAX_LOGS = 10_000
"""Names stand in one directory, and listing it must fit into one reply of ZooKeeper (1 MiB)."""
MAX_NAME_CHARACTERS = 200
"""A name is one part of a path, which people type and read in messages. A longer one is refused."""
_TRIES = 100
"""Each further try means that a commit to the log succeeded meanwhile."""

_FORBIDDEN_CATEGORIES = {"Cc", "Cs", "Co"}
"""Control characters, surrogates and private use: ZooKeeper refuses them in paths, and all from U+FFF0 on."""


def encode_name(uid: str) -> bytes:
    return encode(uid=uid)


def decode_name(what: str, value: bytes) -> str:
    return decode(what, value, lambda record: _checked_uid(record["uid"]))


def decode_head(name: str, stored: Versioned) -> Head:
    """Raises NoSuchLogError if the log is being deleted."""
    head = Head.decode(f"the head of log '{name}'", stored.value)
    if head.deleting:
        raise NoSuchLogError(name)
    return head


def _transactions(heads: Mapping[str, Head]) -> dict[str, int]:
    """The last transaction of each. One that comes while heads are read, and is in some, is in all by the next reading."""
    return {uid: head.transaction_version for uid, head in heads.items()}


def _checked_uid(value: object) -> str:
    """A uid becomes a part of paths."""
    uid = text(value)
    if not re.fullmatch(r"[\w-]{1,100}", uid, re.ASCII):
        raise ValueError(f"{uid[:100]!r} is no uid")
    return uid


def check_log_name(name: str) -> None:
    """Raises ConfigError for what cannot be the name of a log."""
    problem = None
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        problem = f"it must have 1 to {MAX_NAME_CHARACTERS} characters"
    elif name in (".", "..") or "/" in name:
        problem = "it must not be '.' or '..' nor contain '/'"
    elif forbidden := [one for one in name if one >= "\ufff0" or unicodedata.category(one) in _FORBIDDEN_CATEGORIES]:
        code = f"U+{ord(forbidden[0]):04X}"
        problem = f"it must not contain {code}, nor control characters, surrogates, private use, and none above U+FFEF"
    if problem is not None:
        raise ConfigError("log name", name, problem)


class LogNames:
    """The logs in one metadata store. Each method costs a few round trips; nothing is cached."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes

    def paths(self, uid: str) -> LogPaths:
        return LogPaths(self._znodes.log(uid))

    @property
    def transactions(self) -> str:
        """The directory of the applications of transactions."""
        return self._znodes.log_transactions

    def all(self) -> list[str]:
        """The name of every log, sorted."""
        return children_of(self._store, self._znodes.log_names)

    def find(self, name: str) -> str | None:
        """The uid that ``name`` points to, None if there is no such log. Raises ConfigError for an invalid name."""
        check_log_name(name)
        try:
            stored = self._store.get(self._znodes.log_name(name))
        except NoNodeError:
            return None
        return decode_name(f"the name of log '{name}'", stored.value)

    def find_many(self, names: Sequence[str]) -> dict[str, str]:
        """The uid of each of the names, without those of which there is no log. About one round trip for 1,000 names.

        Raises ConfigError for an invalid name.
        """
        for name in names:
            check_log_name(name)
        found = self._store.get_many([self._znodes.log_name(name) for name in names])
        named = zip(names, found, strict=True)
        return {name: decode_name(f"the name of log '{name}'", stored.value) for name, stored in named if stored is not None}

    def changes(self) -> tuple[int, int]:
        """How many logs there are, and how many were ever created: two answers differ if one was created or deleted between.

        One small read, however many logs there are.
        """
        found = find(self._store, self._znodes.log_names)
        return (0, 0) if found is None else (found.children, found.next_sequence)

    def sync(self) -> None:
        """Let later reads of this client see every log that was created or deleted before the call."""
        self._store.sync(self._znodes.log_names)

    def find_usable(self, name: str) -> str | None:
        """As ``find``; raises MetadataConflictError if a deletion of the log has begun."""
        uid = self.find(name)
        if uid is not None:
            try:
                self.head(name, uid)
            except NoSuchLogError:
                problem = f"it is being deleted; 'bk-spark log delete {name}' finishes a deletion that was cut short"
                raise MetadataConflictError(f"log '{name}'", problem) from None
        return uid

    def uid(self, name: str) -> str:
        """The uid that ``name`` points to. Raises NoSuchLogError, and ConfigError for an invalid name."""
        uid = self.find(name)
        if uid is None:
            raise NoSuchLogError(name)
        return uid

    def head(self, name: str, uid: str) -> Head:
        """Where the log stands. Raises NoSuchLogError if it does not exist or is being deleted."""
        return self.stored_head(name, uid)[0]

    def head_of(self, uid: str) -> Head | None:
        """The head of the log with this uid, whatever its name; None if there is none, or if it is being deleted."""
        stored = find(self._store, self.paths(uid).head)
        head = None if stored is None else Head.decode(f"the head of the log with the id {uid}", stored.value)
        return None if head is None or head.deleting else head

    def fresh_head(self, name: str, uid: str) -> Head:
        """The head with every commit that was done before the call, whichever server this client talks to.

        Raises NoSuchLogError, MetadataUnavailableError.
        """
        self._store.sync(self.paths(uid).head)
        return self.head(name, uid)

    def heads(self, logs: Mapping[str, str]) -> dict[str, Head]:
        """The heads of logs, given as uid → name: each transaction is in all of them or in none.

        Without those of logs that are gone or being deleted. Raises MetadataConflictError, MetadataUnavailableError.
        """
        before = self._heads(logs)
        if len(logs) < 2:
            return before
        for _ in range(_TRIES):
            now = self._heads(logs)
            if _transactions(now) == _transactions(before):
                return before
            before = now
        problem = f"in {_TRIES} readings of their heads, transactions came between: read fewer logs at once, or try again"
        raise MetadataConflictError(f"the {len(logs)} logs to read together", problem)

    def _heads(self, logs: Mapping[str, str]) -> dict[str, Head]:
        heads = {}
        found = self._store.get_many([self.paths(uid).head for uid in logs])
        for (uid, name), stored in zip(logs.items(), found, strict=True):
            with suppress(NoSuchLogError):
                if stored is not None:
                    heads[uid] = decode_head(name, stored)
        return heads

    def change_head(self, name: str, uid: str, change: Callable[[Head], Head]) -> Head:
        """Replace the head by ``change(head)``, a pure function, with a compare-and-set. Returns the new head.

        If another change comes between, ``change`` is applied to the head that it left. Raises NoSuchLogError,
        MetadataConflictError, and MetadataUnavailableError, after which the outcome is unknown: call it again.
        """
        for _ in range(_TRIES):
            self._store.sync(self.paths(uid).head)  # in an old head there may seem to be nothing to change
            head, znode_version = self.stored_head(name, uid)
            changed = change(head)
            if changed == head:
                return changed
            try:
                self._store.set(self.paths(uid).head, changed.encode(), znode_version)
                return changed
            except BadVersionError:
                continue
            except NoNodeError:
                raise NoSuchLogError(name) from None
        raise MetadataConflictError(f"log '{name}'", f"{_TRIES} commits came between: stop its writers for a moment, try again")

    # Creating a log, in three steps: is there room, its directories, and the transaction that makes it visible.

    def check_free(self, name: str) -> None:
        """Raises ConfigError if there are too many logs for another one."""
        self._store.ensure_path(self._znodes.log_names)
        if self._store.get(self._znodes.log_names).children >= MAX_LOGS:
            raise ConfigError("log name", name, f"there are {MAX_LOGS} logs already, the maximum: delete some first")

    def prepare(self, uid: str) -> None:
        """Make the directories of a new log. Nobody looks at them before its head exists."""
        paths = self.paths(uid)
        for directory in (paths.version_bucket(0), *paths.directories):
            self._store.ensure_path(directory)

    def creation(self, name: str, uid: str, head: Head) -> list[StoreChange]:
        """The changes that make the log visible, for one transaction."""
        return [Create(self._znodes.log_name(name), encode_name(uid)), Create(self.paths(uid).head, head.encode())]

    def create(self, name: str, uid: str, time_ms: int) -> bool:
        """Create an empty log. False if somebody else created one with this name meanwhile."""
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

    def stored_head(self, name: str, uid: str) -> tuple[Head, int]:
        """The head and the version of its znode. Raises NoSuchLogError."""
        try:
            stored = self._store.get(self.paths(uid).head)
        except NoNodeError:
            raise NoSuchLogError(name) from None
        return decode_head(name, stored), stored.version
