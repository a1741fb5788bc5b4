"""Changes of tokens and grants happen once and whole, whoever else changes them and whichever answers get lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, MetadataConflictError, MetadataUnavailableError
from bk_spark.gateway import stored_access
from bk_spark.gateway.rights import Right
from bk_spark.gateway.stored_access import KEPT_CHANGES
from bk_spark.metadata.store import ANY_VERSION, MetadataStore, StoreChange
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.gateway.access_world import FlakyStore, Operator, after, delay, land_first, lose_answer, lose_request

Hire = Callable[[], Operator]


@pytest.fixture
def znodes() -> Znodes:
    return Znodes("/ledgers")


@pytest.fixture
def new_session() -> Iterator[Callable[[], MetadataStore]]:
    tree = MemoryTree(lambda: 1_000_000)
    return lambda: MemoryStore(tree)


@pytest.fixture
def hire(new_session: Callable[[], MetadataStore], znodes: Znodes) -> Hire:
    """A new operator, with a session of its own."""
    return lambda: Operator(new_session(), znodes)


@pytest.fixture
def operator(hire: Hire) -> Operator:
    return hire()


def test_nobody_has_tokens_or_grants_before_the_first_change(operator: Operator) -> None:
    assert (operator.tokens(), operator.grants()) == (set(), set())
    assert "create" not in operator.store.calls


def test_what_one_operator_changes_another_one_reads(hire: Hire) -> None:
    first, second = hire(), hire()
    made = first.create("etl", ends_ms=9_000)
    first.grant("token:etl", "orders*", Right.READ, Right.APPEND)
    [stored] = second.access.read().tokens.values()
    assert stored.is_of(made)
    assert (stored.name, stored.ends_ms, stored.made_by) == ("etl", 9_000, "op@host")
    assert second.grants() == {("token:etl", "orders*", "read"), ("token:etl", "orders*", "append")}
    assert [one.right for one in second.remove("token:etl", "orders*", Right.READ).removed] == [Right.READ]
    assert [one.name for one in second.revoke("etl").revoked] == ["etl"]
    assert (first.tokens(), first.grants()) == (set(), {("token:etl", "orders*", "append")})


def test_each_change_is_recorded_with_who_made_it_and_without_a_secret(operator: Operator, znodes: Znodes) -> None:
    made = operator.create("etl")
    operator.grant("token:etl", "orders", Right.READ)
    operator.revoke("etl")
    changes = operator.access.changes(0, 3)
    assert [number for number, _ in changes] == [1, 2, 3]
    assert [[len(one.created), len(one.granted), len(one.revoked)] for _, one in changes] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert {(one.by, one.at_ms) for _, one in changes} == {("op@host", 1_000)}
    paths = [f"{znodes.access_changes}/{number}" for number in (1, 2, 3)]
    values = b"".join(one.value for one in operator.store.get_many(paths))
    assert made.text[16:].encode() not in values
    assert made.secret.hex().encode() not in values


def test_the_records_of_the_last_changes_stay_and_no_more(
    operator: Operator, znodes: Znodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KEPT_CHANGES == 1_000
    monkeypatch.setattr(stored_access, "KEPT_CHANGES", 3)
    for number in range(6):
        operator.grant("token:etl", f"log-{number}", Right.READ)
    assert [number for number, _ in operator.access.changes(0, 6)] == [4, 5, 6]
    assert operator.store.children(znodes.access_changes) == ["4", "5", "6"]


def test_what_was_read_before_is_not_read_again(operator: Operator, znodes: Znodes) -> None:
    operator.grant("token:etl", "orders", Right.READ)
    known = operator.access.read()
    operator.store.calls.clear()
    assert operator.access.read() is known
    assert operator.store.calls == ["sync", "get_many"]
    operator.create("etl")
    operator.store.asked.clear()
    operator.store.calls.clear()
    content = operator.access.read()
    assert (content.head.number, len(content.tokens), content.grants) == (2, 1, known.grants)
    assert operator.store.asked == [znodes.access_head, f"{znodes.access_changes}/1", f"{znodes.access_changes}/2"]
    assert "children" not in operator.store.calls


@pytest.mark.parametrize("kept", [1, 3, 1_000])
@pytest.mark.parametrize("followed", [0, 2, 100])
def test_a_reader_that_follows_changes_has_what_one_that_reads_all_has(
    hire: Hire, monkeypatch: pytest.MonkeyPatch, kept: int, followed: int
) -> None:
    monkeypatch.setattr(stored_access, "KEPT_CHANGES", kept)
    monkeypatch.setattr(stored_access, "MOST_FOLLOWED", followed)
    operator, reader, draw = hire(), hire(), random.Random(kept + followed)
    for number in range(30):
        act = draw.choice([operator.create, operator.revoke, operator.grant, operator.remove])
        with suppress(ConfigError):
            act(*[draw.choice("ab")] if act in (operator.create, operator.revoke) else ["token:a", draw.choice("xy")])
        if draw.random() < 0.4 or number == 29:
            assert reader.access.read() == hire().access.read()


def test_two_operators_at_once_make_one_token_of_a_name(hire: Hire) -> None:
    first, second = hire(), hire()
    first.create("other")
    first.store.script = [after(lambda: second.create("etl"))]
    with pytest.raises(ConfigError, match="a token of this name lives"):
        first.create("etl")
    assert first.tokens() == {"other", "etl"}


def test_two_operators_at_once_make_the_very_first_change_once_each(hire: Hire) -> None:
    first, second = hire(), hire()
    first.store.script = [after(lambda: second.grant("token:b", "b", Right.READ))]
    first.grant("token:a", "a", Right.READ)
    assert first.grants() == {("token:a", "a", "read"), ("token:b", "b", "read")}


def test_a_grant_that_is_removed_meanwhile_is_granted_again_and_not_undone(hire: Hire) -> None:
    first, second = hire(), hire()
    first.grant("token:a", "a", Right.READ)
    first.store.script = [after(lambda: second.remove("token:a", "a"))]
    first.grant("token:a", "a", Right.READ, Right.APPEND)
    assert first.grants() == {("token:a", "a", "read"), ("token:a", "a", "append")}


def test_to_revoke_what_another_operator_revokes_meanwhile_says_that_it_is_gone(hire: Hire) -> None:
    first, second = hire(), hire()
    first.create("etl")
    first.store.script = [after(lambda: second.revoke("etl"))]
    with pytest.raises(ConfigError, match="there is no token of this name"):
        first.revoke("etl")


LOSSES = {
    "the answer": [lose_answer],
    "the request": [lose_request],
    "both tries": [lose_request, lose_answer],
    "the request, which arrives before the next try": [delay, land_first],
    "the request, then the answer of the next try": [delay, lose_answer],
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_change_whose_answer_is_lost_is_made_once_and_told_as_made(operator: Operator, loss: str) -> None:
    operator.create("old")
    for change in (
        lambda: operator.create("etl"),
        lambda: operator.revoke("old"),
        lambda: operator.grant("token:etl", "orders", Right.READ),
        lambda: operator.remove("token:etl", "orders"),
    ):
        before = operator.access.read().head.number
        operator.store.script = list(LOSSES[loss])
        change()
        operator.store.land()
        assert operator.access.read().head.number == before + 1
        [(_, record)] = operator.access.changes(before, before + 1)
        assert len(record) == 1
    assert (operator.tokens(), operator.grants()) == ({"etl"}, set())


def test_a_change_that_arrives_late_does_not_undo_what_was_decided_since(hire: Hire) -> None:
    first, second = hire(), hire()
    first.create("old")

    def delay_and_go(store: FlakyStore, changes: Sequence[StoreChange]) -> None:
        store.is_away = True
        delay(store, changes)

    first.store.script = [delay_and_go]
    with pytest.raises(MetadataUnavailableError):
        first.revoke("old")
    second.revoke("old")
    second.create("old")
    first.store.is_away = False
    first.store.land()
    assert second.tokens() == {"old"}


def test_too_many_changes_between_end_in_an_error_that_says_so(hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_access, "_TRIES", 5)
    first, second = hire(), hire()
    first.store.script = [after(lambda number=number: second.grant("token:b", f"b{number}", Right.READ)) for number in range(5)]
    with pytest.raises(MetadataConflictError, match="5 changes came between"):
        first.grant("token:a", "a", Right.READ)


def test_while_the_store_is_away_nothing_is_known(operator: Operator) -> None:
    operator.create("etl")
    operator.store.is_away = True
    with pytest.raises(MetadataUnavailableError):
        operator.access.read()
    with pytest.raises(MetadataUnavailableError):
        operator.revoke("etl")


def test_a_change_while_all_is_read_has_it_read_again(hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else tokens before it and grants after it would be read as one."""
    first, second = hire(), hire()
    first.create("etl")
    children = first.store.store.children
    others = [lambda: second.revoke("etl"), lambda: second.grant("token:a", "a", Right.READ)]

    def with_a_change_between(path: str) -> list[str]:
        names = children(path)
        if others:
            others.pop(0)()
        return names

    monkeypatch.setattr(first.store.store, "children", with_a_change_between)
    content = first.access.read()
    assert (content.head.number, dict(content.tokens), len(content.grants)) == (3, {}, 1)


def test_a_store_that_has_lost_what_was_there_is_a_conflict_and_no_refusal(operator: Operator, znodes: Znodes) -> None:
    operator.create("etl")
    operator.access.read()
    operator.store.delete(znodes.access_head, ANY_VERSION)
    with pytest.raises(MetadataConflictError, match="has lost its tokens and grants"):
        operator.access.read()


@pytest.mark.parametrize("number_after", [2, 3])
def test_a_store_that_was_restored_from_a_copy_is_read_anew_though_its_numbers_come_again(
    hire: Hire, znodes: Znodes, number_after: int
) -> None:
    operator, gateway = hire(), hire()
    operator.create("a")
    copied = operator.store.get(znodes.access_head).value
    operator.create("b")
    assert gateway.tokens() == {"a", "b"}
    operator.revoke("b")
    for number in (2, 3):
        operator.store.delete(f"{znodes.access_changes}/{number}", 0)
    operator.store.set(znodes.access_head, copied, operator.store.get(znodes.access_head).version)
    operator.create("c")
    if number_after == 3:
        operator.create("d")
    assert gateway.access.read().head.number == number_after
    assert gateway.tokens() == operator.tokens() == {"a", "c", "d"} - ({"d"} if number_after == 2 else set())


def test_records_of_changes_that_do_not_lead_from_what_is_known_to_the_head_are_not_followed(
    hire: Hire, znodes: Znodes
) -> None:
    operator, gateway = hire(), hire()
    for number in range(2):
        operator.create("a" * (number + 1))
    gateway.access.read()
    for number in range(3):
        operator.create("b" * (number + 1))
    operator.store.delete(f"{znodes.access_changes}/4", 0)
    assert gateway.access.read() == hire().access.read()
    operator.create("c")
    other = operator.store.get(f"{znodes.access_changes}/5")
    operator.store.set(f"{znodes.access_changes}/6", other.value, 0)
    assert gateway.access.read() == hire().access.read()


@pytest.mark.parametrize(("value", "error"), [(b"{}", CorruptionError), (b'{"format":2}', FormatVersionError)])
def test_what_cannot_be_understood_is_never_left_out(operator: Operator, znodes: Znodes, value: bytes, error: type) -> None:
    """A token or grant that a newer release wrote may say more than this one knows."""
    operator.create("etl")
    operator.store.create(f"{znodes.access_grants}/{'0' * 32}", value)
    with pytest.raises(error):
        operator.access.read()
    with pytest.raises(error):
        operator.create("b")


def test_a_directory_that_is_missing_is_damage(operator: Operator, znodes: Znodes) -> None:
    operator.grant("token:a", "a", Right.READ)
    operator.store.delete(znodes.access_tokens, ANY_VERSION)
    with pytest.raises(CorruptionError, match="tokens are missing of which the head knows"):
        operator.access.read()


@pytest.mark.parametrize("seed", range(15))
def test_drawn_changes_of_two_operators_end_as_a_list_of_them_says(hire: Hire, seed: int) -> None:
    """Losses at drawn moments; the other operator acts between. Each call that returns has happened once."""
    draw = random.Random(seed)
    operators = [hire(), hire()]
    tokens: set[str] = set()
    grants: set[tuple[str, str, str]] = set()

    def act(operator: Operator) -> None:
        name, logs, right = draw.choice("ab"), draw.choice(["x", "x*"]), draw.choice(list(Right))
        kind, key = draw.randrange(4), (f"token:{name}", logs, right.value)
        with suppress(ConfigError):
            if kind == 0:
                operator.create(name)
                assert name not in tokens
                tokens.add(name)
            elif kind == 1:
                operator.revoke(name)
                tokens.remove(name)
            elif kind == 2:
                operator.grant(f"token:{name}", logs, right)
                grants.add(key)
            else:
                operator.remove(f"token:{name}", logs, right)
                grants.remove(key)

    for _ in range(40):
        operator, other = draw.sample(operators, 2)
        losses = [lose_answer, lose_request, delay, land_first, after(lambda other=other: act(other))]
        operator.store.script = [draw.choice(losses)] if draw.random() < 0.6 else []
        other.store.script = []
        act(operator)
        for one in operators:
            one.store.land()
        reader = draw.choice(operators)
        reader.store.script = []
        assert (reader.tokens(), reader.grants()) == (tokens, grants)
    assert hire().access.read() == operators[0].access.read() == operators[1].access.read()
