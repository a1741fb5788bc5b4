"""Who may do what follows from grants alone: no right without one, each exactly where its pattern says."""

from __future__ import annotations

import random

import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway.rights import (
    ANONYMOUS,
    CERTIFICATE,
    TOKEN,
    CallerIdentity,
    Grant,
    Right,
    Rights,
    check_pattern,
    matches,
    parse_identity,
    parse_rights,
)
from bk_spark.log.stored.names import MAX_NAME_CHARACTERS, check_log_name

ETL = CallerIdentity(TOKEN, "etl")
SPARK = CallerIdentity(CERTIFICATE, "spark-client")


def test_a_right_holds_for_the_log_that_a_grant_names_and_for_no_other() -> None:
    rights = Rights([Grant(ETL, "orders", Right.READ)])
    assert rights.allows(ETL, Right.READ, "orders")
    for log in ("order", "orders2", "Orders", "orders.", ""):
        assert not rights.allows(ETL, Right.READ, log)


@pytest.mark.parametrize("granted", Right)
def test_no_right_includes_another(granted: Right) -> None:
    rights = Rights([Grant(ETL, "*", granted)])
    assert [right for right in Right if rights.allows(ETL, right, "orders")] == [granted]


def test_a_pattern_with_a_star_covers_all_names_that_begin_so() -> None:
    rights = Rights([Grant(ETL, "shop.*", Right.APPEND)])
    assert all(rights.allows(ETL, Right.APPEND, log) for log in ("shop.", "shop.orders", "shop.*", "shop.a.b"))
    assert not any(rights.allows(ETL, Right.APPEND, log) for log in ("shop", "shopping", "my.shop.orders", "SHOP.orders"))


def test_a_right_is_of_one_identity_and_a_certificate_is_no_token_of_the_same_name() -> None:
    rights = Rights([Grant(ETL, "*", Right.READ)])
    others = [ANONYMOUS, CallerIdentity(CERTIFICATE, "etl"), CallerIdentity(TOKEN, "etl2"), CallerIdentity(TOKEN, "ETL")]
    assert not any(rights.allows(other, Right.READ, "orders") for other in others)


def test_a_right_is_the_same_whichever_token_of_the_name_is_shown() -> None:
    assert Rights([Grant(ETL, "orders", Right.READ)]).allows(CallerIdentity(TOKEN, "etl", "AAAAAAAAAAA"), Right.READ, "orders")


def test_any_right_lets_a_log_be_seen_and_none_does_not() -> None:
    rights = Rights([Grant(ETL, "orders", Right.APPEND), Grant(SPARK, "*", Right.MANAGE)])
    assert rights.may_see(ETL, "orders")
    assert not rights.may_see(ETL, "customers")
    assert rights.may_see(SPARK, "customers")
    assert not rights.may_see(ANONYMOUS, "orders")


def test_nobody_has_a_right_for_a_name_that_no_log_can_have() -> None:
    longest = "x" * MAX_NAME_CHARACTERS
    rights = Rights([Grant(ETL, "*", Right.READ)])
    assert rights.may_see(ETL, longest)
    assert not rights.may_see(ETL, longest + "x")


LETTERS = "ab*.ü"


def word(draw: random.Random, longest: int = 4) -> str:
    return "".join(draw.choice(LETTERS) for _ in range(draw.randint(0, longest)))


def is_pattern(text: str) -> bool:
    try:
        check_pattern(text)
    except ConfigError:
        return False
    return True


def is_log(text: str) -> bool:
    try:
        check_log_name(text)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_drawn_grants_allow_what_a_list_of_them_says(seed: int) -> None:
    draw = random.Random(seed)
    identities = [CallerIdentity(kind, name) for kind in (TOKEN, CERTIFICATE) for name in ("a", "b")]
    patterns = [pattern for pattern in (word(draw) for _ in range(60)) if is_pattern(pattern)]
    grants = [Grant(draw.choice(identities), draw.choice(patterns), draw.choice(list(Right))) for _ in range(30)]
    rights = Rights(draw.sample(grants, len(grants)))
    logs = [log for log in (word(draw, 5) for _ in range(100)) if is_log(log)]
    assert logs
    for log in logs:
        for identity in identities:
            has = {
                grant.right
                for grant in grants
                if grant.identity == identity
                and (log[: len(grant.logs) - 1] == grant.logs[:-1] if grant.logs[-1] == "*" else log == grant.logs)
            }
            assert {right for right in Right if rights.allows(identity, right, log)} == has
            assert rights.may_see(identity, log) == bool(has)


@pytest.mark.parametrize("pattern", ["orders", "*", "shop.*", "a b", " a", "ü*", "x" * 200, "x" * 199 + "*", "..*", "?", "[a]"])
def test_a_pattern_is_the_name_of_a_log_or_a_beginning_of_names_and_a_star(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["**", "a**", "*a", "a*b", "a*b*"])
def test_a_star_elsewhere_is_refused_in_one_sentence_that_says_where_it_may_stand(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"a \* stands at the end of a pattern alone.*'\*' is every log$"):
        check_pattern(pattern)


UNFIT = ["", "a/b", "a/*", ".", "..", "a\n", "\x00*", "x" * 201, "x" * 200 + "*", "\ud800", "\ud800*"]


@pytest.mark.parametrize("pattern", UNFIT, ids=ascii)
def test_a_pattern_that_no_log_s_name_can_fit_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="no log has such a name"):
        check_pattern(pattern)


def test_a_log_whose_name_has_a_star_is_covered_by_a_beginning_of_its_name_alone() -> None:
    check_log_name("a*b")
    assert matches("a*", "a*b")
    assert not is_pattern("a*b")


def test_an_identity_reads_back_as_it_is_written() -> None:
    for text in (
        "token:etl",
        "certificate:spark-client",
        "certificate:token:etl",
        "certificate:spiffe://a/b",
        "certificate:ü ü",
    ):
        assert str(parse_identity(text)) == text
    assert parse_identity("certificate:token:etl") != parse_identity("token:etl")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "etl",
        "token",
        "token:",
        "anonymous",
        "anonymous:x",
        "user:x",
        "Token:x",
        "token: x",
        "token:a\n",
        "token:" + "x" * 257,
    ],
)
def test_what_can_be_granted_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write certificate:NAME"):
        parse_identity(text)


def test_nobody_can_make_a_grant_for_everybody() -> None:
    with pytest.raises(ConfigError):
        Grant(ANONYMOUS, "orders", Right.READ)
    with pytest.raises(ConfigError):
        Grant(ETL, "a*b", Right.READ)


def test_rights_are_words_with_commas_between_each_once() -> None:
    assert parse_rights("read") == (Right.READ,)
    assert parse_rights("manage,read,read") == (Right.READ, Right.MANAGE)
    for wrong in ("", "read,", "write", "read append", "READ", "*"):
        with pytest.raises(ConfigError, match="one or several of read, append, manage"):
            parse_rights(wrong)
