"""What the runs of all classes come to, as a table and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.apache_suite.plan import PACKAGE, Plan
from tests.apache_suite.runner import Result, SuiteTest, method_of


@dataclass(frozen=True)
class ClassReport:
    name: str
    results: tuple[Result, ...]
    left_out: Mapping[str, int]
    """Reason → number of tests that are not applicable because of it."""

    def count(self, outcome: str) -> int:
        return sum(result.outcome == outcome for result in self.results)


@dataclass(frozen=True)
class Report:
    bookies: str
    classes: tuple[ClassReport, ...]

    def count(self, outcome: str) -> int:
        return sum(one.count(outcome) for one in self.classes)

    @property
    def left_out(self) -> int:
        return sum(sum(one.left_out.values()) for one in self.classes)

    @property
    def second_tries(self) -> int:
        """Tests that failed first, and passed when they were run again."""
        return sum(result.tries > 1 and result.outcome == "PASSED" for one in self.classes for result in one.results)

    @property
    def percentage(self) -> float:
        """Of the applicable tests that ran to an end, how many passed."""
        ended = self.count("PASSED") + self.count("FAILED")
        return 100 * self.count("PASSED") / ended if ended else 0.0

    def table(self) -> str:
        rows = [_row(one) for one in sorted(self.classes, key=lambda one: one.name) if one.results]
        whole = [(one.name, one.left_out) for one in self.classes if not one.results and one.left_out]
        text = [f"{'class':<62} passed failed skipped n.a.", *rows]
        text += ["", "Not applicable, whole classes:", *_reasons(whole)] if whole else []
        text += ["", self.summary()]
        return "\n".join(text)

    def summary(self) -> str:
        passed, failed = self.count("PASSED"), self.count("FAILED")
        return (
            f"{self.bookies}: {passed} of {passed + failed} applicable tests passed ({self.percentage:.1f} %), "
            f"{self.second_tries} of them when run again; {self.count('SKIPPED')} skip themselves, "
            f"{self.left_out} are not applicable"
        )

    def as_json(self) -> str:
        totals = {outcome.lower(): self.count(outcome) for outcome in ("PASSED", "FAILED", "SKIPPED")}
        totals |= {"not_applicable": self.left_out, "second_tries": self.second_tries}
        data = {"bookies": self.bookies, "totals": totals, "percentage": round(self.percentage, 2)}
        return json.dumps({**data, "classes": [asdict(one) for one in self.classes]}, indent=1)


def class_report(plan: Plan, test: SuiteTest, results: Sequence[Result]) -> ClassReport:
    """``results`` are those of the tests that were run; the plan says why the others were not."""
    reasons = [plan.reason(test.name, method_of(one)) for one in test.tests]
    return ClassReport(test.name, tuple(results), dict(Counter(reason for reason in reasons if reason is not None)))


def _row(one: ClassReport) -> str:
    counts = [one.count("PASSED"), one.count("FAILED"), one.count("SKIPPED"), sum(one.left_out.values())]
    lines = [f"{_short(one.name):<62} " + " ".join(f"{count:>6}" for count in counts)]
    for result in one.results:
        if result.outcome == "FAILED":
            lines.append(f"    failed {result.test}: {result.problem[:200]}")
    lines += [f"    {count} not applicable: {reason}" for reason, count in one.left_out.items()]
    return "\n".join(lines)


def _reasons(classes: Sequence[tuple[str, Mapping[str, int]]]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reasons in classes:
        for reason, count in reasons.items():
            by_reason.setdefault(reason, []).append(f"{_short(name)} ({count})")
    return [f"  {reason}: {', '.join(names)}" for reason, names in by_reason.items()]


def _short(name: str) -> str:
    return name.removeprefix(PACKAGE)
