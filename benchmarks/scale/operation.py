"""What an operation is, and how it runs in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.scale.made_cluster import MadeCluster
from benchmarks.scale.measured import Meter, Used
from benchmarks.scale.size import Size
from bk_spark.cli import main as command

PROCESS_S = 4 * 3600.0
"""After so long an operation counts as one that never ends."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a process needs to know of the cluster."""

    uri: str
    ledgers: int
    bookies: tuple[str, ...]
    lost: str
    """The bookie that may be taken for lost."""

    @property
    def size(self) -> Size:
        return Size(self.ledgers)


Amount = Callable[[Size], int]
"""What an operation works on, as a number."""

InProcess = Callable[[Site, Meter], None]
OnCluster = Callable[[MadeCluster], Mapping[str, Used]]


@dataclass(frozen=True, slots=True)
class Operation:
    """``grows``: the parts whose figures may grow in proportion to the amount; the others must not grow at all."""

    name: str
    about: str
    amount: Amount
    grows: frozenset[str]
    needs: tuple[str, ...]
    function: InProcess | None
    on_cluster: OnCluster | None = None

    def run(self, cluster: MadeCluster) -> dict[str, Used]:
        """Needs that the cluster has what it needs."""
        if self.on_cluster is not None:
            return dict(self.on_cluster(cluster))
        site = Site(cluster.uri, cluster.size.ledgers, tuple(cluster.bookies), cluster.bookies[-1])
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory) / "used.json"
            words = [sys.executable, "-m", "benchmarks.scale.one", self.name, json.dumps(asdict(site)), str(out)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=PROCESS_S)
            return {part: Used(**used) for part, used in json.loads(out.read_text()).items()}

    def run_here(self, site: Site, out: Path) -> None:
        """In the process of the operation."""
        assert self.function is not None, "it runs in the process of a bookie"
        meter = Meter()
        self.function(site, meter)
        out.write_text(json.dumps({part: used.to_json() for part, used in meter.used().items()}))


OPERATIONS: dict[str, Operation] = {}
"""By name, in the order in which they run: the modules of ``operations`` add theirs."""


def operation(
    about: str, amount: Amount, *, grows: Sequence[str] = (), needs: Sequence[str] = ()
) -> Callable[[InProcess], InProcess]:
    """Add a function of this name."""

    def add(function: InProcess) -> InProcess:
        name = function.__name__
        OPERATIONS[name] = Operation(name, about, amount, frozenset(grows), tuple(needs), function)
        return function

    return add


def on_cluster(
    about: str, amount: Amount, *, grows: Sequence[str] = (), needs: Sequence[str] = ()
) -> Callable[[OnCluster], OnCluster]:
    """Add a function that starts and stops servers, whose processes it measures."""

    def add(function: OnCluster) -> OnCluster:
        name = function.__name__
        OPERATIONS[name] = Operation(name, about, amount, frozenset(grows), tuple(needs), None, function)
        return function

    return add


def run_command(*words: str, uri: str) -> None:
    """A command of bk-spark, whose output goes nowhere."""
    with _no_output():
        code = command([*words, "--metadata", uri])
    assert code == 0, f"bk-spark {' '.join(words)} ended with {code}"


@contextlib.contextmanager
def _no_output() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield
