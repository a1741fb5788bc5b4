"""Feeds spoilt values to what decodes them, and watches what comes of it.

A **target** decodes bytes. It may refuse them, with an error of the tree and a sentence; nothing else: no other error, no
more than seconds of work, no more memory than a bound. What it raises otherwise is a **finding**, with its bytes.
A value that is refused for a reason not seen before joins the seeds, so that later ones are spoilt further from there.
"""

from __future__ import annotations

import random
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bk_spark.errors import BookKeeperError
from tests.soak.fuzz.mutations import Mutator, spoil_bytes

MAX_CPU_S = 2.0
"""Of one case. They take microseconds to milliseconds; a machine under load needs no more CPU for that."""

MAX_NEW_BYTES = 96 * 1024 * 1024
"""By how much one case may raise the process's highest use of memory so far. The largest message is 17 MiB."""

MAX_KEPT = 400
"""Refused values that are kept as seeds."""

MIB_OF_KIB = 1024


@dataclass(frozen=True)
class Target:
    """Something that decodes. ``run`` gives back anything, or raises one of ``refusals``."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], object]
    mutate: Mutator = spoil_bytes
    refusals: tuple[type[Exception], ...] = (BookKeeperError,)
    close: Callable[[], None] = lambda: None
    max_cpu_s: float = MAX_CPU_S


@dataclass
class Finding:
    """What should not have happened."""

    target: str
    case: int
    what: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.target}, case {self.case}: {self.what}\n  {len(self.data)} bytes: {self.data[:200]!r}"


@dataclass
class Report:
    """What came of one target."""

    target: str
    cases: int = 0
    accepted: int = 0
    seconds: float = 0.0
    refusals: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        rate = self.cases / self.seconds if self.seconds else 0
        return (
            f"{self.target:32} {self.cases:8} cases {rate:8.0f}/s {self.accepted:7} accepted "
            f"{len(self.refusals):4} distinct refusals {len(self.findings):3} findings"
        )


def fuzz(target: Target, seed: int, *, seconds: float, cases: int = 1 << 60, record: Path | None = None) -> Report:
    """Try spoilt values until the time is up or so many were tried. ``record``: a file that has the value being tried."""
    report = Report(target.name)
    _forget_peak()
    began = time.monotonic()
    try:
        for data in _values(target, seed, report):
            if report.cases >= cases or (report.seconds >= seconds and report.cases >= min(cases, 20)):
                break
            if record is not None:
                record.write_bytes(data)
            _try(target, data, report)
            report.seconds = time.monotonic() - began
    finally:
        target.close()
    return report


def _values(target: Target, seed: int, report: Report) -> Iterator[bytes]:
    """The seeds as they are, then spoilt ones without end."""
    chance, seeds = random.Random(f"{target.name} {seed}"), list(target.seeds())
    kept: list[bytes] = []
    yield from seeds
    while True:
        known = len(report.refusals)
        base = chance.choice(kept) if kept and chance.random() < 0.3 else chance.choice(seeds)
        data = target.mutate(base, seeds, chance)
        yield data
        if len(report.refusals) > known and len(kept) < MAX_KEPT:
            kept.append(data)


def _try(target: Target, data: bytes, report: Report) -> None:
    memory, arrow, cpu = _peak_bytes(), _arrow_bytes(), time.thread_time()
    what = ""
    try:
        target.run(data)
        report.accepted += 1
    except target.refusals as refusal:
        report.refusals.add(_kind(refusal))
        what = _unclear(refusal)
    except Exception:
        what = traceback.format_exc(limit=-6)
    used = time.thread_time() - cpu
    if used > target.max_cpu_s:
        what += f" it took {used:.1f} s"
    grown = max(_peak_bytes() - memory, _arrow_bytes() - arrow)
    if grown > MAX_NEW_BYTES:
        what += f" it took {grown >> 20} MiB"
    report.cases += 1
    if what:
        report.findings.append(Finding(target.name, report.cases, what, data))


def _peak_bytes() -> int:
    """The most memory that this process has had since ``_forget_peak``."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * MIB_OF_KIB


def _forget_peak() -> None:
    """What ran before in this process hides no growth. Ref: proc(5), clear_refs."""
    Path("/proc/self/clear_refs").write_text("5")


def _arrow_bytes() -> int:
    """The most that Arrow has had, touched or not."""
    return int(pa.default_memory_pool().max_memory() or 0)


def _kind(refusal: Exception) -> str:
    return type(refusal).__name__ + ": " + re.sub(r"(0x)?[0-9a-f]*\d[0-9a-f]*|'.*'|\".*\"", "#", str(refusal))[:120]


def _unclear(refusal: Exception) -> str:
    """A refusal is one short sentence that can be printed."""
    text = str(refusal)
    if not text or len(text) > 20_000:
        return f"a refusal of {len(text)} characters"
    return ""
