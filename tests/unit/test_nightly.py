"""A nightly test names the cheaper tests of ``make test`` that hold the same: ``@pytest.mark.nightly(held_by=…)``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.checkout import ROOT

TIERS = ("cluster", "interop", "simulation", "spark")


def marks() -> list[tuple[str, ast.Call | None]]:
    """Where each mark stands, and its call."""
    found: list[tuple[str, ast.Call | None]] = []
    for path in sorted(one for tier in TIERS for one in (ROOT / "tests" / tier).rglob("*.py")):
        text = path.read_text()
        if ".nightly" not in text:
            continue
        tree = ast.parse(text)
        calls = {node.func: node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "nightly":
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", calls.get(node)))
    return found


def holders(call: ast.Call | None) -> list[str]:
    """The tests that ``held_by`` names, separated by commas."""
    given = {word.arg: word.value for word in call.keywords} if call else {}
    value = given.get("held_by")
    return [one.strip() for one in value.value.split(",")] if isinstance(value, ast.Constant) else []


def is_there(holder: str) -> bool:
    """``tests/…/test_file.py`` or ``tests/…/test_file.py::test_name``, or a folder."""
    file, _, name = holder.partition("::")
    path = Path(ROOT / file)
    return path.exists() and (not name or f"def {name}(" in path.read_text())


@pytest.mark.parametrize(("place", "call"), [pytest.param(*one, id=one[0]) for one in marks()])
def test_a_nightly_test_names_tests_that_hold_the_same_each_time(place: str, call: ast.Call | None) -> None:
    assert holders(call)
    assert [one for one in holders(call) if not is_there(one)] == []
