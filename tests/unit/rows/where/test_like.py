"""LIKE: every form of a pattern, also for strings that are not UTF-8. tests/spark/test_where.py asks Spark itself."""

from __future__ import annotations

import string

import pyarrow as pa
import pytest

from bk_spark.rows.statistics import ColumnStatistics
from bk_spark.rows.where.like import MAX_PATTERN, Pattern, pattern_of
from bk_spark.rows.where.tree import UnfitLiteral


def strings(values: list[bytes | None]) -> pa.Array:
    """A column of strings, of any bytes."""
    return pa.array(values, pa.binary()).view(pa.string())


def matches(values: list[bytes | None], *literals: str) -> list[bytes | None]:
    pattern = pattern_of(literals)
    assert isinstance(pattern, Pattern)
    mask = pattern.mask(strings(values)).to_pylist()
    return [value for value, found in zip(values, mask, strict=True) if found]


TEXTS = [None, b"", b"a", b"ab", b"aba", b"abc", b"a\nc", b"xab", b"%", b"a%", b"a_c", b"\\", "aéc".encode(), "a😀c".encode()]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("ab%", ["ab", "aba", "abc"]),
        ("%ab", ["ab", "xab"]),
        ("%b%", ["ab", "aba", "abc", "xab"]),
        ("ab%ba", []),
        ("a%a", ["aba"]),
        ("a%%c", ["abc", "a\nc", "a_c", "aéc", "a😀c"]),
        ("a_c", ["abc", "a\nc", "a_c", "aéc", "a😀c"]),
        ("_", ["a", "%", "\\"]),
        ("a%_", ["ab", "aba", "abc", "a\nc", "a%", "a_c", "aéc", "a😀c"]),
        (r"a\_c", ["a_c"]),
        (r"a\%", ["a%"]),
        (r"\%%", ["%"]),
        (r"\\", ["\\"]),
        ("%é%", ["aéc"]),
        ("a😀%", ["a😀c"]),
        ("a😀%c", ["a😀c"]),
        ("_😀_", ["a😀c"]),
    ],
)
def test_a_pattern_matches_the_whole_value(pattern: str, expected: list[str]) -> None:
    assert matches(TEXTS, pattern) == [text.encode() for text in expected]


def test_percent_alone_matches_everything_but_null() -> None:
    for pattern in ("%", "%%"):
        assert matches(TEXTS, pattern) == TEXTS[1:]


def test_what_a_value_starts_with_and_ends_with_may_not_overlap() -> None:
    assert matches(["aéa".encode(), "aééa".encode()], "aé%éa") == ["aééa".encode()]


def test_another_escape_character_can_be_named() -> None:
    assert matches(TEXTS, "a!%", "!") == [b"a%"]
    assert matches(TEXTS, "a!_c", "!") == [b"a_c"]
    assert matches([b"!", b"\\", b"x"], "!!", "!") == [b"!"]
    assert matches(TEXTS, "%%", "%") == [b"%"]
    assert matches([b"\\x", b"x"], r"\%", "!") == [b"\\x"]


def test_a_pattern_without_wildcards_is_an_equality() -> None:
    assert pattern_of(("abc",)) == "abc"
    assert pattern_of(("",)) == ""


@pytest.mark.parametrize("character", [*string.printable, "\0", "é", "\ufffd"])
def test_every_character_stands_for_itself_in_every_form(character: str) -> None:
    if character in "%_\\":
        return
    value, other = f"ä{character}ö".encode(), f"ä{character}{character}ö".encode()
    for pattern in (f"ä{character}_", f"_{character}%ö", f"ä{character}%ö", f"%{character}ö", f"ä{character}%"):
        assert matches([value, "äö".encode(), "ä".encode(), "ö".encode()], pattern) == [value]
    assert matches([value, other], f"_{character}_") == [value]


# what Java decodes to one, two, three replacement characters
ODD = [b"\xff", b"\xed\xa0\x80", b"\xed\xa0", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3("]
TWO, THREE = [b"\xc0\x80", b"\xe0\x80", b"\xed\xa0\x80\xff"], [b"\xf0\x80\x80", b"\xf4\x90\x80"]


def test_a_malformed_part_of_a_string_is_one_character_as_in_java() -> None:
    assert matches([*ODD, *TWO, *THREE, "é".encode()], "_") == [*(odd for odd in ODD if odd != b"\xc3("), "é".encode()]
    assert matches([*ODD, *TWO, *THREE], "__") == [b"\xc3(", *TWO]
    assert matches([*ODD, *TWO, *THREE], "___") == THREE
    assert matches([b"a\xff", b"ab"], "_\ufffd") == [b"a\xff"]


def test_the_simple_forms_look_at_bytes() -> None:
    values = [b"a\xff", b"\xffa", b"x\xffax\xff"]
    assert matches(values, "a%") == [b"a\xff"]
    assert matches(values, "%a") == [b"\xffa"]
    assert matches(values, "%a%") == values
    assert matches(values, "%\ufffd%") == []


def test_a_first_byte_takes_as_many_bytes_as_it_announces_where_characters_are_counted() -> None:
    assert matches([b"axyz", b"a\xf0xyz", b"a\xffxyz"], "a%xyz") == [b"axyz", b"a\xffxyz"]


def known(low: str, high: str) -> ColumnStatistics:
    return ColumnStatistics(0, low.encode(), high.encode())


@pytest.mark.parametrize(
    ("pattern", "low", "high", "may"),
    [
        ("b%", "a", "c", True),
        ("b%", "b", "b", True),
        ("b%", "c", "d", False),
        ("b%", "a", "azz", False),
        ("bc%", "a", "b", False),
        ("bc%", "b", "bcd", True),
        ("bc%", "bcd", "bce", True),
        ("bc%x", "bd", "c", False),
        (r"b\%%", "b%", "b%", True),
        (r"b\%%", "b&", "c", False),
        ("b_", "c", "d", False),
        ("_b", "c", "d", True),
        ("%b", "c", "d", True),
        ("b\ufffd_", "ba", "bz", True),
        ("b\ufffd_", "c", "d", False),
    ],
)
def test_an_entry_may_match_where_its_bounds_allow_what_the_pattern_starts_with(pattern, low, high, may) -> None:
    found = pattern_of((pattern,))
    assert isinstance(found, Pattern)
    assert found.may_match(known(low, high)) is may
    assert found.may_match(ColumnStatistics(0))


def test_an_entry_may_differ_unless_all_its_values_start_as_the_pattern_says() -> None:
    starts, ends, both, general = (pattern_of((text,)) for text in ("b%", "%b", "b%c", "b_"))
    for pattern in (starts, ends, both, general):
        assert isinstance(pattern, Pattern)
        assert pattern.may_differ(known("a", "b"))
        assert pattern.may_differ(known("b", "c"))
        assert pattern.may_differ(ColumnStatistics(0))
        assert pattern.may_differ(known("ba", "bz")) is (pattern is not starts)


@pytest.mark.parametrize(
    ("literals", "problem"),
    [
        ((5,), "LIKE takes a pattern in quotes such as 'abc%'"),
        ((r"a\b",), "in a pattern \\ stands before %, _ or \\: write \\\\ for itself"),
        (("a\\",), "in a pattern \\ stands before"),
        (("a!b", "!"), "in a pattern ! stands before %, _ or !: write !! for itself"),
        (("a", ""), "ESCAPE takes one character in quotes"),
        (("a", "ab"), "ESCAPE takes one character in quotes"),
        (("a", "😀"), "ESCAPE takes one character in quotes, up to U+FFFF"),
        (("a", True), "ESCAPE takes one character in quotes"),
        (("a" * (MAX_PATTERN + 1),), "a pattern has 1000 characters at most"),
    ],
)
def test_a_pattern_that_spark_refuses_is_refused(literals, problem) -> None:
    with pytest.raises(UnfitLiteral) as refused:
        pattern_of(literals)
    assert problem in str(refused.value)


@pytest.mark.parametrize("unit", ["%a", "_", r"\%", "_é", "_.", "(_", "_%"])
def test_the_longest_patterns_compile_and_take_little_time(unit: str) -> None:
    value = b"a" * 5000
    assert matches([b"", value + b"\xff", None], unit * (MAX_PATTERN // len(unit))) in ([], [value + b"\xff"])
