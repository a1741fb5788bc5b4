"""Which of Apache's test classes are run, and why others are not: what ``classes.toml`` says."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apache_suite.runner import SuiteTest

FILE = Path(__file__).resolve().parent / "classes.toml"

PACKAGE = "org.apache.bookkeeper."


@dataclass(frozen=True)
class Plan:
    classes: tuple[str, ...]
    """Full names of the classes of which at least one test can be run with bookies in processes of their own."""
    left_out: Mapping[tuple[str, str], str]
    """Why a test is not applicable, by class and method; the method is ``*`` where no test of the class is."""

    def reason(self, class_name: str, method: str) -> str | None:
        """Why a test of a class is not applicable; None if it is."""
        return self.left_out.get((class_name, "*")) or self.left_out.get((class_name, method))

    def left_out_methods(self, class_name: str) -> list[str]:
        return sorted(method for name, method in self.left_out if name == class_name)

    def problems(self, tests: Mapping[str, SuiteTest]) -> list[str]:
        """Where the plan and the jar differ: nothing that starts bookies may go unnamed, and no name may mean nothing."""
        named = set(self.classes) | {name for name, _ in self.left_out}
        found = [f"{name} starts bookies and is not in the plan" for name, one in tests.items() if one.has_bookies]
        unnamed = [text for text in found if text.split()[0] not in named]
        unknown = [f"{name} is in the plan and not in the jar" for name in sorted(named - tests.keys())]
        pairs = sorted((name, method) for name, method in self.left_out if method != "*" and name in tests)
        missing = [f"{name} has no test {method}" for name, method in pairs if method not in tests[name].methods]
        return unnamed + unknown + missing


def read_plan(text: str | None = None) -> Plan:
    """``text`` is the file's content, by default that of the real one. Raises ValueError where it contradicts itself."""
    data = tomllib.loads(FILE.read_text() if text is None else text)
    classes = tuple(full for package, names in data["run"].items() for full in _full(package, names))
    left_out: dict[tuple[str, str], str] = {}
    for entry in data.get("not_applicable", []):
        for key in _left_out(entry):
            if key in left_out or (key[1] == "*") == (key[0] in classes):
                raise ValueError(f"the plan contradicts itself about {key[0]} {key[1]}")
            left_out[key] = str(entry["reason"])
    if len(set(classes)) != len(classes):
        raise ValueError("the plan names a class twice")
    return Plan(classes, left_out)


def _left_out(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    whole = [(full, "*") for package, names in entry.get("classes", {}).items() for full in _full(package, names)]
    single = [(PACKAGE + name, method) for name, methods in entry.get("tests", {}).items() for method in methods]
    return whole + single


def _full(package: str, names: Sequence[str]) -> list[str]:
    return [f"{PACKAGE}{package}.{name}" for name in names]
