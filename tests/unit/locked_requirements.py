"""The packages that this environment runs with: ``python -m tests.unit.locked_requirements`` prints the lock file of versions.

They are the runtime dependencies of setup.cfg and what these need in turn, on this Python and system, without what only tests
need. Run it in an environment in which ``make test`` has passed.
"""

from __future__ import annotations

import configparser
import platform
import re
from importlib.metadata import requires, version

from packaging.requirements import Requirement

from tests.checkout import ROOT

LOCK = ROOT / "docs" / "deployment" / "requirements.lock"

_HEAD = """\
# The versions of bk_spark's runtime dependencies with which its tests passed, on Python {python}:
#   pip install --constraint docs/deployment/requirements.lock .
# Made by: python -m tests.unit.locked_requirements > docs/deployment/requirements.lock
"""


def runtime_requirements() -> list[Requirement]:
    """What setup.cfg asks for."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return [Requirement(line) for line in config["options"]["install_requires"].splitlines() if line]


def normal(name: str) -> str:
    """A package's name as pip compares it. Ref: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """Name → installed version, of the runtime dependencies and all that they need here."""
    found: dict[str, str] = {}
    left = runtime_requirements()
    while left:
        one = left.pop()
        if normal(one.name) in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found[normal(one.name)] = version(one.name)
        left += [Requirement(text) for text in requires(one.name) or ()]
    return found


def lock_text() -> str:
    lines = [f"{name}=={number}\n" for name, number in sorted(installed().items())]
    return _HEAD.format(python=".".join(platform.python_version_tuple()[:2])) + "".join(lines)


if __name__ == "__main__":
    print(lock_text(), end="")
