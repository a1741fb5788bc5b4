"""What each file of tests took when it was recorded, so that what runs side by side ends together.

``python -m tests.durations --record`` writes it from the last run. A file that is not in it is taken for a short one.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded.json"

TOGETHER = ("tests/interop/", "tests/spark/")
"""Folders whose files one worker runs, because they share servers or a session of Spark that take long to start. Spark ends its
Python processes after a minute without use: beside other tests it would start them again and again."""

ALONE = ("tests/spark/test_examples.py",)
"""Files of these folders that share nothing with the others."""

LEAST_S = 3.0
"""Shorter files fill the gaps at the end in any order."""


@cache
def _seconds() -> dict[str, float]:
    found: dict[str, float] = json.loads(RECORDED.read_text())
    return found


def scope_of(nodeid: str) -> str:
    """What one worker runs: the file of a test, or its folder where that is one of TOGETHER and the file is not ALONE."""
    file = nodeid.partition("::")[0]
    return file if file in ALONE else next((folder for folder in TOGETHER if file.startswith(folder)), file)


@cache
def recorded_s(scope: str) -> float:
    """What a file, or all files of a folder of TOGETHER, took."""
    return sum(seconds for file, seconds in _seconds().items() if scope_of(file) == scope)


def record(run: dict[str, Any]) -> int:
    """Keep the files of a run that took LEAST_S or longer, and say how many these are."""
    kept = {file: round(seconds) for file, (seconds, _) in sorted(run["files"].items()) if seconds >= LEAST_S}
    RECORDED.write_text(json.dumps(kept, indent=0) + "\n")
    return len(kept)
