"""The extras of setup.cfg name what the part of the package that they are for imports."""

from __future__ import annotations

import configparser
from importlib.metadata import requires

from packaging.requirements import Requirement

from tests.checkout import ROOT
from tests.unit.locked_requirements import normal, runtime_requirements


def extra(name: str) -> list[Requirement]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options.extras_require"][name].splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_extra_connect_has_all_that_pyspark_asks_for_spark_connect() -> None:
    named = {normal(one.name): one for one in (*runtime_requirements(), *extra("connect"))}
    asked = [Requirement(line) for line in requires("pyspark") or []]
    asked = [one for one in asked if one.marker is not None and one.marker.evaluate({"extra": "connect"})]
    assert asked
    for one in asked:
        lowest = min((part.version for part in named[normal(one.name)].specifier if part.operator == ">="), default="0")
        assert one.specifier.contains(lowest), f"{one} is not what {named[normal(one.name)]} may install"


def test_the_guide_says_how_to_install_each_extra_that_users_need() -> None:
    guide = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "guide").glob("*.md"))
    for name in ("connect", "pulsar", "iceberg"):
        assert f"[{name}]" in guide, name
