"""What a change does to the tokens and grants that there are."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway import access_rules
from bk_spark.gateway.access_records import AccessChange, AccessHead, grant_key
from bk_spark.gateway.access_rules import MOST_AT_ONCE, AccessContent, applied, creation, granting, removal, revocation
from bk_spark.gateway.rights import Grant, Right, parse_identity
from bk_spark.gateway.tokens import StoredToken, new_token

ETL = parse_identity("token:etl")
DAY_MS = 86_400_000


def token(number: int, name: str = "etl", *, created_ms: int = 0, ends_ms: int | None = None) -> StoredToken:
    made = new_token(lambda count: number.to_bytes(count, "big"))
    return StoredToken(made.token_id, name, made.digest, created_ms, ends_ms, "op@host")


def content(tokens: Iterable[StoredToken] = (), grants: Iterable[Grant] = ()) -> AccessContent:
    return AccessContent(AccessHead(1, "x"), {one.token_id: one for one in tokens}, {grant_key(one): one for one in grants})


def grants(*patterns: str, right: Right = Right.READ) -> list[Grant]:
    return [Grant(ETL, pattern, right) for pattern in patterns]


def test_a_token_is_made_beside_others() -> None:
    made = creation(content([token(1, "a")]), token(2))
    assert (made.created, made.revoked) == ((token(2),), ())


def test_a_name_is_given_to_one_token_that_lives() -> None:
    with pytest.raises(ConfigError, match=r"a token of this name lives .*revoke that one first"):
        creation(content([token(1)]), token(2))


def test_the_name_of_an_ended_token_is_given_again_and_the_ended_one_goes() -> None:
    ended = token(1, ends_ms=DAY_MS)
    with pytest.raises(ConfigError):
        creation(content([ended]), token(2, created_ms=DAY_MS - 1))
    made = creation(content([ended]), token(2, created_ms=DAY_MS))
    assert (made.created, made.revoked) == ((token(2, created_ms=DAY_MS),), (ended,))


def test_tokens_and_grants_have_a_bound_that_the_error_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_rules, "MAX_TOKENS", 2)
    monkeypatch.setattr(access_rules, "MAX_GRANTS", 2)
    full = content([token(1, "a"), token(2, "b", ends_ms=5)], grants("a", "b"))
    with pytest.raises(ConfigError, match="number of tokens is 2: there may be 2"):
        creation(full, token(3))
    assert creation(full, token(3, "b", created_ms=5)).created  # in the place of the one that ended
    with pytest.raises(ConfigError, match="number of grants is 3: there may be 2"):
        granting(full, grants("c"))
    assert not granting(full, grants("a", "b"))


def test_to_revoke_a_name_takes_its_token_away_and_an_unknown_name_is_an_error() -> None:
    assert revocation(content([token(1), token(2, "b")]), "etl").revoked == (token(1),)
    assert revocation(content([token(1, ends_ms=1)]), "etl").revoked == (token(1, ends_ms=1),)
    with pytest.raises(ConfigError, match="token name is 'elt': there is no token of this name"):
        revocation(content([token(1)]), "elt")


def test_only_what_was_not_granted_before_is_granted() -> None:
    wanted = [Grant(ETL, "orders", right) for right in (Right.READ, Right.APPEND, Right.READ)]
    assert granting(content(grants=grants("orders")), wanted).granted == (Grant(ETL, "orders", Right.APPEND),)


def test_the_grants_of_the_very_pattern_go_and_those_of_wider_and_narrower_ones_stay() -> None:
    given = content(grants=[*grants("orders", "orders*", "*"), *grants("orders", right=Right.APPEND)])
    assert set(removal(given, ETL, "orders").removed) == {Grant(ETL, "orders", right) for right in (Right.READ, Right.APPEND)}
    assert removal(given, ETL, "orders", [Right.APPEND]).removed == (Grant(ETL, "orders", Right.APPEND),)
    assert set(removal(given, ETL, None).removed) == set(given.grants.values())


def test_to_remove_what_was_not_granted_is_an_error_that_says_what_was() -> None:
    given = content(grants=grants("orders*", "shop"))
    with pytest.raises(ConfigError, match=r"nothing was removed; it has grants for 'orders\*', 'shop'$"):
        removal(given, ETL, "orders")
    with pytest.raises(ConfigError, match="'bk-spark grant list' shows what there is"):
        removal(given, parse_identity("certificate:etl"), None)
    assert not removal(given, ETL, "orders", begun=True)


def test_one_change_removes_no_more_than_has_room_in_a_transaction() -> None:
    given = content(grants=grants(*(f"log-{number:03}" for number in range(MOST_AT_ONCE + 1))))
    assert [grant.logs for grant in removal(given, ETL, None).removed] == [f"log-{number:03}" for number in range(MOST_AT_ONCE)]


def test_a_change_applied_takes_away_and_adds_what_it_says_and_keeps_the_rest() -> None:
    before = content([token(1), token(2, "b")], grants("orders", "shop"))
    change = AccessChange((token(3),), (token(1),), tuple(grants("new")), tuple(grants("shop")), "c2")
    expected = content([token(2, "b"), token(3)], grants("orders", "new"))
    assert applied(before, 2, change) == AccessContent(AccessHead(2, "c2"), expected.tokens, expected.grants)
    assert before == content([token(1), token(2, "b")], grants("orders", "shop"))
