"""What of a condition is tested before the newest row is chosen, and which views are refused."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.log.rows.latest.asked import AskedView
from bk_spark.log.rows.latest.view import LatestRows, latest_rows
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import RowFilter, bind

STORED = pa.schema([("shop", pa.string()), ("id", pa.int64()), ("amount", pa.int64()), ("gone", pa.bool_())])
LANES = Lanes(("shop", "id"), ("string", "integer"), 8)


def where(text: str) -> RowFilter:
    return bind(parse_where("where", text), "orders", STORED)


def bound(text: str | None = None, **asked: str) -> LatestRows:
    given = None if text is None else where(text)
    return latest_rows(AskedView("latest", **asked), "version 3 of log 'orders'", STORED, LANES, given)


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("id = 5", "id = 5", None),
        ("amount > 5", None, "amount > 5"),
        ("id = 5 AND amount > 5", "id = 5", "amount > 5"),
        ("(id = 5 AND amount > 5) AND (shop = 'a' OR id > 7)", "id = 5 AND (shop = 'a' OR id > 7)", "amount > 5"),
        ("id = 5 OR amount > 5", None, "id = 5 OR amount > 5"),
        ("NOT (id = 5 OR amount > 5)", "id != 5", "amount <= 5"),
        ("NOT (id = 5 AND amount > 5)", None, "id != 5 OR amount <= 5"),
        ("id IS NULL AND gone = true", "id IS NULL", "gone = true"),
    ],
)
def test_only_conditions_on_key_columns_alone_are_tested_before_the_choice(
    text: str, before: str | None, after: str | None
) -> None:
    latest = bound(text)
    assert latest.before == (None if before is None else where(before))
    assert latest.after == (None if after is None else where(after))
    assert latest.of_keys.where == latest.before == latest.of_rows(STORED).where


def test_the_choice_reads_keys_and_tombstones_alone() -> None:
    assert latest_names(bound("amount > 5", deleted_by="gone").of_keys.schema) == ["shop", "id", "gone"]
    assert latest_names(bound("amount > 5").of_keys.schema) == ["shop", "id"]
    wanted = pa.schema([STORED.field("gone")])
    assert latest_names(bound("amount > 5 AND gone = false", deleted_by="gone").of_rows(wanted).schema) == ["gone", "amount"]


def latest_names(schema: pa.Schema) -> list[str]:
    return list(schema.names)


def test_the_column_of_tombstones_is_found_as_spark_finds_it() -> None:
    assert bound(deleted_by="GONE").deleted_by == STORED.field("gone")


def test_a_view_goes_to_tasks() -> None:
    latest = bound("id = 5 AND amount > 5", deleted_by="gone")
    assert pickle.loads(pickle.dumps(latest)) == latest


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"view": "newest"}, "view is 'newest': it must be 'all' or 'latest'"),
        (
            {"deleted_by": "gone"},
            "deleted_by is 'gone': it only works with view set to 'latest'",
        ),
    ],
)
def test_an_unknown_view_is_refused(asked, says) -> None:
    with pytest.raises(ConfigError, match=says):
        AskedView(**asked)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("deleted", "deleted_by is 'deleted': version 3 of log 'orders' has the columns shop, id, amount, gone"),
        ("amount", "deleted_by is 'amount': column 'amount' is int64, and only a boolean says whether a row removes its key"),
    ],
)
def test_a_column_that_cannot_tell_tombstones_is_refused(name, says) -> None:
    with pytest.raises(ConfigError, match=says):
        bound(deleted_by=name)


def test_a_log_without_keys_has_no_newest_rows() -> None:
    says = "view is 'latest': version 3 of log 'orders' has no key, .*: read all rows and group them, or overwrite the log with"
    with pytest.raises(ConfigError, match=says):
        latest_rows(AskedView("latest"), "version 3 of log 'orders'", STORED, PLAIN, None)
