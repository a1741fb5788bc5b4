"""The page and the drawings, from the results of one or several runs.

python -m benchmarks.speed.report RESULT.json… --out docs --drawings build/benchmarks

Where several hold the same workload, the last one counts. ``<out>/benchmarks-notes.md`` is what people write: the text below
``## <workload>`` is put into that workload's section. The drawings that the page shows lie in ``<out>/benchmarks``.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.page import SHOWN, anchor, notes_of, page
from benchmarks.speed.plots import draw_claims, draw_samples
from benchmarks.speed.results import Report, read


def newest(reports: Sequence[Report]) -> list[Report]:
    """Without what a later report has too."""
    last = {result.name: id(report) for report in reports for result in report.results}
    kept = [
        dataclasses.replace(report, results=[one for one in report.results if last[one.name] == id(report)])
        for report in reports
    ]
    return [report for report in kept if report.results]


def write(reports: Sequence[Report], out: Path, drawings: Path) -> None:
    """The page and what it shows into ``out``, all other drawings into ``drawings``."""
    shown = out / "benchmarks"
    for folder in (shown, drawings):
        folder.mkdir(parents=True, exist_ok=True)
    notes_file = out / "benchmarks-notes.md"
    notes = notes_of(notes_file.read_text()) if notes_file.exists() else {}
    (out / "benchmarks.md").write_text(page(reports, notes))
    results = [result for report in reports for result in report.results]
    for result in results:
        draw_samples(result.samples, (shown if result.name in SHOWN else drawings) / f"{anchor(result.name)}.svg")
    claims = {f"{result.name}, {number}": one for result in results for number, one in enumerate(result.claims, 1)}
    draw_claims(claims, shown / "claims.svg")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    parser.add_argument("--out", type=Path, required=True, help="where benchmarks.md and what it shows go")
    parser.add_argument("--drawings", type=Path, required=True, help="where the drawings of all other workloads go")
    args = parser.parse_args()
    write(newest([read(path) for path in args.results]), args.out, args.drawings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
