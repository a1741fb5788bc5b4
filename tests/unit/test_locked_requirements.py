"""The lock file for those who deploy names what the package needs, with versions that setup.cfg allows."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from tests.checkout import ROOT
from tests.unit.locked_requirements import LOCK, installed, normal, runtime_requirements


def locked() -> dict[str, str]:
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines)
    return found


def test_each_line_names_one_package_with_its_exact_version() -> None:
    for name, number in locked().items():
        assert name == normal(name)
        assert re.fullmatch(r"\d+(\.\w+)*", number), (name, number)


@pytest.mark.parametrize("needed", runtime_requirements(), ids=lambda one: one.name)
def test_every_runtime_dependency_is_locked_to_a_version_that_it_may_have(needed: Requirement) -> None:
    assert needed.specifier.contains(locked()[normal(needed.name)])


def test_what_the_dependencies_need_in_turn_is_locked_too_and_nothing_that_only_tests_need() -> None:
    """Versions here may be newer: the file says with which ones the tests passed, not which ones there are."""
    assert set(locked()) == set(installed())


def test_the_image_and_the_guide_install_with_the_lock_file() -> None:
    option = f"--constraint {LOCK.relative_to(ROOT).as_posix()}"
    assert option in LOCK.read_text()
    assert option in (ROOT / "docs" / "guide" / "install.md").read_text()
    assert (
        f"--constraint /src/{LOCK.relative_to(ROOT).as_posix()}"
        in (ROOT / "docs" / "deployment" / "kubernetes" / "Dockerfile").read_text()
    )
