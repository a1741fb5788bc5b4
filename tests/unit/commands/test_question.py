"""Who is asked before a deletion."""

from __future__ import annotations

import argparse
import io
import sys

import pytest

from bk_spark.commands.program.question import check_wanted
from bk_spark.errors import ConfigError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("yes", "stdin", "stdout"),
    [(True, Terminal(), Terminal()), (False, io.StringIO(), Terminal()), (False, Terminal(), io.StringIO())],
)
def test_scripts_and_who_says_yes_are_not_asked(monkeypatch, capsys, yes, stdin, stdout) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "stdout", stdout)
    check_wanted(argparse.Namespace(yes=yes), "log", "orders")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("answer", "is_wanted"), [("yes", True), ("Y", True), ("", False), ("no", False), ("orders", False)])
def test_who_sits_at_a_terminal_is_asked(monkeypatch, capsys, answer, is_wanted) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer + "\n"))
    monkeypatch.setattr(sys, "stdout", Terminal())
    if is_wanted:
        check_wanted(argparse.Namespace(yes=False), "log", "orders")
    else:
        with pytest.raises(ConfigError, match="it was not deleted"):
            check_wanted(argparse.Namespace(yes=False), "log", "orders")
    assert capsys.readouterr().err == "delete log orders for good? Type yes: "
