"""Every rule and situation that this version keeps is named by a test, or by DESIGN.md with why it cannot arise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checkout import ROOT

TESTS = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]
PROTOCOL_RULE = r"(?<!storage )(?<!log )\brule"
STORAGE_RULE = r"storage\s+rule"
LOG_RULE = r"log\s+rule"
SITUATIONS = (
    "Write, ensemble change, close",
    "Fencing and recovery",
    "Read, LAC",
    "Bookie storage",
    "AutoRecovery, metadata",
)
"""Headings of docs/rules.md."""


def _numbers(word: str, text: str) -> set[int]:
    """The numbers in phrases such as "protocol rules 16, 17 and 20 to 22", "Rule 3" (a protocol rule) or "situation 9"."""
    found: set[int] = set()
    for phrase in re.findall(rf"{word}s?\s+((?:\d+(?:\s*(?:,|and|to|-|–)\s*)*)+)", text, re.IGNORECASE):
        parts = re.findall(r"\d+|to|-|–", phrase)
        for before, part, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
            if part.isdigit():
                found.add(int(part))
            elif before.isdigit() and after.isdigit():
                found |= set(range(int(before), int(after) + 1))
    return found


def _named_by_tests(word: str) -> set[int]:
    return set().union(*(_numbers(word, path.read_text()) for path in TESTS))


def _listed(heading: str) -> set[int]:
    section = (ROOT / "docs/rules.md").read_text().split(f"### {heading}\n")[-1].split("\n### ")[0]
    return {int(number) for number in re.findall(r"^- \*\*(\d+)\*\*", section, re.MULTILINE)}


def _protocol_section() -> str:
    return (ROOT / "docs/rules.md").read_text().split("\n## Protocol\n")[1].split("\n## ")[0]


def test_the_protocol_rules_are_each_named_by_a_test_or_by_the_design() -> None:
    by_design = _numbers(PROTOCOL_RULE, (ROOT / "DESIGN.md").read_text().split("cannot arise here:")[1])
    listed = {int(number) for number in re.findall(r"^(\d+)\. ", _protocol_section(), re.MULTILINE)}
    assert listed >= set(range(1, 61))
    assert sorted(listed - _named_by_tests(PROTOCOL_RULE) - by_design) == []


def test_the_storage_rules_are_each_named_by_a_test() -> None:
    assert sorted(set(range(1, 16)) - _named_by_tests(STORAGE_RULE)) == []


def test_the_log_rules_are_each_named_by_a_test() -> None:
    assert sorted(set(range(1, 11)) - _named_by_tests(LOG_RULE)) == []


@pytest.mark.parametrize("heading", SITUATIONS)
def test_the_situations_are_each_named_by_a_test(heading: str) -> None:
    listed = _listed(heading)
    assert len(listed) > 3
    assert sorted(listed - _named_by_tests("situation")) == []
