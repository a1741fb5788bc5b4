"""Which bookies of an ensemble hold which entries: pure arithmetic.

An ensemble is a tuple of E bookies; a position in it is a *slot*. Entry ``i`` is written to the Qw slots
``i % E, (i + 1) % E, …``: its *write set*. An entry is confirmed once Qa slots of its write set have acked it.

Worked example, E = 4 and Qw = 3: entry 0 is on slots 0, 1, 2; entry 3 on slots 3, 0, 1. So slot 0 holds entries
0, 2, 3, 4, 6, 7, 8, …: those whose id modulo 4 is 0, 2 or 3.

Ref: the BookKeeper protocol, "Write quorums" and "Ack quorums".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bk_spark.errors import ConfigError

MAX_ENSEMBLE_SIZE = 64
"""A bound for values read from disk and network; real ensembles have 1 to 10 bookies."""


def check_quorums(ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """Raise ConfigError unless MAX_ENSEMBLE_SIZE ≥ E ≥ Qw ≥ Qa ≥ 1."""
    named = {"ensembleSize": ensemble_size, "writeQuorum": write_quorum, "ackQuorum": ack_quorum}
    for name, size in named.items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise ConfigError(name, size, "it must be a whole number")
    if not 1 <= ensemble_size <= MAX_ENSEMBLE_SIZE:
        raise ConfigError("ensemble size (ensembleSize)", ensemble_size, f"it must be from 1 to {MAX_ENSEMBLE_SIZE}")
    if not 1 <= write_quorum <= ensemble_size:
        raise ConfigError(
            "write quorum (writeQuorum)",
            write_quorum,
            f"it must be from 1 to the ensemble size, which is {ensemble_size} (ensembleSize)",
        )
    if not 1 <= ack_quorum <= write_quorum:
        raise ConfigError(
            "ack quorum (ackQuorum)",
            ack_quorum,
            f"it must be from 1 to the write quorum, which is {write_quorum} (writeQuorum)",
        )


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """The slots that hold ``entry_id``, in the order in which readers prefer them."""
    return tuple((entry_id + k) % ensemble_size for k in range(write_quorum))


@dataclass(frozen=True, slots=True)
class IdPattern:
    """Selects ids of an interval: those that ``slot`` holds in an ensemble of size E with write quorum Qw.

    With E = Qw it selects every id (a *dense* batch); the normal form of that is ``DENSE``.
    """

    ensemble_size: int
    write_quorum: int
    slot: int

    def __post_init__(self) -> None:
        check_quorums(self.ensemble_size, self.write_quorum, 1)
        if not 0 <= self.slot < self.ensemble_size:
            raise ConfigError("slot", self.slot, f"it must be from 0 to {self.ensemble_size - 1}")

    @property
    def is_dense(self) -> bool:
        return self.ensemble_size == self.write_quorum

    def holds(self, entry_id: int) -> bool:
        return (self.slot - entry_id) % self.ensemble_size < self.write_quorum

    def mask(self, entry_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """True for each id that is held. Same shape as ``entry_ids``."""
        if self.is_dense:
            return np.ones(entry_ids.shape, dtype=np.bool_)
        held: npt.NDArray[np.bool_] = (self.slot - entry_ids) % self.ensemble_size < self.write_quorum
        return held

    def ids(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """The held ids from ``first`` to ``last``, inclusive, ascending."""
        every = np.arange(first, last + 1, dtype=np.int64)
        return every if self.is_dense else every[self.mask(every)]

    def count(self, first: int, last: int) -> int:
        """How many ids from ``first`` to ``last``, inclusive, are held."""
        rounds, rest = divmod(last - first + 1, self.ensemble_size)
        return rounds * self.write_quorum + sum(map(self.holds, range(last - rest + 1, last + 1)))


DENSE = IdPattern(1, 1, 0)


def pattern_of_slot(ensemble_size: int, write_quorum: int, slot: int) -> IdPattern:
    """The ids that ``slot`` holds of a fragment; DENSE if every bookie holds every entry."""
    return DENSE if ensemble_size == write_quorum else IdPattern(ensemble_size, write_quorum, slot)


def is_covered(known: frozenset[int], ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether the slots in ``known`` meet every possible ack quorum: no write set has Qa slots outside ``known``.

    Equivalently, at least (Qw - Qa) + 1 slots of every write set are known.

    Ref: BP-46, "A note on Quorums".
    """
    write_sets = (write_set(entry_id, ensemble_size, write_quorum) for entry_id in range(ensemble_size))
    return all(sum(slot not in known for slot in slots) < ack_quorum for slots in write_sets)
