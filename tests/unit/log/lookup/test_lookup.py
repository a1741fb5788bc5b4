"""The newest row of a key, in a log in memory: beside a dictionary, and what is read for it."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.errors import BookieUnavailableError, ConfigError, CorruptionError, NoSuchLedgerError, NoSuchLogError
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.lookup import lane_walk
from bk_spark.log.lookup.lookup import LookupQuery, _GivenUpError
from bk_spark.log.stored.values import CommitKind
from bk_spark.rows.statistics import MIN_ROWS
from tests.unit.log.log_world import LogWorld
from tests.unit.log.lookup.keyed_log import KeyedLog

KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), lambda number: number % 2 == 0),
    "integer": (pa.int32(), lambda number: number * 7919 - 500),
    "date": (pa.date32(), lambda number: datetime.date(2026, 1, 1) + datetime.timedelta(number)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda number: datetime.datetime.fromtimestamp(number * 1.5, datetime.UTC)),
    "timestamp_ntz": (pa.timestamp("us"), lambda number: datetime.datetime(2026, 1, 1, 0, 0, 0, number)),
    "string": (pa.string(), lambda number: f"customer {number}" * (number % 9)),
    "float": (pa.float64(), lambda number: number * 0.5 - 3),
    "decimal": (pa.decimal128(12, 3), lambda number: Decimal(number * 7 - 50).scaleb(-2)),
    "binary": (pa.binary(), lambda number: bytes([number % 251, 255 - number % 7])),
}
"""Kind of key → its type, and a value for a number."""


def numbered(first: int, count: int, keys: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": [number % keys for number in numbers], "n": list(numbers)})


class Drawn:
    """A log whose history is drawn."""

    def __init__(self, world: LogWorld, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kinds = [self.chance.choice(list(KINDS)) for _ in range(self.chance.choice([1, 1, 2, 3]))]
        self.names = [f"k{place}" for place in range(len(self.kinds))]
        self.keyed = KeyedLog(world, self.names, self.chance.randint(2, 5), max_rows=self.chance.choice([10, 70, 300]))
        self.first = 0

    def key(self) -> tuple[Any, ...]:
        one = [None if self.chance.random() < 0.1 else KINDS[kind][1](self.chance.randrange(30)) for kind in self.kinds]
        return tuple(one)

    def commit(self) -> None:
        self.keyed.has_filters = self.chance.random() < 0.7
        count = self.chance.choice([1, 20, 200, 500])
        keys = [self.key() for _ in range(count)]
        columns = {
            name: pa.array([key[place] for key in keys], KINDS[kind][0])
            for place, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True))
        }
        gone = [self.chance.choice([None, False, False, True]) for _ in keys]
        numbers = list(range(self.first, self.first + count))
        self.first += count
        self.keyed.append(pa.table({"n": numbers, **columns, "gone": pa.array(gone, pa.bool_())}))

    def change(self) -> None:
        ledgers = self.keyed.log.snapshot().ledgers
        if ledgers and self.chance.random() < 0.2:
            self.keyed.log.truncate(before=LogPosition(self.chance.choice(ledgers).ledger_id, 0))
        else:
            self.commit()


@pytest.mark.parametrize("seed", range(24))
def test_look_ups_find_what_a_dictionary_has_whatever_the_history(world: LogWorld, seed: int) -> None:
    drawn = Drawn(world, seed)
    drawn.commit()
    for _ in range(drawn.chance.randint(1, 6)):
        drawn.change()
        log = drawn.keyed.open() if drawn.chance.random() < 0.3 else drawn.keyed.log
        versions = [one.version for one in log.versions()]
        version = drawn.chance.choice([None, *versions])
        deleted_by = drawn.chance.choice([None, "gone"])
        expected = drawn.keyed.expected(deleted_by, version)
        keys = list(dict.fromkeys(drawn.key() for _ in range(40)))
        found = log.get_many(keys, deleted_by=deleted_by, version=version)
        assert found.to_pylist() == [expected[key] for key in keys if key in expected]
        for key in keys[:5]:
            one = log.get(key if len(key) > 1 else key[0], deleted_by=deleted_by, version=version)
            assert one.to_pylist() == ([expected[key]] if key in expected else [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_each_kind_is_found_as_python_and_as_arrow(world: LogWorld, kind: str) -> None:
    of, value = KINDS[kind]
    keyed = KeyedLog(world, ["k"])
    values = list(dict.fromkeys(value(number) for number in range(150)))
    keyed.append(pa.table({"k": pa.array([*values, None], of), "n": list(range(len(values) + 1))}))
    for wanted in ([*values, None], pa.array([*values, None], of), pa.table({"k": pa.array([*values, None], of)})):
        assert keyed.log.get_many(wanted).column("n").to_pylist() == list(range(len(values) + 1))
    assert keyed.log.get(None).to_pylist() == [{"k": None, "n": len(values)}]


def test_columns_are_given_as_asked_for_and_the_key_need_not_be_among_them(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(pa.table({"k": [1, 2], "a": ["x", "y"], "b": [5, 6]}))
    assert keyed.log.get(2, columns=["b", "a"]).to_pylist() == [{"b": 6, "a": "y"}]
    assert keyed.log.get(3, columns=["b"]).schema == pa.schema([("b", pa.int64())])
    assert keyed.log.get_many([2, 1], columns=["a"]).to_pylist() == [{"a": "y"}, {"a": "x"}]
    assert keyed.log.get_many([], columns=["a"]).num_rows == 0


def test_a_key_that_is_given_twice_is_answered_once_at_its_first_place(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 10, 10))
    assert keyed.log.get_many([7, 3, 7, 99, 3, 1]).column("n").to_pylist() == [7, 3, 1]


def test_a_row_that_says_its_key_is_gone_hides_older_ones_until_a_newer_one_comes(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(pa.table({"k": [1, 2], "gone": [False, False]}))
    keyed.append(pa.table({"k": [1, 2], "gone": pa.array([True, None], pa.bool_())}))
    assert keyed.log.get(1, deleted_by="gone").num_rows == 0
    assert keyed.log.get(1).num_rows == 1
    assert keyed.log.get_many([1, 2], deleted_by="gone", columns=["k"]).to_pylist() == [{"k": 2}]
    keyed.append(pa.table({"k": [1], "gone": [False]}))
    assert keyed.log.get(1, deleted_by="gone").num_rows == 1


def test_rows_from_before_a_column_was_added_are_found_and_not_deleted_by_it(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(pa.table({"k": pa.array([1, 2], pa.int32())}))
    keyed.append(pa.table({"k": [2**40], "gone": [True]}), merge=True)
    assert keyed.log.get(1, deleted_by="gone").to_pylist() == [{"k": 1, "gone": None}]
    assert keyed.log.get(2**40, deleted_by="gone").num_rows == 0


def test_each_get_sees_what_was_committed_before_it_and_old_versions_stay(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    for number in range(5):
        keyed.append(pa.table({"k": [1], "n": [number]}))
        assert keyed.log.get(1, columns=["n"]).to_pylist() == [{"n": number}]
    assert [keyed.log.get(1, version=version).to_pylist()[0]["n"] for version in range(1, 6)] == list(range(5))


def test_after_an_overwrite_with_another_key_only_the_new_key_is_looked_up(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 200, 50))
    assert keyed.log.get(3, columns=["n"]).to_pylist() == [{"n": 153}]
    keyed.key = ("n",)
    keyed.append(pa.table({"k": [3, 4], "n": ["a", "b"]}), CommitKind.OVERWRITE)
    assert keyed.log.get("b").to_pylist() == [{"k": 4, "n": "b"}]
    assert keyed.log.get(3, version=1, columns=["n"]).to_pylist() == [{"n": 153}]


# What is read


def test_an_entry_that_was_read_once_is_read_again_only_for_a_key_that_it_may_hold(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    for number in range(20):
        keyed.append(numbered(number * 300, 300, 10**6))
    for absent in range(10**6 + 1, 10**6 + 40):
        keyed.log.get(absent)
    keyed.reads.clear()
    for absent in range(10**6 + 41, 10**6 + 241):
        assert keyed.log.get(absent).num_rows == 0
    assert len(keyed.reads) < 200 * len(keyed.payloads) / 3 * 0.02
    keyed.reads.clear()
    assert keyed.log.get(5, columns=["n"]).to_pylist() == [{"n": 5}]
    assert 1 <= len(keyed.reads) <= 3


def test_entries_in_which_keys_were_found_are_read_once(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 2000, 2000))
    expected = [[{"n": number}] for number in range(0, 2000, 50)]
    assert [keyed.log.get(number, columns=["n"]).to_pylist() for number in range(0, 2000, 50)] == expected
    keyed.reads.clear()
    assert [keyed.log.get(number, columns=["n"]).to_pylist() for number in range(0, 2000, 50)] == expected
    assert keyed.reads == []


def test_a_key_of_the_newest_rows_costs_no_look_at_older_ledgers(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    old = [keyed.append(numbered(number, 200, 20)) for number in range(10)]
    keyed.log.get(7)
    assert {ledger for ledger, _ in keyed.reads} <= set(old[-1])


def test_payloads_without_a_filter_are_looked_through_once_and_then_known(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.has_filters = False
    keyed.append(pa.table({"k": [f"key {number}" for number in range(0, 2000, 2)]}))
    first = [f"key {number}" for number in range(1, 2000, 2)]
    assert keyed.log.get_many(first).num_rows == 0
    keyed.reads.clear()
    assert keyed.log.get_many([f"key {number}" for number in range(1, 100, 2)]).num_rows == 0
    assert len(keyed.reads) < len(keyed.payloads) * 3


def test_small_payloads_which_have_no_statistics_are_known_after_their_first_look(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"], lanes=2, max_rows=MIN_ROWS - 1)
    keyed.append(numbered(0, 1000, 1000))
    assert keyed.log.get_many(list(range(1000, 2000))).num_rows == 0
    keyed.reads.clear()
    for absent in range(2000, 2050):
        keyed.log.get(absent)
    assert len(keyed.reads) < 50


def test_a_long_lane_is_learnt_in_growing_steps(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_walk, "MOST_BYTES", 800)  # the ledgers of a LogWorld have 100 bytes an entry
    monkeypatch.setattr(lane_walk, "FIRST_BYTES", 200)
    keyed = KeyedLog(world, ["k"], lanes=2, max_rows=70)
    keyed.append(numbered(0, 70 * 60, 10**6))
    assert keyed.log.get(10**7).num_rows == 0
    by_ledger = {ledger: [entry for one, entry in keyed.reads if one == ledger] for ledger in keyed.payloads}
    [entries] = [found for found in by_ledger.values() if found]
    assert sorted(entries) == list(range(len(entries)))
    assert entries[:2] == [len(entries) - 2, len(entries) - 1]
    assert entries[2] == len(entries) - 6


def test_a_payload_in_parts_is_found_and_its_later_parts_are_known_to_hold_nothing(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bk_spark.rows import parts

    monkeypatch.setattr(parts, "MAX_ENTRY_BYTES", 3000)
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    keyed = KeyedLog(world, ["k"], lanes=2, max_rows=1)
    keyed.append(pa.table({"k": [1, 1, 1], "v": ["x" * 10_000, "y" * 5_000, "z"]}))
    for _ in range(2):
        assert keyed.log.get(1).to_pylist() == [{"k": 1, "v": "z"}]
    assert keyed.log.get(1, version=1).num_rows == 1
    keyed.append(pa.table({"k": [2], "v": ["w" * 9_000]}))
    for _ in range(2):
        assert keyed.log.get_many([2, 1]).column("v").to_pylist() == ["w" * 9_000, "z"]
        assert keyed.log.get(3).num_rows == 0


# What is refused, and what goes wrong


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("5", "log 'orders' has its key column 'k' as int64"),
        (5.5, "log 'orders' has its key column 'k' as int64"),
        (True, "log 'orders' has its key column 'k' as int64"),
        (2**63, "log 'orders' has its key column 'k' as int64"),
        ((5, 6), "it must be one value, for 'k', the key of log 'orders'"),
        ({"n": 5}, "it must have a value for 'k', the key of log 'orders', and no other"),
    ],
)
def test_a_key_of_another_type_or_form_is_refused(world: LogWorld, key: Any, text: str) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 10, 10))
    with pytest.raises(ConfigError, match=text):
        keyed.log.get(key)
    with pytest.raises(ConfigError, match=text):
        keyed.log.get_many([1, key])


def test_a_key_of_several_columns_is_a_tuple_or_a_dict(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["a", "b"])
    keyed.append(pa.table({"a": [1, 1], "b": ["x", "y"], "n": [5, 6]}))
    assert keyed.log.get((1, "y"), columns=["n"]).to_pylist() == [{"n": 6}]
    assert keyed.log.get({"b": "x", "a": 1}, columns=["n"]).to_pylist() == [{"n": 5}]
    table = pa.table({"b": ["y", "z"], "a": pa.array([1, 1], pa.int8())})
    assert keyed.log.get_many(table, columns=["n"]).to_pylist() == [{"n": 6}]
    for wrong in (1, (1,), (1, "x", 2), {"a": 1}):
        with pytest.raises(ConfigError, match="for 'a', 'b', the key of log 'orders'"):
            keyed.log.get(wrong)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("abc", "get\\(\\) looks a single key up"),
        (5, "get\\(\\) looks a single key up"),
        (range(100_001), "one call takes 100000"),
        (pa.array(range(100_001)), "one call takes 100000"),
        (pa.array(["5"]), "as int64, and no key of it is equal to another type's: cast it"),
        (pa.array([5.0]), "as int64, and no key of it is equal to another type's: cast it"),
        (pa.table({"x": [5]}), "they must be 'k', the key of log 'orders', and no other"),
    ],
)
def test_keys_of_another_form_or_type_or_too_many_are_refused(world: LogWorld, keys: Any, text: str) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 10, 10))
    with pytest.raises(ConfigError, match=text):
        keyed.log.get_many(keys)


def test_a_number_that_the_key_column_cannot_hold_is_refused_as_arrow_data_too(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(pa.table({"k": pa.array([1], pa.int16())}))
    assert keyed.log.get_many(pa.array([1], pa.int64())).num_rows == 1
    with pytest.raises(ConfigError, match="as int16"):
        keyed.log.get_many(pa.array([1, 70_000], pa.int64()))


def test_deleted_by_must_be_a_column_of_booleans(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 10, 10))
    with pytest.raises(ConfigError, match="log 'orders' has the columns k, n"):
        keyed.log.get(1, deleted_by="gone")
    with pytest.raises(ConfigError, match="it must be a column of booleans"):
        keyed.log.get(1, deleted_by="n")
    with pytest.raises(ConfigError, match="log 'orders' has the columns k, n"):
        keyed.log.get(1, columns=["x"])


def test_a_log_without_a_key_is_refused_with_the_way_out(world: LogWorld) -> None:
    keyed = KeyedLog(world, [], lanes=1)
    keyed.append(numbered(0, 10, 10))
    with pytest.raises(ConfigError, match=r"it has no key: find its rows with read_rows\(where=…\)"):
        keyed.log.get(1)


def test_an_empty_log_and_a_version_that_does_not_exist_are_refused(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    with pytest.raises(ConfigError, match="it holds nothing"):
        keyed.log.get(1)
    keyed.append(numbered(0, 10, 10))
    with pytest.raises(ConfigError, match="has the versions 0 to 1"):
        keyed.log.get(1, version=2)


def test_a_deleted_log_is_gone_also_where_a_new_one_has_its_name(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 10, 10))
    assert keyed.log.get(1).num_rows == 1
    old = keyed.log
    old.delete()
    keyed.log = keyed.open()
    keyed.append(numbered(0, 10, 10))
    with pytest.raises(NoSuchLogError):
        old.get(1)


def test_an_error_of_a_bookie_is_raised_and_the_next_look_up_tries_again(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 1000, 1000))
    keyed.error = BookieUnavailableError(1, 0, ("no answer",))
    with pytest.raises(BookieUnavailableError):
        keyed.log.get(1)
    with pytest.raises(BookieUnavailableError):
        keyed.log.get_many(list(range(100)))
    keyed.error = None
    assert keyed.log.get(1, columns=["n"]).to_pylist() == [{"n": 1}]


def test_a_ledger_that_is_neither_on_bookies_nor_in_a_tier_is_an_error(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.gone = set(keyed.append(numbered(0, 10, 10)))
    with pytest.raises(NoSuchLedgerError):
        keyed.log.get(1)


def test_damage_of_a_payload_is_raised(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"], lanes=2)
    for ledger in keyed.append(numbered(0, 400, 400)):
        keyed.payloads[ledger] = [b"BKRW" + one[4:6] + b"\xff\xff" + one[8:] for one in keyed.payloads[ledger]]
    with pytest.raises(CorruptionError):
        keyed.log.get(1)


def test_a_look_up_that_nobody_waits_for_reads_nothing_more(world: LogWorld) -> None:
    keyed = KeyedLog(world, ["k"])
    keyed.append(numbered(0, 400, 400))
    lookup = keyed.log._lookups.started(5, LookupQuery(), is_one=True)
    lookup.give_up()
    with pytest.raises(_GivenUpError):
        lookup.run()
    assert keyed.reads == []
