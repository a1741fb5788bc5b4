"""What ``log read --output`` and ``--format`` mean together."""

from __future__ import annotations

import pytest

from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.row_files.named_file import FORMATS, SUFFIXES
from bk_spark.commands.row_files.output_file import OutputFile, output_file


@pytest.mark.parametrize(("end", "form"), SUFFIXES.items())
def test_the_name_says_the_format_as_for_an_append(end: str, form: str) -> None:
    for path in (f"x{end}", f"a.b/x{end.upper()}"):
        assert output_file(path, None) == output_file(path, form) == OutputFile(path, form)


@pytest.mark.parametrize(("path", "form"), [("x.csv.gz", "csv"), ("x.jsonl.bz2", "json"), ("x.tsv.zst", "tsv")])
def test_texts_may_be_compressed(path: str, form: str) -> None:
    found = output_file(path, None)
    assert (found.form, bool(found.compression)) == (form, True)
    assert output_file("x.gz", form).form == form


@pytest.mark.parametrize("path", ["x", "x.txt", "x.xlsx", "x.gz", ".csv", "x.parquet.gz", "/dev/null", ""])
def test_a_name_that_says_nothing_is_wrong_usage_unless_the_format_is_given(path: str) -> None:
    with pytest.raises(UsageError, match=r"its name must end in one of .*or give --format"):
        output_file(path, None)
    if "parquet" not in path and ".gz" not in path:
        assert [output_file(path, form).form for form in FORMATS if path != ".csv"] == ([] if path == ".csv" else list(FORMATS))


@pytest.mark.parametrize(
    ("path", "form"), [("x.parquet", "csv"), ("x.csv", "table"), ("x.csv.gz", "json"), ("x.arrow", "parquet")]
)
def test_a_format_that_is_given_wins_over_the_name_and_that_is_said(path: str, form: str, capsys) -> None:
    assert output_file(path, form).form == form
    assert f"is written as {form}, as --format says, though its name says" in capsys.readouterr().err


def test_a_dash_is_standard_output() -> None:
    assert output_file("-", None) == output_file(None, None) == OutputFile(None, None)
    assert output_file("-", "csv").path is None
