"""Results of single tests, and what they come to."""

from __future__ import annotations

import json
from pathlib import Path

from tests.apache_suite.plan import read_plan
from tests.apache_suite.report import Report, class_report
from tests.apache_suite.runner import Result, SuiteTest, merge, read_results
from tests.unit.apache_suite.test_plan import FILES, SMALL, TWO


def result(test: str, outcome: str, problem: str = "") -> Result:
    return Result(TWO, test, outcome, 1, problem)


def report(*results: Result) -> Report:
    plan = read_plan(SMALL)
    tests = SuiteTest(TWO, True, ("testFiles[0]", "testFiles[1]", "testA", "testB"))
    whole = class_report(plan, SuiteTest(FILES, True, ("testC",)), [])
    return Report("ours", (class_report(plan, tests, results), whole))


def test_the_percentage_is_of_applicable_tests_that_do_not_skip_themselves() -> None:
    one = report(result("testA", "PASSED"), result("testB", "FAILED"), result("testD", "SKIPPED"))
    assert one.percentage == 50.0
    assert one.left_out == 3
    assert "1 of 2 applicable tests passed (50.0 %)" in one.summary()


def test_the_table_names_failures_and_reasons() -> None:
    text = report(result("testA", "PASSED"), result("testB", "FAILED", "a reason to fail")).table()
    assert "failed testB: a reason to fail" in text
    assert "2 not applicable: reads files" in text
    assert "reads files: bookie.Files (1)" in text


def test_json_has_every_result() -> None:
    data = json.loads(report(result("testA", "PASSED")).as_json())
    assert data["totals"]["not_applicable"] == 3
    assert data["classes"][0]["results"][0]["test"] == "testA"


def test_a_second_try_counts_and_is_told() -> None:
    first = [result("testA", "PASSED"), result("testB", "FAILED"), result("testD", "FAILED")]
    merged = merge(first, [result("testB", "PASSED")])
    assert {one.test: (one.outcome, one.tries) for one in merged} == {
        "testA": ("PASSED", 1),
        "testB": ("PASSED", 2),
        "testD": ("FAILED", 1),
    }
    assert report(*merged).second_tries == 1


def test_a_class_that_failed_as_a_whole_is_replaced_by_its_tests() -> None:
    merged = merge([result("(class)", "FAILED")], [result("testA", "PASSED")])
    assert [one.test for one in merged] == ["testA"]


def test_a_test_that_did_not_end_has_failed(tmp_path: Path) -> None:
    lines = tmp_path / "results"
    lines.write_text("testA\tBEGUN\t0\t\ntestA\tPASSED\t12\t\ntestB\tBEGUN\t0\t\n")
    passed, lost = read_results(TWO, lines, "killed")
    assert (passed.outcome, passed.ms) == ("PASSED", 12)
    assert (lost.test, lost.outcome, lost.problem) == ("testB", "FAILED", "killed")
