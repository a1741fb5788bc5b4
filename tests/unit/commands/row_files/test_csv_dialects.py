"""``log append`` takes CSV that all readers read the same, and refuses the rest with the row."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bk_spark.commands.row_files import csv_source
from bk_spark.commands.row_files.csv_quotes import CheckedQuotes
from bk_spark.errors import ConfigError
from tests.budget import examples
from tests.unit.commands.row_files.files import Folder, appended

BACKSLASH = "option('escape', '\"')"


@pytest.fixture
def put(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def refusal(path: Path, **options) -> str:
    with pytest.raises(ConfigError) as refused:
        appended(path, **options)
    said = str(refused.value)
    assert path.name in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ('2,"x"y', "row 3 has text behind the quote that closes a value: '2,\"x\"y'"),
        ('2,"x" ', "row 3 has text behind the quote"),
        ('2,""x""', "row 3 has text behind the quote"),
        ('2,"x"y"z"', "row 3 has text behind the quote"),
        ('2,"x"\n\n3,"y"z', "row 5 has text behind the quote"),
        ('2,"x\n\r\ny"\n3,"y"z', "row 4 has text behind the quote"),
        ('2,"say \\"hi\\" now"', BACKSLASH),
        ('2,"a \\"b, c\\" d"', BACKSLASH),
        ('2,"\\""\n3,"\\""', "row 3 has text behind the quote"),
        ('2,say \\"hi', BACKSLASH),
        ('2,"a\\",b"', "a quote inside of a value without quotes"),
        ('2,5" pipe', "row 3 has a quote inside of a value without quotes: '2,5\" pipe'"),
        ('2,x"y"z', "row 3 has a quote inside of a value without quotes"),
        ('2, "x,y"', "row 3 has a quote inside of a value without quotes"),
        ('2;"x"', "a quote inside of a value without quotes"),
        ('2,"open', "a quote is open at its end"),
        ('2,"\\"', None),
        ('2,"x ""y"" z"', None),
        ('2,""""', None),
        ("2,'x y'", None),
        ('"2","\\N"', None),
    ],
    ids=lambda value: repr(value)[:40],
)
@pytest.mark.parametrize(("form", "mark"), [("csv", ","), ("tsv", "\t")])
def test_quotes_that_readers_take_for_different_things_are_refused_with_the_row(put, rows, says, form, mark):
    path = put(f"x.{form}", f"a{mark}b\n1{mark}x\n{rows.replace(',', mark)}\n".replace("y\tz", "y,z"))
    if says is None:
        assert appended(path)["a"].to_pylist() == [1, 2]
    else:
        assert says.replace(",", mark) in refusal(path).replace("\\t", "\t").replace(BACKSLASH, BACKSLASH.replace(",", mark))


def test_a_wrong_quote_in_the_first_row_is_refused_before_its_names_are_used(put):
    for header in ('"a"b,c', 'a,"b" ', 'a,b"c"'):
        assert "row 1 has" in refusal(put("x.csv", f"{header}\n1,2\n"), log=pa.schema([("ab", pa.int64())]))


CELLS = st.text(st.sampled_from('ab\\",;\t\r\n'), max_size=5)


@examples(40, HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    ends=st.sampled_from(["\n", "\r\n"]),
    block_bytes=st.integers(48, 80),
)
def test_what_python_writes_is_read_the_same_wherever_a_block_ends(rows, quoting, ends, block_bytes, tmp_path: Path):
    if quoting == csv.QUOTE_MINIMAL:  # Python does not quote a return
        rows = [(a.replace("\r", ""), b.replace("\r", "")) for a, b in rows]
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=quoting, lineterminator=ends)
    writer.writerows([("a", "b"), *rows])
    path = Folder(tmp_path)("x.csv", out.getvalue())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_source, "BLOCK_BYTES", block_bytes)
        read = appended(path, types="a:string,b:string").to_pylist()
    assert [(row["a"] or "", row["b"] or "") for row in read] == rows


def allowed(text: str) -> bool:
    """By the grammar of RFC 4180, one character after the other."""
    state = "begin"
    for one in text:
        if state == "quoted":
            state = "closed" if one == '"' else "quoted"
        elif one in ",\r\n":
            state = "begin"
        elif one == '"' and state in ("begin", "closed"):
            state = "quoted"
        elif one == '"' or state == "closed":
            return False
        else:
            state = "plain"
    return True


@examples(300)
@given(text=st.text(st.sampled_from('a",\n\r'), max_size=12), size=st.integers(1, 13))
def test_quotes_are_judged_as_the_grammar_does_in_blocks_of_any_size(text, size):
    checked = CheckedQuotes(io.BytesIO(text.encode()), ",")
    try:
        while checked.read(size):
            pass
        is_taken = True
    except ValueError:
        is_taken = False
    assert is_taken == allowed(text)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("x.csv", "a;b\n1;x\n", "if ';' separates its values"),
        ("x.csv", "a|b\n1|x\n", "if '|' separates its values"),
        ("x.csv", "a\tb\n1\tx\n", "--format tsv"),
        ("x.csv", "\ufeff\n a;b \n1,5;2\n", "if ';' separates its values"),
        ("x.csv", '"a";"b"\n"1";"x"\n', "if ';' separates its values"),
        ("x.csv", '"a"\t"b"\n"1"\t"x"\n', "--format tsv"),
        ("x.tsv", "a,b\n1,x\n", "--format csv"),
        ("x.csv", "a,b,\n1,x,\n", "column 3 of 3 has no name"),
        ("x.csv", "a,,b\n1,2,3\n", "column 2 of 3 has no name"),
        ("x.csv", ",a\n0,1\n", "column 1 of 2 has no name"),
        ("x.csv", '"","a"\n"0",1\n', "column 1 of 2 has no name"),
        ("x.csv", "a, \n0,1\n", "column 2 of 2 has no name"),
        ("x.csv", '""\n1\n', "column 1 of 1 has no name"),
        ("x.csv", "a\0b,c\n1,2\n", "NUL"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_first_row_that_is_no_row_of_names_is_refused(put, name, data, says):
    assert says in refusal(put(name, data))


def test_names_like_those_are_taken_where_they_are_meant(put):
    assert appended(put("x.csv", '"a;b"\n1\n')).to_pydict() == {"a;b": [1]}
    assert appended(put("x.csv", "a;b,c|d\n1,2\n")).to_pydict() == {"a;b": [1], "c|d": [2]}
    assert appended(put("x.csv", '"",a\n1,2\n'), log=pa.schema([("", pa.int64()), ("a", pa.int64())])).to_pydict() == {
        "": [1],
        "a": [2],
    }
