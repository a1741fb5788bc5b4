"""What an option takes, and the sentence for what it does not take."""

from __future__ import annotations

import argparse

import pytest

from bk_spark.commands.arguments import ledger_id


def test_a_ledger_id_is_a_whole_number_of_63_bits() -> None:
    assert [ledger_id(text) for text in ("0", "9223372036854775807")] == [0, 2**63 - 1]


@pytest.mark.parametrize("text", ["-1", "1.0", "", "x", "9223372036854775808", "9" * 26])
def test_another_text_is_refused_with_the_text_itself(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=text or "''"):
        ledger_id(text)
