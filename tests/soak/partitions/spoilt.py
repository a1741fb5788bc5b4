"""Runs a process of ours with a deliberate bug: ``python -m tests.soak.partitions.spoilt BUG MODULE ARGUMENTS…``.

What finds nothing in a cluster with a bug says nothing about one without. test_partitions.py has the bugs that rounds are known
to find; the others of ``BUGS`` are there to be tried.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulation.logs import mutants as log_mutants
from tests.simulation.mutants import bookie_mutants, recovery_mutants, writer_mutants

CLIENT, BOOKIE = "client", "bookie"


@dataclass(frozen=True, slots=True)
class Bug:
    """``who`` has it: all clients or all bookies."""

    who: str
    patch: Callable[[], contextlib.AbstractContextManager[Any]]


BUGS: Mapping[str, Bug] = {
    "a late ack counts after a change": Bug(CLIENT, writer_mutants.late_acks_of_replaced_bookies_count),
    "acks of a replaced bookie are kept": Bug(CLIENT, writer_mutants.replaced_bookies_keep_their_acks),
    "unknown is taken as no": Bug(CLIENT, recovery_mutants.unknown_is_negative),
    "one no is enough": Bug(CLIENT, recovery_mutants.one_negative_is_enough),
    "a lost reply is taken as success": Bug(CLIENT, writer_mutants.lost_reply_is_success),
    "recovery reads do not fence": Bug(CLIENT, recovery_mutants.reads_do_not_fence),
    "a takeover does not fence": Bug(CLIENT, log_mutants.takeover_does_not_fence),
    "a fenced writer goes on": Bug(CLIENT, writer_mutants.fenced_writer_goes_on),
    "nothing is resent to new bookies": Bug(CLIENT, writer_mutants.nothing_is_resent_to_new_bookies),
    "confirmations come out of order": Bug(CLIENT, writer_mutants.confirms_out_of_order),
    "the bookie's last add confirmed goes back": Bug(BOOKIE, bookie_mutants.lac_is_overwritten),
}


def spoilt(bug: str, words: list[str]) -> list[str]:
    """The command ``python … -m MODULE ARGUMENTS…``, perhaps behind a prefix, with a bug."""
    at = words.index("-m")
    return [*words[: at + 1], "tests.soak.partitions.spoilt", bug, *words[at + 1 :]]


def main(bug: str, module: str, *arguments: str) -> None:
    sys.argv = [module, *arguments]
    with BUGS[bug].patch():
        runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
