"""Which bookies form an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bk_spark.errors import NotEnoughBookiesError


def choose_ensemble(available: Sequence[str], ensemble_size: int, choose: Callable[[int], int]) -> tuple[str, ...]:
    """``ensemble_size`` distinct bookies of ``available``, at random. ``choose(n)`` gives a number from 0 to n - 1.

    Raises NotEnoughBookiesError.
    """
    left = sorted(set(available))
    if len(left) < ensemble_size:
        raise NotEnoughBookiesError(ensemble_size, len(left), f"a ledger with ensemble size {ensemble_size}")
    return tuple(left.pop(choose(len(left))) for _ in range(ensemble_size))
