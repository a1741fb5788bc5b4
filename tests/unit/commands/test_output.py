"""How commands print tables of any length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.commands.output import print_pages, print_records


def test_a_page_is_printed_before_the_next_one_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A listing of millions holds one page; a wider page widens the columns from there on."""
    seen: list[str] = []

    def pages() -> Iterator[list[dict[str, object]]]:
        yield [{"id": 1, "state": "OPEN"}]
        seen.append(capsys.readouterr().out)
        yield []
        yield [{"id": 1000, "state": None}]

    print_pages(pages(), ["id", "state"], as_json=False)
    assert seen == ["ID  STATE\n1   OPEN\n"]
    assert capsys.readouterr().out == "1000  -\n"


def test_without_records_there_is_a_headline_and_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_pages([], ["id"], as_json=False)
    assert capsys.readouterr().out == "ID\n"
    print_records([], ["id"], as_json=False)
    assert capsys.readouterr().out == "ID\n"
    print_pages([], ["id"], as_json=True)
    assert capsys.readouterr().out == ""


def test_json_has_a_line_for_each_record_of_all_pages(capsys: pytest.CaptureFixture[str]) -> None:
    print_pages([[{"id": 1, "more": 2}], [{"id": 3}]], ["id"], as_json=True)
    assert capsys.readouterr().out == '{"id": 1, "more": 2}\n{"id": 3}\n'
