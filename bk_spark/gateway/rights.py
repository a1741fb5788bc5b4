"""Who may do what: identities, patterns of logs, grants, and the answers that follow from them. Pure.

A **pattern** is the name of one log, or the beginning of names and a ``*``: ``orders``, ``shop.*``, ``*`` for all. A ``*``
ends a pattern and stands nowhere else in it. So each pattern means one thing, and a log whose own name has a ``*`` is granted
by a beginning of its name, never alone. Names are compared character by character: no case folding, no normalisation.

An **identity** is what a call proves to be: ``certificate:spark-client``, ``token:etl``; ``anonymous`` proves nothing, and is
granted nothing. The kind ends at the first colon, so no name of one kind is an identity of another.

A **grant** gives one identity one right for the logs of one pattern. Grants only add, in any order. A log that is deleted and
created again is the same log to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from bk_spark.errors import ConfigError
from bk_spark.log.stored.names import MAX_NAME_CHARACTERS, check_log_name

CERTIFICATE: Final = "certificate"
TOKEN: Final = "token"
ANYTHING: Final = "*"
"""Ends a pattern: whatever follows."""

MAX_IDENTITY_CHARACTERS = 256
"""The longest DNS name of a certificate has 253; a longer name of another kind is not granted anything."""


class Right(Enum):
    """What may be granted. Each stands alone: APPEND does not include READ, nor MANAGE the two."""

    READ = "read"
    """Read, tail and look up rows; schema and versions."""
    APPEND = "append"
    """Append rows to a log that there is. To create it with the first ones, or to change its columns, needs MANAGE, too."""
    MANAGE = "manage"
    """Create, delete, truncate, compact, change columns and set."""


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """Whom a call comes from, as far as it was proved."""

    kind: str
    name: str = ""
    token_id: str = field(default="", compare=False)
    """Which token proved it. Names of tokens are given again after a revocation, ids never are."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


ANONYMOUS: Final = CallerIdentity("anonymous")


def parse_identity(text: str) -> CallerIdentity:
    """``certificate:NAME`` or ``token:NAME``, what may be granted something. Raises ConfigError."""
    kind, colon, name = text.partition(":")
    if kind not in (CERTIFICATE, TOKEN) or not colon or not is_identity_name(name):
        raise ConfigError(
            "identity",
            text,
            "write certificate:NAME, the common name of a client's certificate, or token:NAME; a name has 1 to "
            f"{MAX_IDENTITY_CHARACTERS} characters that can be printed",
        )
    return CallerIdentity(kind, name)


def is_identity_name(name: str) -> bool:
    return 1 <= len(name) <= MAX_IDENTITY_CHARACTERS and name.isprintable() and name == name.strip()


def parse_rights(text: str) -> tuple[Right, ...]:
    """``read,append``: each once, in the order of ``Right``. Raises ConfigError."""
    words = text.split(",")
    known = {right.value: right for right in Right}
    if unknown := [word for word in words if word not in known]:
        raise ConfigError("right", unknown[0], f"write one or several of {', '.join(known)}, with a comma between two")
    return tuple(right for right in Right if right.value in words)


def check_pattern(pattern: str) -> None:
    """Raises ConfigError for what is no pattern of logs."""
    beginning = pattern.removesuffix(ANYTHING)
    if ANYTHING in beginning:
        remedy = "a * stands at the end of a pattern alone, for all names that begin so, such as 'shop.*'; '*' is every log"
        raise ConfigError("pattern of logs", pattern, remedy)
    try:
        check_log_name(beginning + "x" if pattern.endswith(ANYTHING) else pattern)
    except ConfigError as problem:
        remedy = f"no log has such a name ({problem.remedy}): write the name of a log, or how names begin and a *"
        raise ConfigError("pattern of logs", pattern, remedy) from None


def matches(pattern: str, log: str) -> bool:
    if pattern.endswith(ANYTHING):
        return log.startswith(pattern.removesuffix(ANYTHING))
    return log == pattern


@dataclass(frozen=True, slots=True)
class Grant:
    """One right of one identity for the logs of one pattern. Raises ConfigError for what can be none."""

    identity: CallerIdentity
    logs: str
    right: Right

    def __post_init__(self) -> None:
        parse_identity(str(self.identity))
        check_pattern(self.logs)

    @property
    def order(self) -> tuple[str, str, int]:
        """Sorts grants for people."""
        return str(self.identity), self.logs, list(Right).index(self.right)


class Rights:
    """What all grants together allow. Never changes: a new set of grants makes a new one.

    An answer costs one look-up for each length of a pattern of the identity, however many grants there are.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._of: defaultdict[CallerIdentity, _Patterns] = defaultdict(_Patterns)
        for grant in grants:
            self._of[grant.identity].add(grant.logs, grant.right)

    def allows(self, identity: CallerIdentity, right: Right, log: str) -> bool:
        return right in self._rights(identity, log)

    def may_see(self, identity: CallerIdentity, log: str) -> bool:
        """Whether it has any right there. To all others a log is as one that does not exist."""
        return bool(self._rights(identity, log))

    def _rights(self, identity: CallerIdentity, log: str) -> Collection[Right]:
        patterns = self._of.get(identity)
        return () if patterns is None or len(log) > MAX_NAME_CHARACTERS else patterns.rights(log)


class _Patterns:
    """Those of one identity."""

    def __init__(self) -> None:
        self._names: defaultdict[str, set[Right]] = defaultdict(set)
        self._beginnings: defaultdict[int, defaultdict[str, set[Right]]] = defaultdict(lambda: defaultdict(set))
        """By their lengths."""

    def add(self, pattern: str, right: Right) -> None:
        beginning = pattern.removesuffix(ANYTHING)
        if beginning == pattern:
            self._names[pattern].add(right)
        else:
            self._beginnings[len(beginning)][beginning].add(right)

    def rights(self, log: str) -> set[Right]:
        found = set(self._names.get(log, ()))
        for length, beginnings in self._beginnings.items():
            if len(log) >= length:
                found |= beginnings.get(log[:length], set())
        return found
