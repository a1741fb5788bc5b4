"""Processes that work for a benchmark: some that begin together, and what a process has used so far."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

SPAWN = multiprocessing.get_context("spawn")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Workers:
    """Processes that do the same at the same time. Close them, or use them in a ``with`` statement.

    A job is a function at the top of a module: ``prepare(number, *arguments)`` makes ready what worker ``number`` needs and
    gives back the function that is timed, which begins when all workers are ready.
    """

    def __init__(self, count: int) -> None:
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        for number in range(count):
            ours, theirs = SPAWN.Pipe()
            self._processes.append(SPAWN.Process(target=_work, args=(number, theirs), daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._pipes.append(ours)

    def run(self, prepare: Callable[..., Callable[[], Any]], *arguments: object) -> list[Any]:
        """What the timed functions gave back, by worker."""
        self.begin(prepare, *arguments)
        return self.results()

    def begin(self, prepare: Callable[..., Callable[[], Any]], *arguments: object) -> None:
        """Come back when all workers are ready and begin; ``results`` waits for their end."""
        for pipe in self._pipes:
            pipe.send((prepare, arguments))
        for pipe in self._pipes:
            pipe.recv()
        for pipe in self._pipes:
            pipe.send("begin")

    def results(self) -> list[Any]:
        return [pipe.recv() for pipe in self._pipes]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work(number: int, pipe: Connection) -> None:
    """Until the other end of the pipe is closed. A job that fails ends the worker, and the other end gets EOFError."""
    while True:
        try:
            prepare, arguments = pipe.recv()
        except EOFError:
            return
        timed = prepare(number, *arguments)
        pipe.send("ready")
        pipe.recv()
        pipe.send(timed())


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes have used since they began."""

    cpu_s: float
    write_bytes: int
    """What they sent towards disks, in whole pages."""

    def since(self, before: Usage) -> Usage:
        return Usage(self.cpu_s - before.cpu_s, self.write_bytes - before.write_bytes)


def usage(pids: Iterable[int]) -> Usage:
    each = list(pids)
    return Usage(sum(map(_cpu_s, each)), sum(_field(pid, "io", "write_bytes:") for pid in each))


def peak_memory_mib(pids: Iterable[int]) -> float:
    """The most that one of the processes ever had in memory."""
    return max(_field(pid, "status", "VmHWM:") for pid in pids) / 1024


def memory_mib(pids: Iterable[int]) -> float:
    """What the largest of the processes has in memory now."""
    return max(_field(pid, "status", "VmRSS:") for pid in pids) / 1024


def reset_peak_memory(pids: Iterable[int]) -> None:
    """From now on ``peak_memory_mib`` tells of what comes."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / TICKS_PER_S


def _field(pid: int, file: str, name: str) -> int:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
