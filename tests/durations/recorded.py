"""What each file of tests took when it was recorded, so that files which run side by side end together.

``python -m tests.durations --record`` writes it from the last run. A file that is not in it is taken for a short one.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded.json"

LEAST_S = 3.0
"""Shorter files fill the gaps at the end in any order."""


@cache
def _seconds() -> dict[str, float]:
    found: dict[str, float] = json.loads(RECORDED.read_text())
    return found


def recorded_s(nodeid: str) -> float:
    """What the file of a test took."""
    return _seconds().get(nodeid.partition("::")[0], 0.0)


def record(run: dict[str, Any]) -> int:
    """Keep the files of a run that took LEAST_S or longer, and say how many these are."""
    kept = {file: round(seconds) for file, (seconds, _) in sorted(run["files"].items()) if seconds >= LEAST_S}
    RECORDED.write_text(json.dumps(kept, indent=0) + "\n")
    return len(kept)
