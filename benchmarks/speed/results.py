"""What workloads measured, as JSON and back.

::

    {"version": 1, "small": false, "runs": 5, "seed": 1, "environment": {…}, "results": [
      {"name": …, "about": …, "notes": [text, …],
       "samples": {contestant: [{"seconds": …, "rows": …, "nbytes": …, "figures": {name: …}}, …]},
       "claims": [{"text": …, "ratio": …, "lowest": …, "highest": …, "wanted": …, "at_least": …}, …]}, …]}
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.environment import Environment
from benchmarks.speed.measure import Claim, Result, Sample

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the command."""

    environment: Environment
    small: bool
    runs: int
    seed: int
    results: Sequence[Result]


def to_json(report: Report) -> str:
    return json.dumps({"version": FORMAT_VERSION, **dataclasses.asdict(report)}, indent=1) + "\n"


def from_json(text: str) -> Report:
    """Raises ValueError for what another version of this module wrote."""
    content = json.loads(text)
    version = content.pop("version", None)
    if version != FORMAT_VERSION:
        raise ValueError(f"results in format version {version}; this reads version {FORMAT_VERSION}")
    environment = Environment(**content.pop("environment"))
    results = [_result(one) for one in content.pop("results")]
    return Report(environment=environment, results=results, **content)


def read(path: Path) -> Report:
    return from_json(path.read_text())


def _result(content: dict[str, Any]) -> Result:
    samples = {name: [Sample(**sample) for sample in samples] for name, samples in content.pop("samples").items()}
    claims = [Claim(**claim) for claim in content.pop("claims")]
    return Result(samples=samples, claims=claims, **content)
