"""The list of Apache's tests, and how it is read."""

from __future__ import annotations

import pytest

from tests.apache_suite.plan import read_plan
from tests.apache_suite.runner import SuiteTest

SMALL = """
[run]
client = ["One", "Two"]

[[not_applicable]]
reason = "reads files"
[not_applicable.classes]
bookie = ["Files"]
[not_applicable.tests]
"client.Two" = ["testFiles"]
"""

ONE, TWO, FILES = (f"org.apache.bookkeeper.{name}" for name in ("client.One", "client.Two", "bookie.Files"))


def suite_test(name: str, *tests: str, has_bookies: bool = True) -> SuiteTest:
    return SuiteTest(name, has_bookies, tests)


def test_the_plan_itself_can_be_read() -> None:
    assert read_plan().classes


def test_a_reason_holds_for_a_method_or_for_a_whole_class() -> None:
    plan = read_plan(SMALL)
    assert plan.classes == (ONE, TWO)
    assert plan.reason(FILES, "testAny") == plan.reason(TWO, "testFiles") == "reads files"
    assert plan.reason(TWO, "testOther") is None


@pytest.mark.parametrize(
    "wrong",
    [
        SMALL.replace('"Files"', '"Files", "Files"'),
        SMALL.replace('"testFiles"', '"testFiles", "testFiles"'),
        SMALL.replace('bookie = ["Files"]', 'client = ["One"]'),
        SMALL.replace('"client.Two"', '"client.Three"'),
        SMALL.replace('"One"', '"Two"'),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="the plan"):
        read_plan(wrong)


def test_a_class_that_starts_bookies_is_in_the_plan_or_reported() -> None:
    tests = {ONE: suite_test(ONE, "testA"), TWO: suite_test(TWO, "testFiles[0]"), FILES: suite_test(FILES, "testB")}
    assert read_plan(SMALL).problems(tests) == []
    more = {**tests, "org.apache.bookkeeper.New": suite_test("org.apache.bookkeeper.New", "testC")}
    assert read_plan(SMALL).problems(more) == ["org.apache.bookkeeper.New starts bookies and is not in the plan"]
    mocked = {**tests, "org.apache.bookkeeper.New": suite_test("org.apache.bookkeeper.New", "testC", has_bookies=False)}
    assert read_plan(SMALL).problems(mocked) == []


def test_names_that_the_jar_lacks_are_reported() -> None:
    tests = {ONE: suite_test(ONE, "testA"), TWO: suite_test(TWO, "testOther")}
    assert read_plan(SMALL).problems(tests) == [f"{FILES} is in the plan and not in the jar", f"{TWO} has no test testFiles"]
