"""The Python examples of README.md and docs/guide/, and a program that runs them: ``python -m tests.unit.documented_examples``.

All pages share one Spark session, because most of an example's time is a JVM that starts. The examples of a page of the guide
run from top to bottom in one namespace, with the two names that docs/guide/index.md promises: ``spark`` and ``uri``. Each
example of README.md is a program of its own, with a cluster of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
from pathlib import Path
from types import CodeType
from typing import Any

from pyspark.sql import SparkSession

from bk_spark import register
from tests.checkout import ROOT
from tests.unit.documented_commands import blocks_with_lines

README = ROOT / "README.md"
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
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


def run(page: Path, names: dict[str, Any], replaced: dict[str, str]) -> dict[str, object]:
    """What the examples of one page print, and the error that ended them."""
    printed, problem, started = io.StringIO(), None, time.monotonic()
    shared = {"__name__": "__main__", **names}
    try:
        with contextlib.redirect_stdout(printed):
            for code in code_of(page, replaced):
                exec(code, {"__name__": "__main__"} if page == README else shared)
    except BaseException:
        problem = traceback.format_exc()
    return {"printed": printed.getvalue(), "problem": problem, "seconds": round(time.monotonic() - started, 1)}


def session() -> SparkSession:
    quiet = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    spark = quiet.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    return spark


def main(task: dict[str, Any]) -> None:
    """``task``: the cluster's URI for each page by its name, what to replace in it, and which name to begin with."""
    spark = session()
    found = {}
    for page in GUIDE:
        uri, replaced = task["uri"].get(page.name, task["uri"]["*"]), task["replaced"]
        found[page.name] = run(page, {"spark": spark, "uri": uri}, replaced)
    spark.stop()
    found[README.name] = run(README, {}, task["replaced"])
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
