"""What the disk allows: the same bytes written and made durable by as many processes as there are replicas."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np

from benchmarks.speed.measure import Sample
from benchmarks.speed.pacing import at_rate
from benchmarks.speed.processes import Workers

POOL = 16
"""Different pieces. A disk that keeps what is equal only once would be no measure."""

GROUP = 8
"""Pieces of a sync, as many as bookies under load find waiting."""


class Disk:
    """Writers on the disk that holds ``directory``. Close it, or use it in a ``with`` statement."""

    def __init__(self, directory: Path, replicas: int = 3) -> None:
        self._directory, self._workers = directory, Workers(replicas)
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, user_bytes: int, piece_bytes: int, copies_each: float = 1.0) -> Sample:
        """Each process writes ``copies_each`` of the user's bytes, and has them on disk at the end."""
        pieces = max(1, round(user_bytes * copies_each / piece_bytes))
        seconds = self._workers.run(_writing, str(self._directory), pieces, piece_bytes)
        return Sample(max(seconds), pieces, user_bytes)

    def syncs(self, per_s: float, for_s: float, nbytes: int) -> Sequence[float]:
        """How long each fdatasync took, of all processes, each of which writes ``nbytes`` at the rate and syncs them."""
        return [one for found in self._workers.run(_syncing, str(self._directory), per_s, for_s, nbytes) for one in found]

    def close(self) -> None:
        self._workers.close()

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _writing(number: int, directory: str, pieces: int, piece_bytes: int) -> Callable[[], float]:
    random = np.random.default_rng(number)
    pool = [random.bytes(piece_bytes) for _ in range(min(POOL, pieces))]
    path = Path(directory) / f"ceiling-{number}"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def timed() -> float:
        start = time.perf_counter()
        for piece in range(pieces):
            os.write(descriptor, pool[piece % POOL])
            if piece % GROUP == GROUP - 1 or piece == pieces - 1:
                os.fdatasync(descriptor)
        seconds = time.perf_counter() - start
        os.close(descriptor)
        path.unlink()
        return seconds

    return timed


def _syncing(number: int, directory: str, per_s: float, for_s: float, nbytes: int) -> Callable[[], list[float]]:
    piece = np.random.default_rng(number).bytes(nbytes)
    path = Path(directory) / f"syncs-{number}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def timed() -> list[float]:
        end = time.perf_counter() + for_s
        due = takewhile(lambda _: time.perf_counter() < end, at_rate(math.ceil(per_s * for_s), per_s))
        found = [_sync(descriptor, piece) for _ in due]
        os.close(descriptor)
        path.unlink()
        return found

    return timed


def _sync(descriptor: int, piece: bytes) -> float:
    os.write(descriptor, piece)
    start = time.perf_counter()
    os.fdatasync(descriptor)
    return time.perf_counter() - start
