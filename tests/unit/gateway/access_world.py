"""Tokens and grants of a cluster for tests: operators on one store, whose answers get lost when the test says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bk_spark.errors import MetadataUnavailableError
from bk_spark.gateway.access_records import AccessChange
from bk_spark.gateway.access_rules import creation, granting, removal, revocation
from bk_spark.gateway.rights import Grant, Right, parse_identity
from bk_spark.gateway.stored_access import Decide, StoredAccess
from bk_spark.gateway.tokens import BearerToken, StoredToken, new_token
from bk_spark.metadata.store import MetadataStore, StoreChange, TransactionFailedError
from bk_spark.metadata.znodes import Znodes

LOST = MetadataUnavailableError("memory://", "connection lost")
Event = Callable[["FlakyStore", Sequence[StoreChange]], None]


@dataclass
class FlakyStore:
    """A session on which a test plays one event for each of the next transactions. It counts its calls."""

    store: MetadataStore
    script: list[Event] = field(default_factory=list)
    in_flight: list[Sequence[StoreChange]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """What was read by ``get_many``."""
    is_away: bool = False

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.store, name)
        if not callable(target):
            return target

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            self.asked += arguments[0] if name == "get_many" else ()
            if self.is_away:
                raise LOST
            return target(*arguments, **options)

        return call

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        self.calls.append("transaction")
        if self.is_away:
            raise LOST
        if self.script:
            self.script.pop(0)(self, changes)
        else:
            self.store.transaction(changes)

    def land(self) -> None:
        """What was delayed arrives, and nobody hears the answer."""
        for changes in self.in_flight:
            with suppress(TransactionFailedError):
                self.store.transaction(changes)
        self.in_flight.clear()


def lose_answer(store: FlakyStore, changes: Sequence[StoreChange]) -> None:
    with suppress(TransactionFailedError):
        store.store.transaction(changes)
    raise LOST


def lose_request(store: FlakyStore, changes: Sequence[StoreChange]) -> None:
    raise LOST


def delay(store: FlakyStore, changes: Sequence[StoreChange]) -> None:
    """``land`` lets it arrive."""
    store.in_flight.append(changes)
    raise LOST


def land_first(store: FlakyStore, changes: Sequence[StoreChange]) -> None:
    """What was delayed arrives right before this one."""
    store.land()
    store.store.transaction(changes)


def after(act: Callable[[], object]) -> Event:
    """Somebody else acts right before the transaction arrives."""

    def event(store: FlakyStore, changes: Sequence[StoreChange]) -> None:
        act()
        store.store.transaction(changes)

    return event


class Operator:
    """Changes tokens and grants, as the commands do."""

    _ids = itertools.count(1)

    def __init__(self, session: MetadataStore, znodes: Znodes, name: str = "op@host") -> None:
        self.store = FlakyStore(session)
        self.access = StoredAccess(self.store, znodes)
        self.name = name
        self.now_ms = 1_000

    def create(self, name: str, *, ends_ms: int | None = None) -> BearerToken:
        made = new_token(lambda count: next(Operator._ids).to_bytes(count, "big"))
        stored = StoredToken(made.token_id, name, made.digest, self.now_ms, ends_ms, self.name)
        self.change(lambda content: creation(content, stored))
        return made

    def revoke(self, name: str) -> AccessChange:
        return self.change(lambda content: revocation(content, name))

    def grant(self, identity: str, logs: str, *rights: Right) -> AccessChange:
        grants = [Grant(parse_identity(identity), logs, right) for right in rights or tuple(Right)]
        return self.change(lambda content: granting(content, grants))

    def remove(self, identity: str, logs: str | None, *rights: Right) -> AccessChange:
        return self.change(lambda content: removal(content, parse_identity(identity), logs, rights or tuple(Right)))

    def change(self, decide: Decide) -> AccessChange:
        return self.access.change(decide, change_id=f"c{next(Operator._ids)}", by=self.name, at_ms=self.now_ms)

    def tokens(self) -> set[str]:
        return {token.name for token in self.access.read().tokens.values()}

    def grants(self) -> set[tuple[str, str, str]]:
        return {(str(one.identity), one.logs, one.right.value) for one in self.access.read().grants.values()}
