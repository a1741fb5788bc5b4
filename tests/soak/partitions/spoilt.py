"""Runs a process of ours with a deliberate bug: ``python -m tests.soak.partitions.spoilt BUG WHO MODULE ARGUMENTS…``.

What finds nothing in a cluster with a bug says nothing about one without. test_partitions.py has the bugs that rounds are known
to find; the others of ``BUGS`` are there to be tried.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.logs import mutants as log_mutants
from tests.simulation.mutants import bookie_mutants, driver_mutants, recovery_mutants, writer_mutants

CLIENT, BOOKIE = "client", "bookie"

Patch = Callable[[], contextlib.AbstractContextManager[Any]]


def _of_clients(patch: Patch) -> Mapping[str, Patch]:
    return {CLIENT: patch}


BUGS: Mapping[str, Mapping[str, Patch]] = {
    "a late ack counts after a change": _of_clients(writer_mutants.late_acks_of_replaced_bookies_count),
    "a reconnect resends to the wrong bookie": {
        CLIENT: driver_mutants.reconnects_resend_to_the_wrong_bookie,
        BOOKIE: driver_mutants.adds_do_not_name_their_bookie,
    },
    "a duplicate is taken as a new add": _of_clients(driver_mutants.duplicates_are_taken_as_new_adds),
    "unknown is taken as no": _of_clients(recovery_mutants.unknown_is_negative),
    "a takeover does not fence": _of_clients(log_mutants.takeover_does_not_fence),
    "acks of a replaced bookie are kept": _of_clients(writer_mutants.replaced_bookies_keep_their_acks),
    "one no is enough": _of_clients(recovery_mutants.one_negative_is_enough),
    "a lost reply is taken as success": _of_clients(writer_mutants.lost_reply_is_success),
    "recovery reads do not fence": _of_clients(recovery_mutants.reads_do_not_fence),
    "a fenced writer goes on": _of_clients(writer_mutants.fenced_writer_goes_on),
    "nothing is resent to new bookies": _of_clients(writer_mutants.nothing_is_resent_to_new_bookies),
    "confirmations come out of order": _of_clients(writer_mutants.confirms_out_of_order),
    "the bookie's last add confirmed goes back": {BOOKIE: bookie_mutants.lac_is_overwritten},
}
"""Who has each: all clients, all bookies, or both. The first five are of networks alone: of what comes late, breaks off, comes
again, is lost, or is believed too long."""


def spoilt(bug: str | None, who: str, words: list[str]) -> list[str]:
    """The command ``python … -m MODULE ARGUMENTS…``, perhaps behind a prefix, with a bug if ``who`` has it."""
    if bug is None or who not in BUGS[bug]:
        return words
    at = words.index("-m")
    return [*words[: at + 1], "tests.soak.partitions.spoilt", bug, who, *words[at + 1 :]]


def main(bug: str, who: str, module: str, *arguments: str) -> None:
    sys.argv = [module, *arguments]
    with BUGS[bug][who]():
        runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
