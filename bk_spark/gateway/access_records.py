"""How tokens, grants and their changes are written in the metadata store: JSON objects with a ``format``. Pure.

::

    head               format, number and change of the last change
    tokens/<id>        format, name, sha256, created_ms, ends_ms (null: never), made_by
    grants/<32 hex>    format, identity, logs, right
    changes/<number>   format, change, by, at_ms, and what it created, revoked, granted and removed

A value with a newer format is refused by name. Anything else that cannot be understood is damage. Neither is ever skipped: what
is not known is not "no right".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.gateway.rights import Grant, Right, parse_identity
from bk_spark.gateway.tokens import StoredToken
from bk_spark.log.stored.json_values import integer, items, text

FORMAT = 1

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class AccessHead:
    """Where tokens and grants stand. Two heads are equal only if all that they stand for is equal."""

    number: int = 0
    """Of the last change, from 1 on."""
    change: str = ""
    """Its random id: a store that was restored from a copy may give a number again, never an id."""


@dataclass(frozen=True, slots=True)
class AccessChange:
    """What one change does."""

    created: tuple[StoredToken, ...] = ()
    revoked: tuple[StoredToken, ...] = ()
    granted: tuple[Grant, ...] = ()
    removed: tuple[Grant, ...] = ()
    change: str = ""
    """A random id, by which its maker knows it again after a lost answer."""
    by: str = ""
    """Who made it, as the command saw it: a note for people, which proves nothing."""
    at_ms: int = 0
    """By the clock of whoever made it."""

    def __len__(self) -> int:
        return len(self.created) + len(self.revoked) + len(self.granted) + len(self.removed)


def encode_head(head: AccessHead) -> bytes:
    return _encode(number=head.number, change=head.change)


def decode_head(value: bytes) -> AccessHead:
    what = "the head of tokens and grants"
    return _decode(what, value, lambda record: AccessHead(integer(record["number"], 1), text(record["change"])))


def encode_token(token: StoredToken) -> bytes:
    return _encode(**_token(token))


def decode_token(token_id: str, value: bytes) -> StoredToken:
    return _decode(f"token {token_id}", value, lambda record: _token_of(record, token_id))


def grant_key(grant: Grant) -> str:
    """Its name in the metadata store: the same grant is the same znode, so nothing is granted twice."""
    return hashlib.sha256(_encode(**_grant(grant))).hexdigest()[:32]


def encode_grant(grant: Grant) -> bytes:
    return _encode(**_grant(grant))


def decode_grant(key: str, value: bytes) -> Grant:
    what = f"grant {key}"
    grant = _decode(what, value, _grant_of)
    if grant_key(grant) != key:
        raise CorruptionError(what, "its name does not follow from what it grants")
    return grant


def encode_change(change: AccessChange) -> bytes:
    return _encode(
        change=change.change,
        by=change.by,
        at_ms=change.at_ms,
        created=[{"id": one.token_id, **_token(one)} for one in change.created],
        revoked=[{"id": one.token_id, **_token(one)} for one in change.revoked],
        granted=[_grant(one) for one in change.granted],
        removed=[_grant(one) for one in change.removed],
    )


def decode_change(number: int, value: bytes) -> AccessChange:
    return _decode(f"change {number} of tokens and grants", value, _change_of)


def _token(token: StoredToken) -> dict[str, object]:
    return {
        "name": token.name,
        "sha256": token.digest.hex(),
        "created_ms": token.created_ms,
        "ends_ms": token.ends_ms,
        "made_by": token.made_by,
    }


def _token_of(record: dict[str, Any], token_id: str) -> StoredToken:
    ends = record["ends_ms"]
    return StoredToken(
        token_id,
        text(record["name"]),
        bytes.fromhex(text(record["sha256"])),
        integer(record["created_ms"]),
        None if ends is None else integer(ends),
        text(record["made_by"]),
    )


def _grant(grant: Grant) -> dict[str, object]:
    return {"identity": str(grant.identity), "logs": grant.logs, "right": grant.right.value}


def _grant_of(record: dict[str, Any]) -> Grant:
    return Grant(parse_identity(text(record["identity"])), text(record["logs"]), Right(record["right"]))


def _change_of(record: dict[str, Any]) -> AccessChange:
    created, revoked = (
        tuple(_token_of(one, text(one["id"])) for one in items(record[name])) for name in ("created", "revoked")
    )
    granted, removed = (tuple(_grant_of(one) for one in items(record[name])) for name in ("granted", "removed"))
    stamp = text(record["change"]), text(record["by"]), integer(record["at_ms"])
    return AccessChange(created, revoked, granted, removed, *stamp)


def _encode(**record: object) -> bytes:
    return json.dumps({"format": FORMAT, **record}, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(what: str, value: bytes, build: Callable[[dict[str, Any]], _Record]) -> _Record:
    try:
        record = json.loads(value)
        found = record["format"]
        if type(found) is not int or found < FORMAT:
            raise CorruptionError(what, f"its format version is {found!r:.100}")
        if found > FORMAT:
            raise FormatVersionError(what, found, FORMAT)
        return build(record)
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as problem:
        raise CorruptionError(what, f"{type(problem).__name__}: {problem}") from None
    except RecursionError:
        raise CorruptionError(what, "it is nested too deeply") from None
