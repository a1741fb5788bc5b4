"""The page of the results, in Markdown. What people write stands in a file of its own, so that the page can be made anew."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.speed.measure import Claim, Result, Sample
from benchmarks.speed.results import Report

HEAD = """# Benchmarks

<!-- Made by `python -m benchmarks.speed.report`: what people write here stands in benchmarks-notes.md beside it. -->

Absolute figures of a machine that others share mean little: each claim is the ratio of two things that took turns in one run,
round by round, and what is shown is the median of the rounds, with the lowest and the highest.
"""

REPEAT = """## How to repeat it

    make bench                 # everything but the peers; SMALL=1: each as small as it goes, which shows only that it runs
    make bench-peers           # beside Kafka and Apache BookKeeper, which Maven fetches
    make bench-page            # this page, from what the two wrote into build/benchmarks, and a drawing of each workload there

One workload alone, once `make test` or `make bench` made `.venv`: `.venv/bin/python -m benchmarks.speed NAME --json FILE`, and
`benchmarks.peers` for those whose names begin with `kafka` or `bookkeeper`; `--list` shows the names, `--directory` chooses the
disk, and `--runs` the number of rounds.
"""

SHOWN = ("kafka_write_100B",)
"""Workloads whose drawings the page shows, beside that of all claims: the tables say as much of the others."""

SMALL = "**These results are of the small form, which shows that the workloads run: their figures mean nothing.**\n"


def notes_of(text: str) -> dict[str, str]:
    """The text below each heading ``## name``, by name."""
    parts = re.split(r"^## +(.+?) *$", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def page(reports: Sequence[Report], notes: Mapping[str, str]) -> str:
    """``notes`` are by workload; those called "Summary" stand below the table of claims."""
    results = [result for report in reports for result in report.results]
    blocks = [HEAD, *([SMALL] if any(report.small for report in reports) else [])]
    blocks += ["## Summary\n", *_summary(results, notes.get("Summary"))]
    blocks += ["## Machine\n", _machine(reports), REPEAT]
    for result in results:
        blocks += _section(result, notes.get(result.name))
    return "\n".join(blocks)


def _summary(results: Sequence[Result], note: str | None) -> Iterator[str]:
    rows = [_claim_row(f"[{result.name}](#{anchor(result.name)})", one) for result in results for one in result.claims]
    yield _table(["workload", "what is compared", "wanted", "reached", ""], rows)
    yield "![reached against wanted](benchmarks/claims.svg)\n"
    if note:
        yield f"{note}\n"


def _claim_row(name: str, one: Claim) -> list[str]:
    wanted = f"{'≥' if one.at_least else '≤'} {one.wanted:g}"
    reached = f"{one.ratio:.2f} ({one.lowest:.2f} to {one.highest:.2f})"
    return [name, one.text, wanted, reached, "yes" if one.is_met else "**not reached**"]


def _machine(reports: Sequence[Report]) -> str:
    """One column for each machine and set of versions; what else it was doing is shown for each run."""
    seen: dict[tuple[str, ...], list[str]] = {}
    for report in reports:
        fields = dataclasses.asdict(report.environment)
        load = fields.pop("load_average")
        seen.setdefault(tuple(map(str, fields.values())), []).append(load)
    names = [field.name for field in dataclasses.fields(reports[0].environment) if field.name != "load_average"]
    rows = [[name.replace("_", " "), *values] for name, *values in zip(names, *seen, strict=True)]
    rows.append(["load average at the start", *("; ".join(loads) for loads in seen.values())])
    rows.append(["rounds, seed", *[", ".join(sorted({f"{one.runs}, {one.seed}" for one in reports}))] * len(seen)])
    return _table(["", *["value"] * len(seen)], rows)


def _section(result: Result, note: str | None) -> Iterator[str]:
    yield f"## {result.name}\n\n{result.about[:1].upper()}{result.about[1:]}.\n"
    yield _samples_table(result.samples)
    if result.name in SHOWN:
        yield f"![{result.name}](benchmarks/{anchor(result.name)}.svg)\n"
    for one in result.claims:
        verdict = "reached" if one.is_met else "**not reached**"
        yield f"- {one.text}: **{one.ratio:.2f}**, wanted {'≥' if one.at_least else '≤'} {one.wanted:g}: {verdict}."
    if result.claims:
        yield ""
    yield from (f"{text}\n" for text in [*result.notes, *([note] if note else [])])


def _samples_table(samples: Mapping[str, Sequence[Sample]]) -> str:
    names = list(dict.fromkeys(name for each in samples.values() for one in each for name in one.figures))
    head = ["", "seconds", "rows/s", "MB/s", *(f"`{name}`" for name in names)]
    rows = []
    for contestant, each in samples.items():
        columns = [[one.seconds for one in each], [one.rows_per_s for one in each], [one.bytes_per_s / 1e6 for one in each]]
        columns += [[one.figures[name] for one in each if name in one.figures] for name in names]
        rows.append([contestant, *map(_spread, columns)])
    return _table(head, rows)


def _spread(values: Sequence[float]) -> str:
    """The median, and beside it the lowest and the highest where there are several."""
    if not values or not any(values):
        return ""
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(statistics.median(values))} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def anchor(name: str) -> str:
    """As Markdown makes one of a heading; also the name of a drawing."""
    return re.sub(r"[^a-z0-9 _-]", "", name.lower()).replace(" ", "-")
