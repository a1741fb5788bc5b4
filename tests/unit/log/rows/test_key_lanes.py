"""Which lanes a write gets, and which lanes a read needs."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.log.rows.key_lanes import MAX_KEYS, AskedLanes, LaneChoice, lanes_of_matches
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.values import Content, Head
from bk_spark.rows.lanes import lane_of, lanes_of
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import RowFilter, bind
from tests.unit.log.log_requests import schema_json

SCHEMA = json.loads(schema_json(id="integer", name="string", day="date", price="double"))
COLUMNS = pa.schema(
    [("id", pa.int32()), ("name", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us")), ("n", pa.int64())]
)
BY_ID = Lanes(("id",), ("integer",), 8)
BY_ID_AND_NAME = Lanes(("id", "name"), ("integer", "string"), 8)


def head(lanes: Lanes, content: Content | None = Content.ROWS) -> Head:
    return Head("orders", content=content, lanes=lanes)


def where(text: str, columns: pa.Schema = COLUMNS) -> RowFilter:
    return bind(parse_where("where", text), "orders", columns)


# --- writes


@pytest.mark.parametrize(
    ("asked", "lanes"),
    [
        (AskedLanes(), PLAIN),
        (AskedLanes(count=1), PLAIN),
        (AskedLanes(("id",)), BY_ID),
        (AskedLanes(("ID", "name"), 3), Lanes(("id", "name"), ("integer", "string"), 3)),
        (AskedLanes(("day",), 1), PLAIN),
    ],
)
def test_the_first_rows_get_what_is_asked_for(asked: AskedLanes, lanes: Lanes) -> None:
    assert asked.appended(head(PLAIN, None), SCHEMA) == lanes
    assert asked.overwritten(head(PLAIN), SCHEMA) == lanes


@pytest.mark.parametrize("asked", [AskedLanes(), AskedLanes(("id",)), AskedLanes(("Id",), 8), AskedLanes(count=8)])
def test_later_rows_get_the_lanes_of_the_log(asked: AskedLanes) -> None:
    assert asked.appended(head(BY_ID), SCHEMA) == BY_ID


@pytest.mark.parametrize(
    ("asked", "lanes", "says"),
    [
        (AskedLanes(("name",)), BY_ID, "option 'partitionKey' is 'name': log 'orders' keeps .*, and it has 8 lanes by id"),
        (AskedLanes(("id",), 4), BY_ID, "option 'lanes' is 4: log 'orders' keeps what its first rows had, 8 lanes by id"),
        (AskedLanes(("id",)), PLAIN, "option 'partitionKey' is 'id': .* it was begun without a key: leave it out, overwrite"),
        (
            AskedLanes(count=2),
            PLAIN,
            "option 'lanes' is 2: log 'orders' keeps what its first rows had, one lane, without a key",
        ),
        (AskedLanes(("name", "id")), BY_ID_AND_NAME, "option 'partitionKey' is 'name,id'"),
    ],
)
def test_later_rows_cannot_change_the_lanes_of_a_log(asked: AskedLanes, lanes: Lanes, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        asked.appended(head(lanes), SCHEMA)


@pytest.mark.parametrize("kind", ["byte", "short", "integer", "long"])
def test_a_key_of_any_width_is_of_one_kind(kind: str) -> None:
    assert AskedLanes().appended(head(BY_ID), json.loads(schema_json(id=kind))) == BY_ID


@pytest.mark.parametrize(
    "kind", ["double", "string", "decimal(10,0)", "date", "boolean", "timestamp", {"type": "struct", "fields": []}]
)
def test_a_key_of_another_kind_is_refused(kind: object) -> None:
    with pytest.raises(ConfigError, match=r"key column 'id' is .*: log 'orders' puts rows in lanes by it as integer"):
        AskedLanes().appended(head(BY_ID), json.loads(schema_json(id=kind)))


def test_text_with_a_collation_of_its_own_is_no_key() -> None:
    schema = json.loads(schema_json(name="string"))
    schema["fields"][0]["metadata"] = {"__COLLATIONS": {"name": "icu.UNICODE_CI"}}
    with pytest.raises(ConfigError, match="'string with a collation of its own': a key is"):
        AskedLanes(("name",)).appended(head(PLAIN, None), schema)


@pytest.mark.parametrize(
    ("asked", "lanes"),
    [(AskedLanes(), BY_ID), (AskedLanes(count=3), Lanes(("id",), ("integer",), 3)), (AskedLanes(count=1), PLAIN)],
)
def test_an_overwrite_keeps_what_it_does_not_name(asked: AskedLanes, lanes: Lanes) -> None:
    assert asked.overwritten(head(BY_ID), SCHEMA) == lanes


def test_an_overwrite_may_change_the_type_of_the_key() -> None:
    assert AskedLanes().overwritten(head(BY_ID), json.loads(schema_json(id="string"))) == Lanes(("id",), ("string",), 8)


@pytest.mark.parametrize(
    "given", [("", None), ([], None), (["a", ""], None), ([1], None), ("a", 0), ("a", True), ("a", 300), (["a"] * 17, 2)]
)
def test_arguments_that_make_no_sense_are_refused(given) -> None:
    with pytest.raises(ConfigError, match=r"^(partition_key|lanes) is "):
        AskedLanes.of(*given)


# --- reads


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("id = 5", [(5,)]),
        ("5 <=> id AND name > 'a'", [(5,)]),
        ("id IN (1, 2, 3000000000)", [(1,), (2,)]),
        ("id IS NULL", [(None,)]),
        ("(n = 1 OR n = 2) AND (id = 7 AND name LIKE 'x%')", [(7,)]),
        ("id = 5 AND id = 6", [(5,)]),
        ("NOT (id != 9 OR name < 'b')", [(9,)]),
        ("id = 5.0", [(5,)]),
        ("id = 5.5", []),
        ("id = 3000000000", []),
    ],
)
def test_a_condition_that_fixes_the_key_needs_the_lanes_of_its_values(text: str, keys: list[tuple[int | None, ...]]) -> None:
    assert lanes_of_matches(where(text), BY_ID) == {lane_of(key, 8) for key in keys}


@pytest.mark.parametrize(
    "text", ["id > 5", "id = 5 OR n = 1", "id != 5", "id NOT IN (5)", "n = 5", "id IS NOT NULL", "id BETWEEN 5 AND 5"]
)
def test_any_other_condition_needs_all_lanes(text: str) -> None:
    assert lanes_of_matches(where(text), BY_ID) is None


def test_every_column_of_the_key_must_be_fixed() -> None:
    found = lanes_of_matches(where("name IN ('a', 'b') AND id <=> NULL"), BY_ID_AND_NAME)
    assert found == {lane_of(key, 8) for key in ((None, b"a"), (None, b"b"))}
    assert lanes_of_matches(where("name = 'a'"), BY_ID_AND_NAME) is None


def test_too_many_keys_are_not_looked_at() -> None:
    ids = ", ".join(map(str, range(40)))
    names = ", ".join(f"'{one}'" for one in range(MAX_KEYS // 40))
    assert lanes_of_matches(where(f"id IN ({ids}) AND name IN ({names})"), BY_ID_AND_NAME) is not None
    assert lanes_of_matches(where(f"id IN ({ids}) AND name IN ({names}, 'x')"), BY_ID_AND_NAME) is None


@pytest.mark.parametrize("of", [pa.float64(), pa.decimal128(20, 2), pa.string()])
def test_a_condition_on_another_type_than_the_keys_needs_all_lanes(of: pa.DataType) -> None:
    """As where several logs are read together, or an overwrite changed the type under a stream."""
    literal = "'5'" if of == pa.string() else "5"
    assert lanes_of_matches(where(f"id = {literal}", pa.schema([("id", of)])), BY_ID) is None


@pytest.mark.parametrize(
    ("text", "of", "kind", "keys"),
    [
        ("id = -0.0", pa.float64(), "float", [0.0]),
        ("id IN (1, 0.5)", pa.float32(), "float", [1.0, 0.5]),
        ("id <=> NULL", pa.float32(), "float", [None]),
        ("id = 1.5", pa.decimal128(10, 4), "decimal", [Decimal("1.5")]),
        ("id IN (1, 2.50, 3.33333)", pa.decimal128(10, 4), "decimal", [Decimal(1), Decimal("2.5")]),
    ],
)
def test_numbers_that_are_not_whole_are_hashed_by_their_value(text: str, of: pa.DataType, kind: str, keys: list[Any]) -> None:
    found = lanes_of_matches(where(text, pa.schema([("id", of)])), Lanes(("id",), (kind,), 256))
    assert found == {lane_of([key], 256) for key in keys}


def test_a_date_that_is_compared_as_a_time_needs_all_lanes() -> None:
    by_day = Lanes(("at",), ("date",), 8)
    assert lanes_of_matches(where("at = '2026-01-31'"), by_day) is None


def test_a_kind_that_a_later_release_brings_needs_all_lanes() -> None:
    assert lanes_of_matches(where("id = 5"), Lanes(("id",), ("folded",), 8)) is None


@pytest.mark.parametrize("seed", range(40))
def test_no_row_that_matches_is_in_a_lane_that_is_left_out(seed: int) -> None:
    chance = random.Random(seed)
    rows = pa.record_batch(
        {
            "id": pa.array([chance.choice([None, *range(5)]) for _ in range(200)], pa.int32()),
            "name": pa.array([chance.choice([None, "", "a", "b"]) for _ in range(200)]),
        }
    )
    parts = [
        "id = 1",
        "id <=> 2",
        "id IN (0, 3)",
        "id IS NULL",
        "name = 'a'",
        "name <=> 'b'",
        "name IS NULL",
        "name != ''",
        "id > 2",
    ]
    text = chance.choice(parts)
    for _ in range(chance.randint(0, 4)):
        text = f"{chance.choice(['', 'NOT '])}({text}) {chance.choice(['AND', 'AND', 'OR'])} {chance.choice(parts)}"
    condition = where(text, rows.schema)
    lanes = Lanes(
        *chance.choice([(("id",), ("integer",)), (("id", "name"), ("integer", "string")), (("name",), ("string",))]), 64
    )
    matching = condition.matching(rows)
    needed = lanes_of_matches(condition, lanes)
    found = set(lanes_of([matching.column(name) for name in lanes.columns], matching.num_rows, 64).tolist())
    assert needed is None or found <= needed


def test_lanes_and_a_condition_together_allow_what_both_do() -> None:
    lane = lane_of((5,), 8)
    other = (lane + 1) % 8
    condition = where("id = 5")
    assert LaneChoice().of("orders", 1, BY_ID) is None
    assert LaneChoice((other,)).of("orders", 1, BY_ID) == {other}
    assert LaneChoice(where=condition).of("orders", 1, BY_ID) == {lane}
    assert LaneChoice((other, lane), condition).of("orders", 1, BY_ID) == {lane}
    assert LaneChoice((other,), condition).of("orders", 1, BY_ID) == frozenset()


def test_on_a_log_of_one_lane_nothing_is_left_out() -> None:
    assert LaneChoice((0,), where("id = 5")).of("orders", 1, PLAIN) is None


@pytest.mark.parametrize(("asked", "wrong"), [((8,), "8"), ((0, 9), "9"), ((-1,), "-1"), ((True,), "True")])
def test_a_lane_that_a_version_does_not_have_is_refused(asked: tuple[int, ...], wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"option 'lane' is {wrong}: version 7 of log 'orders' has the lanes 0 to 7"):
        LaneChoice(asked).of("orders", 7, BY_ID)
