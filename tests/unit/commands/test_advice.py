"""Commands that texts advise work as they are printed. Texts are read in the source, with a number for what is filled in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bk_spark
from tests.unit.documented_commands import problem_of_command

PACKAGE = Path(bk_spark.__file__).parent
COMMAND = re.compile(r"'bk-spark ([^']+)'|^bk-spark ([a-z][^']*)$|run bk-spark ([a-z -]+[a-z])")
FILLED_IN = "7"


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module that are no docstrings, each with its line."""
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        return
    if isinstance(tree, ast.JoinedStr):
        yield tree.lineno, "".join(str(one.value) if isinstance(one, ast.Constant) else FILLED_IN for one in tree.values)
        return
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.lineno, re.sub(r"\{\w+\}", FILLED_IN, tree.value)
    for child in ast.iter_child_nodes(tree):
        yield from texts(child)


def advised(text: str) -> list[str]:
    return [next(filter(None, found.groups())) for found in COMMAND.finditer(text)]


@pytest.fixture(scope="module")
def advice() -> list[tuple[str, str]]:
    """Where a command is advised, and the command."""
    return [
        (f"{file.relative_to(PACKAGE)}:{line}", command)
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, text in texts(ast.parse(file.read_text()))
        for command in advised(text)
    ]


def test_every_command_that_is_advised_parses_as_it_is_printed(advice) -> None:
    problems = [f"{place}: {problem}" for place, command in advice if (problem := problem_of_command(command))]
    assert not problems, "\n".join(problems)


def test_advice_is_found_in_errors_help_and_the_dashboard(advice) -> None:
    assert len(advice) > 40
    assert {place.split("/")[0] for place, _ in advice} >= {"bookie", "commands", "dashboard", "errors", "log", "metadata"}


@pytest.mark.parametrize("text", ["'bk-spark cookie fix 7'", "run bk-spark cluster rise-ledger-ids", "bk-spark bookie status"])
def test_a_command_that_lacks_something_is_found(text: str) -> None:
    assert [problem_of_command(command) for command in advised(text)] != [None]
