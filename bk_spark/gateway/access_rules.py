"""What a change of tokens and grants does to those that there are. Pure: decided anew on whatever the last change left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bk_spark.errors import ConfigError, State
from bk_spark.gateway.access_records import AccessChange, AccessHead, grant_key
from bk_spark.gateway.rights import CallerIdentity, Grant, Right
from bk_spark.gateway.tokens import StoredToken

MAX_TOKENS = 10_000
MAX_GRANTS = 10_000
"""Each stands in one directory, whose listing must fit into one reply of ZooKeeper; a gateway holds them all in memory, some
10 MB, and reads them in seconds at its start."""

MOST_AT_ONCE = 100
"""Tokens and grants of one change. With the longest names it is written in 400 KB; a transaction has room for 960."""


@dataclass(frozen=True, slots=True)
class AccessContent:
    """All tokens and grants at one moment."""

    head: AccessHead = field(default_factory=AccessHead)
    tokens: Mapping[str, StoredToken] = field(default_factory=dict)
    """By their ids."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    """By their keys in the metadata store."""

    def named(self, name: str) -> list[StoredToken]:
        """The tokens of a name: one at most that lives."""
        return [token for token in self.tokens.values() if token.name == name]

    def grants_of(self, identity: CallerIdentity) -> list[Grant]:
        """Sorted."""
        return sorted((one for one in self.grants.values() if one.identity == identity), key=lambda one: one.order)


def applied(content: AccessContent, number: int, change: AccessChange) -> AccessContent:
    """What there is after the change of this number."""
    gone = {token.token_id for token in change.revoked} | {grant_key(grant) for grant in change.removed}
    tokens = {key: token for key, token in content.tokens.items() if key not in gone}
    grants = {key: grant for key, grant in content.grants.items() if key not in gone}
    tokens |= {token.token_id: token for token in change.created}
    grants |= {grant_key(grant): grant for grant in change.granted}
    return AccessContent(AccessHead(number, change.change), tokens, grants)


def creation(content: AccessContent, token: StoredToken) -> AccessChange:
    """The token is there, and no ended one of its name is any more. Raises ConfigError if one of its name lives."""
    same = content.named(token.name)
    living = [one for one in same if not one.has_ended(token.created_ms)]
    if living:
        remedy = f"a token of this name lives (id {living[0].token_id}): choose another name, or revoke that one first"
        raise ConfigError("token name", token.name, remedy)
    if len(content.tokens) - len(same) >= MAX_TOKENS:
        remedy = f"there may be {MAX_TOKENS}: revoke those that ended or are used no more ('bk-spark token list')"
        raise ConfigError("the number of tokens", len(content.tokens), remedy)
    return AccessChange(created=(token,), revoked=tuple(same))


def revocation(content: AccessContent, name: str) -> AccessChange:
    """No token of the name is there any more. Raises ConfigError if there was none: a typo must not look like success."""
    same = content.named(name)
    if not same:
        raise ConfigError("token name", name, "there is no token of this name: 'bk-spark token list' shows what there is")
    return AccessChange(revoked=tuple(same))


def granting(content: AccessContent, grants: Iterable[Grant]) -> AccessChange:
    """The grants are there: those that were not are in the change. Raises ConfigError if there would be too many."""
    present = set(content.grants.values())
    new = tuple(grant for grant in dict.fromkeys(grants) if grant not in present)
    if len(present) + len(new) > MAX_GRANTS:
        remedy = f"there may be {MAX_GRANTS}: remove some ('bk-spark grant list'), or grant patterns of logs, such as 'shop.*'"
        raise ConfigError("the number of grants", len(present) + len(new), remedy)
    return AccessChange(granted=new)


def removal(
    content: AccessContent,
    identity: CallerIdentity,
    pattern: str | None,
    rights: Collection[Right] = tuple(Right),
    *,
    begun: bool = False,
) -> AccessChange:
    """The grants of the identity for this very pattern, or for all (None), are gone, MOST_AT_ONCE of them in one change.

    Raises ConfigError if there was none, unless the removal has ``begun`` before: a typo must not look like success.
    """
    of_it = content.grants_of(identity)
    found = [one for one in of_it if pattern in (None, one.logs) and one.right in rights]
    if not found and not begun:
        has = ", ".join(sorted({f"'{one.logs}'" for one in of_it})[:10])
        remedy = f"it has grants for {has}" if of_it else "'bk-spark grant list' shows what there is"
        raise ConfigError(f"what {identity} was granted there", State("nothing"), f"nothing was removed; {remedy}")
    return AccessChange(removed=tuple(found[:MOST_AT_ONCE]))
