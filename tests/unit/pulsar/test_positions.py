"""Places in topics, as users write them and as Spark's checkpoint keeps them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError
from bk_spark.pulsar.positions import EARLIEST, LATEST, Offsets, Position, TopicOffset

A, B = "persistent://public/default/a", "persistent://t/n/b"


@pytest.mark.parametrize(
    ("text", "position"), [("17:3", Position(17, 3)), ("17:3:0", Position(17, 3, 0)), ("0:0:5", Position(0, 0, 5))]
)
def test_a_message_id_is_ledger_entry_and_perhaps_index(text: str, position: Position) -> None:
    assert Position.parse("start", text) == position
    assert str(position) == text


@pytest.mark.parametrize("text", ["", "17", "17:", ":3", "-1:3", "17:3:", "17:3:4:5", "a:b", "9" * 20 + ":1", " 17:3", "٣:1"])
def test_what_is_no_message_id_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="a message id such as 17:3"):
        Position.parse("start", text)


def test_positions_are_in_the_order_of_the_topic() -> None:
    ordered = [
        Position(-1, -1),
        Position(5, 0),
        Position(5, 7),
        Position(5, 7, 0),
        Position(5, 7, 3),
        Position(5, 8),
        Position(6, 0),
    ]
    assert sorted(ordered) == ordered


def test_one_word_or_message_id_holds_for_all_topics() -> None:
    assert Offsets.parse("start", "EARLIEST").of(A) == EARLIEST
    assert Offsets.parse("start", "latest").of(A) == LATEST
    assert Offsets.parse("start", "17:3").of(A) == Position(17, 3)


def test_json_names_a_place_in_each_topic_and_the_others_have_the_default() -> None:
    given_offsets = Offsets.parse_end("end", json.dumps({"a": "17:3", B: "earliest"}))
    assert [given_offsets.of(one) for one in (A, B, "persistent://t/n/c")] == [Position(17, 3), EARLIEST, LATEST]


@pytest.mark.parametrize("text", ["{", "{}", '{"a": 5}', '{"a": "soon"}', '["a"]', '{"non-persistent://t/n/a": "1:1"}'])
def test_wrong_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Offsets.parse("start", text)


def test_two_names_of_one_topic_are_refused() -> None:
    with pytest.raises(ConfigError, match="it names a topic twice"):
        Offsets.parse("start", json.dumps({"a": "17:3", A: "18:0"}))


@pytest.mark.parametrize("text", ["17:3:0", '{"a": "17:3:5"}'])
def test_an_end_has_no_index_in_a_batch(text: str) -> None:
    with pytest.raises(ConfigError, match="a read ends between entries: leave out the index, 17:3"):
        Offsets.parse_end("end", text)
    assert Offsets.parse_end("end", "17:3").of(A) == Position(17, 3)


def test_a_name_that_is_not_read_and_one_place_for_several_topics_are_refused() -> None:
    with pytest.raises(ConfigError, match="it names a topic that is not read: those are persistent://public/default/a"):
        Offsets.parse("start", json.dumps({B: "1:1"})).check_names("start", [A])
    with pytest.raises(ConfigError, match="2 are read, partitions counted: give one by topic"):
        Offsets.parse("start", "1:1").check_names("start", [A, B])
    Offsets.parse("start", "1:1").check_names("start", [A])
    Offsets.parse("start", "earliest").check_names("start", [A, B])


POSITIONS = st.one_of(st.just(Position(-1, -1)), st.builds(Position, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)))


@given(st.dictionaries(st.sampled_from([A, B, "persistent://t/n/c"]), POSITIONS))
def test_a_streams_offset_is_the_same_text_for_the_same_places(positions: dict[str, Position]) -> None:
    text = json.dumps(TopicOffset(positions).to_json())
    assert TopicOffset.from_json(json.loads(text)).positions == positions
    assert json.dumps(TopicOffset(dict(reversed(positions.items()))).to_json()) == text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "it is none of this format"),
        ({"format": 1}, "it is none of this format"),
        ({"entry": 1, "ledger": 2}, "it is none of this format"),
        ({"format": 2, "topics": {}}, "it has format 2, this release reads 1"),
        ({"format": 1, "topics": {A: "latest"}}, "a message id such as 17:3"),
    ],
)
def test_an_offset_of_another_kind_is_refused(value: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TopicOffset.from_json(value)
