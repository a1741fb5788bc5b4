"""The Python examples of README.md and docs/guide/, and a program that runs them: ``python -m tests.unit.documented_examples``.

All pages share one JVM, because most of an example's time is servers that start, and those of the guide one Spark session. The
examples of a page of the guide run from top to bottom in one namespace, with the two names that docs/guide/index.md promises:
``spark`` and ``uri``. Each example of README.md is a program of its own, and so is examples/streaming.py. The ``LocalCluster``
of all of them is one that runs: see ``Clusters``.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

import bk_spark
from bk_spark import BookKeeper, ClientConfig, LocalCluster, register
from tests.checkout import ROOT
from tests.unit.documented_commands import blocks_with_lines

README = ROOT / "README.md"
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
STREAMING = ROOT / "examples" / "streaming.py"
CHECKPOINTS = "/checkpoints/"
"""Where the guide's streams keep theirs; here a directory of the test."""


def code_of(page: Path, replaced: dict[str, str]) -> list[CodeType]:
    """The page's examples, compiled so that errors name the page and its line."""
    found = []
    for line, text in blocks_with_lines(page.read_text(encoding="utf-8"), "python"):
        for before, after in replaced.items():
            text = text.replace(before, after)
        found.append(compile("\n" * line + text, str(page), "exec"))
    return found


class Clusters:
    """In the place of ``LocalCluster``: with TLS the one of the task, else one for all, which each example finds empty."""

    def __init__(self, secured: dict[str, Any], running: ExitStack) -> None:
        self._secured = secured
        self._running = running
        self._plain: LocalCluster | None = None

    @contextmanager
    def __call__(self, bookies: int, tls: bool = False) -> Iterator[Any]:
        if tls:
            yield SimpleNamespace(metadata_uri=self._secured["uri"], client_config=ClientConfig(**self._secured["config"]))
            return
        if self._plain is None:
            self._plain = self._running.enter_context(LocalCluster(bookies=bookies))
        yield self._plain
        with BookKeeper(self._plain.metadata_uri) as bookkeeper:
            for log in bookkeeper.list_logs():
                bookkeeper.open_log(log).delete()


def run(page: Path, names: dict[str, Any], replaced: dict[str, str]) -> dict[str, object]:
    """What the examples of one page print, and the error that ended them."""
    shared = {"__name__": "__main__", **names}

    def examples() -> None:
        for code in code_of(page, replaced):
            exec(code, {"__name__": "__main__"} if page == README else shared)

    return outcome(examples)


def outcome(examples: Callable[[], object]) -> dict[str, object]:
    printed, problem, started = io.StringIO(), None, time.monotonic()
    try:
        with contextlib.redirect_stdout(printed):
            examples()
    except BaseException:
        problem = traceback.format_exc()
    return {"printed": printed.getvalue(), "problem": problem, "seconds": round(time.monotonic() - started, 1)}


def session() -> SparkSession:
    quiet = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    spark = quiet.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    return spark


def main(task: dict[str, Any]) -> None:
    """``task``: the cluster's URI for each page by its name, what to replace in it, and the secured cluster."""
    with ExitStack() as running:
        bk_spark.LocalCluster = Clusters(task["secured"], running)  # type: ignore[assignment, misc]
        print(json.dumps(all_of(task)))


def all_of(task: dict[str, Any]) -> dict[str, dict[str, object]]:
    spark = session()
    found = {}
    for page in GUIDE:
        uri, replaced = task["uri"].get(page.name, task["uri"]["*"]), task["replaced"]
        found[page.name] = run(page, {"spark": spark, "uri": uri}, replaced)
    spark.stop()
    found[README.name] = run(README, {}, task["replaced"])
    found[STREAMING.name] = outcome(lambda: runpy.run_path(str(STREAMING), run_name="__main__"))
    return found


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
