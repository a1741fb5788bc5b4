"""For a run of the unit tests: loads a mutant before they are collected, or writes down which test reaches which line.

The environment says which: ``BK_SPARK_MUTANT`` is "path:number" of a site, ``BK_SPARK_REACH`` the file to write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests.checkout import ROOT
from tests.simulation.generated.loading import load_in_place
from tests.simulation.generated.sites import all_sites

MUTANT, REACH = "BK_SPARK_MUTANT", "BK_SPARK_REACH"

if MUTANT in os.environ:
    _path, _number = os.environ[MUTANT].rsplit(":", 1)
    load_in_place(next(site for site in all_sites() if (site.path, site.number) == (_path, int(_number))))

if REACH in os.environ:
    _PATHS = sorted({site.path for site in all_sites()})
    _tracer = coverage.Coverage(data_file=None, include=[str(ROOT / path) for path in _PATHS], messages=False)
    _tracer.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
        """Fixtures included: they run a good part of what a test tries."""
        _tracer.switch_context(item.nodeid)
        return (yield)

    def pytest_unconfigure() -> None:
        """Write path → line → tests, and "" for what ran while modules were loaded."""
        _tracer.stop()
        data = _tracer.get_data()
        reach = {path: data.contexts_by_lineno(str(ROOT / path)) for path in _PATHS}
        Path(os.environ[REACH]).write_text(json.dumps(reach))
