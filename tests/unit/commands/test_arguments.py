"""What an option takes, and the sentence for what it does not take."""

from __future__ import annotations

import argparse
import re

import pytest

from bk_spark.cli import build_parser
from bk_spark.commands.arguments import (
    client_host,
    count,
    directory,
    ledger_id,
    number,
    plain_text,
    whole_number,
)


def test_a_ledger_id_is_a_whole_number_of_63_bits() -> None:
    assert [ledger_id(text) for text in ("0", "9223372036854775807")] == [0, 2**63 - 1]


@pytest.mark.parametrize("text", ["-1", "1.0", "", "x", "9223372036854775808", "9" * 26])
def test_another_text_is_refused_with_the_text_itself(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=text or "''"):
        ledger_id(text)


@pytest.mark.parametrize("text", ["", " ", "0.0.0.0", "::", "[::]", "[::1", "::1::", "host:3181", "fe80::1%eth0"])
def test_a_bookie_is_not_registered_under_an_address_that_no_client_can_use(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{re.escape(text)}' (is no|has a zone)"):
        client_host(text)
    taken = ("10.0.0.1", "bookie-1.example", "::1", "[::1]", "0:0:0:0:0:0:0:1")
    assert [client_host(one) for one in taken] == ["10.0.0.1", "bookie-1.example", "::1", "::1", "::1"]


@pytest.mark.parametrize(
    "words", ["local", "bookie format", "bookie start", "bookie id", "inspect index", "cookie fix b-1", "cookie show b-1"]
)
@pytest.mark.parametrize("given", ["--data-dir=", "--data-dir=-1", "--data-dir=--json"])
def test_a_data_directory_is_neither_empty_nor_an_option(words: str, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([*words.split(), given])
    assert ended.value.code == 2
    assert "argument --data-dir: " in capsys.readouterr().err
    assert directory("./-1") == "./-1"


@pytest.mark.parametrize("bookies", ["0", "-1", "101", "x"])
def test_a_local_cluster_has_bookies_and_no_more_than_a_machine_runs(bookies: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["local", f"--bookies={bookies}"])
    assert ended.value.code == 2
    assert "argument --bookies: " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1_0", "\u0661\u0662", " 1", "1 ", "1e3", "", "nan", "64m", "9" * 5000])
def test_counts_take_plain_digits_alone(text: str) -> None:
    for kind in (count, ledger_id, whole_number):
        with pytest.raises(argparse.ArgumentTypeError, match="whole number"):
            kind(text)


def test_numbers_are_plain_and_finite() -> None:
    assert [number(text) for text in ("60", "0.5", "-.5", "1e3")] == [60, 0.5, -0.5, 1000]
    for text in ("nan", "inf", "-inf", "1_0", "64m", "", ".", " 1", "\u0661"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"is not a number, such as 60 or 0\.5"):
            number(text)


def test_a_text_that_the_locale_cannot_read_is_utf_8() -> None:
    assert plain_text("größe") == plain_text("größe".encode().decode("ascii", "surrogateescape")) == "größe"
    with pytest.raises(argparse.ArgumentTypeError, match="is no text"):
        plain_text("x\udcff")
