"""Several logs in one load: which ones a pattern names, and their columns together."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bk_spark.datasource.option_values import MAX_LOGS_READ
from bk_spark.datasource.options import SourceOptions, parse_options
from bk_spark.datasource.read import loaded_logs
from bk_spark.datasource.read.loaded_log import LoadedLog, columns_of
from bk_spark.datasource.read.loaded_logs import load_logs, matching, together
from bk_spark.errors import ConfigError, NoSuchLogError, SchemaMismatchError


def struct(columns: dict[str, Any]) -> dict[str, Any]:
    """Types by Spark's names; a dict is a struct."""
    types = {name: struct(kind) if isinstance(kind, dict) else kind for name, kind in columns.items()}
    return {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()]}


def rows(name: str, **columns: Any) -> LoadedLog:
    return LoadedLog(name, "u", 1, "rows", json.dumps(struct(columns)))


def entries(name: str) -> LoadedLog:
    return LoadedLog(name, "u", 1, "entries", None)


def empty(name: str) -> LoadedLog:
    return LoadedLog(name, "u", 0, None, None)


def options(**given: str) -> SourceOptions:
    return parse_options({"metadata": "zk://h:1/l", **given}, {})


def columns(*logs: LoadedLog) -> str:
    return columns_of(options(logs="a,b"), together(logs)).simpleString()


def test_columns_of_the_first_log_come_first_and_then_what_others_add() -> None:
    assert columns(rows("a", x="integer", y="string"), rows("b", z="date", x="integer")) == "struct<x:int,y:string,z:date>"


def test_a_column_has_the_type_that_holds_the_values_of_all_logs() -> None:
    assert columns(rows("a", x="integer"), rows("b", x="long"), rows("c", x="short")) == "struct<x:bigint>"
    assert columns(rows("a", s={"p": "float"}), rows("b", s={"p": "double", "q": "integer"})) == (
        "struct<s:struct<p:double,q:int>>"
    )


def test_types_of_which_neither_holds_the_other_are_refused_with_both_logs_and_the_column() -> None:
    logs = [
        rows("a", y="integer"),
        rows("b", x="integer", s={"p": "long"}),
        rows("c", x="integer"),
        rows("d", s={"p": "double"}),
    ]
    with pytest.raises(SchemaMismatchError, match=r"log 'd': column 's.p' is double, in log 'b' it is bigint, and neither"):
        together(logs)


def test_names_that_differ_only_in_case_are_refused_with_both_logs() -> None:
    with pytest.raises(SchemaMismatchError, match="log 'c': together with log 'b' it has the columns 'day' and 'Day'"):
        together([rows("a", x="integer"), rows("b", day="date"), rows("c", Day="date")])


def test_a_log_that_holds_nothing_adds_no_columns_and_all_empty_ones_are_refused() -> None:
    assert columns(empty("a"), rows("b", x="integer")) == "struct<x:int>"
    with pytest.raises(ConfigError, match="each of the logs a, b is empty: it holds nothing"):
        columns(empty("a"), empty("b"))


def test_rows_and_entries_are_not_read_together() -> None:
    with pytest.raises(ConfigError, match="'a, b, c': log 'a' holds rows, log 'c' holds entries: read them apart"):
        together([rows("a", x="integer"), empty("b"), entries("c")])


def test_an_error_about_many_logs_names_a_few() -> None:
    assert together([entries(str(n)) for n in range(8)]).name == "0, 1, 2, 3, 4 and 3 more"


def test_a_pattern_must_match_the_whole_name_and_names_keep_their_order() -> None:
    assert matching("orders-(eu|us)", ["fr-orders-eu", "orders-eu", "orders-eu-old", "orders-us"]) == ["orders-eu", "orders-us"]


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="option 'logsPattern' is 'order': it matches the whole name of none of the 2 logs"):
        matching("order", ["orders", "my-order"])


def test_a_pattern_that_matches_too_many_logs_is_refused() -> None:
    names = [f"n{place:04}" for place in range(MAX_LOGS_READ + 1)]
    assert len(matching("n0.*", names)) == MAX_LOGS_READ
    with pytest.raises(ConfigError, match="it matches 1001 logs, one read takes 1000 at most"):
        matching("n.*", names)


def test_a_comma_is_part_of_the_name_that_load_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_bookkeeper: Any, _options: SourceOptions, name: str) -> LoadedLog:
        if name != "x,y":
            raise NoSuchLogError(name)
        return entries(name)

    monkeypatch.setattr(loaded_logs, "load_log", load)
    bookkeeper: Any = SimpleNamespace()
    assert [log.name for log in load_logs(bookkeeper, options(path="x,y")).logs] == ["x,y"]
    with pytest.raises(
        ConfigError, match=r"option 'path' is 'a,b': there is no log of this name, commas included: load\(\['a'"
    ):
        load_logs(bookkeeper, options(path="a,b"))
    with pytest.raises(NoSuchLogError, match="'a'"):
        load_logs(bookkeeper, options(path="a"))
