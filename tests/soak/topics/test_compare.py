"""The comparison of two tables of messages finds each kind of difference."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from tests.soak.topics.compare import unlike

TOPIC = "persistent://t/n/a"


def message(entry: int, **other: Any) -> dict[str, Any]:
    usual = {
        "key": "k",
        "value": b"v",
        "_topic": TOPIC,
        "_message_id": {"ledger_id": 1, "entry_id": entry, "batch_index": -1},
        "_publish_time": 10,
        "_producer": "p",
        "_sequence_id": entry,
        "_properties": [("x", "1"), ("y", "2")],
    }
    return {**usual, **other}


def rows(*messages: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(messages), MESSAGE_SCHEMA)


WANTED = rows(message(0), message(1), message(2))


def test_the_same_messages_are_alike_and_so_is_one_more_behind_the_last() -> None:
    assert not unlike(WANTED, WANTED)
    assert not unlike(WANTED, rows(*WANTED.to_pylist(), message(3)))


def test_the_order_of_a_messages_properties_does_not_matter_and_that_of_partitions_neither() -> None:
    turned = message(0, _properties=[("y", "2"), ("x", "1")])
    other = message(0, _topic="persistent://t/n/b")
    assert not unlike(rows(message(0), other), rows(other, turned))


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([message(0), message(2)], id="one is missing"),
        pytest.param([message(0), message(1)], id="the last one is missing"),
        pytest.param([message(0), message(1), message(1), message(2)], id="one comes twice"),
        pytest.param([message(1), message(0), message(2)], id="two change places"),
        pytest.param([message(0), message(1), message(2), message(3), message(4)], id="two behind the last one"),
    ],
)
def test_other_messages_differ(found: list[dict[str, Any]]) -> None:
    assert unlike(WANTED, rows(*found))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", None),
        ("key", "other"),
        ("value", None),
        ("value", b""),
        ("_publish_time", 11),
        ("_event_time", 11),
        ("_producer", "q"),
        ("_sequence_id", 7),
        ("_properties", [("x", "1")]),
        ("_properties", [("x", "1"), ("y", "3")]),
        ("_properties", [("x", "1"), ("x", "1"), ("y", "2")]),
        ("_properties", None),
        ("_ordering_key", b""),
    ],
)
def test_another_value_of_a_column_is_told_with_its_message(name: str, value: object) -> None:
    [told] = unlike(WANTED, rows(message(0), message(1, **{name: value}), message(2)))
    assert told.startswith(f"{TOPIC}: {name} differs in 1 messages, such as (1, 1, -1)")


def test_a_table_of_other_columns_differs() -> None:
    assert unlike(WANTED, WANTED.drop_columns("key"))
