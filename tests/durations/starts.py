"""Counts the servers that this process starts, whoever starts them, by the interpreter's own events."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_BOOKIE = re.compile(r"bk_spark=.*/bookie-\d+")


def kind_of(command: Sequence[str]) -> str | None:
    """``zookeeper``, ``bookie``, ``spark``, ``python``, or ``jvm``, another program in Java; None: none of these."""
    program = Path(command[0]).name if command else ""
    if program == "java":
        return "zookeeper" if any("zookeeper" in word for word in command) else "jvm"
    if program == "spark-submit":
        return "spark"
    if any(_BOOKIE.search(word) for word in command):
        return "bookie"
    return "python" if program.startswith("python") else None


class Starts:
    """Of this process, from the first one that is made."""

    _counts: Counter[str] | None = None

    def __init__(self) -> None:
        if Starts._counts is None:
            Starts._counts = Counter()
            sys.addaudithook(count_start)

    def take(self) -> dict[str, int]:
        """Those since the last call."""
        assert Starts._counts is not None
        taken, Starts._counts = Starts._counts, Counter()
        return dict(taken)


def count_start(event: str, arguments: tuple[object, ...]) -> None:
    """Never removed, and never fails: an audit hook that raises would end the call it looks at."""
    if event != "subprocess.Popen" or Starts._counts is None:
        return
    command = arguments[1]
    if isinstance(command, (list, tuple)) and (kind := kind_of([str(word) for word in command])):
        Starts._counts[kind] += 1
