"""``python -m tests.soak.commands.forks [BUG]``: forks a process for each command that it is told on stdin."""

from __future__ import annotations

import json
import os
import signal
import sys

import pyarrow.csv
import pyarrow.parquet  # noqa: F401  (what commands import when they need it)

from bk_spark import cli
from tests.soak.commands.bugs import BUGS


def serve() -> int | None:
    """Returns only in a fork: the exit code of its command."""
    for line in sys.stdin:
        question = json.loads(line)
        if "ended" in question:
            answer = _ended(question["ended"])
        else:
            pid = os.fork()
            if not pid:
                return _command(question)
            answer = pid
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return None


def _command(question: dict[str, object]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(str(question["folder"]))
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(str(question[name]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if question["stdout"] == "ascii":
        sys.stdout = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115  (it is the process's)
    if question["stdout"] == "closed":
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  (as the interpreter has it)
    words = question["words"]
    assert isinstance(words, list)
    sys.argv = ["bk-spark", *words]
    return cli.main()


def _ended(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the net ends this process by closing its stdin
    for name in sys.argv[1:]:
        BUGS[name].plant()
    sys.exit(serve())
