"""What an operator should do about a bookie now, with the exact commands. Pure.

Ref: docs/deployment/operations.md, which says the same at more length.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bk_spark.replication.absent_bookies import AbsentBookie

START = "bk-spark bookie start --data-dir ITS_DIRECTORY --host ITS_HOST --port ITS_PORT"

NEARLY_FULL = 0.9
"""A disk that is fuller is worth a word: at ``disk_usage_high``, 0.95 by default, it takes no adds."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One sentence or two, and the command that it speaks of; empty if there is none."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Whether lost copies are made again."""

    is_enabled: bool
    has_auditor: bool


def about_absent(bookie: AbsentBookie, recovery: Recovery) -> list[Advice]:
    if bookie.is_new:
        remove = Advice("If nobody needs it, remove it.", f"bk-spark cookie delete {shlex.quote(bookie.bookie_id)}")
        return [Advice("It was formatted and never started.", START), remove]
    return [*_about_coming_back(bookie), *_about_recovery(recovery), *_about_leaving(bookie)]


def _about_coming_back(bookie: AbsentBookie) -> Iterator[Advice]:
    if bookie.has_cookie:
        text = "If it can run again, start it with its directories and its old options: it serves all that it acknowledged."
        yield Advice(text, START)


def _about_recovery(recovery: Recovery) -> Iterator[Advice]:
    if not recovery.is_enabled:
        yield Advice("AutoRecovery is switched off: nothing is copied until it is on again.", "bk-spark autorecovery enable")
    if not recovery.has_auditor:
        yield Advice(
            "No AutoRecovery process runs: nobody copies what it held. Run one on two machines.", "bk-spark autorecovery run"
        )


def _about_leaving(bookie: AbsentBookie) -> Iterator[Advice]:
    if bookie.has_cookie:
        text = "If it is gone for good: this copies what still names it to other bookies, and then removes it from the cluster."
        yield Advice(text, f"bk-spark bookie decommission {shlex.quote(bookie.bookie_id)}")
    else:
        text = "It was removed from the cluster and cannot come back. AutoRecovery copies what still names it: these ledgers."
        yield Advice(text, "bk-spark underreplicated list")


def about_registered(bookie_id: str, found: Mapping[str, Any]) -> list[Advice]:
    """``found`` holds the bookie's state as ``cluster.look_at_bookie`` gives it, and ``problem`` and ``mode``."""
    if found.get("problem"):
        text = "It is registered and does not answer: look at its process and its log, and whether its port can be reached."
        return [Advice(text, f"bk-spark bookie status {shlex.quote(bookie_id)}")]
    return list(_about_state(shlex.quote(bookie_id), found))


def _about_state(bookie: str, found: Mapping[str, Any]) -> Iterator[Advice]:
    if found.get("failed"):
        text = "A write or a sync failed: it takes no changes. Check its disk and start it again; for a lost disk, first this."
        yield Advice(text, f"bk-spark cookie fix {bookie} --data-dir ITS_DIRECTORY")
    if found.get("lapsed"):
        yield Advice("It did not reach ZooKeeper for too long. It takes changes again by itself once ZooKeeper answers it.")
    if found.get("ids_given_out_again"):
        yield Advice("ZooKeeper gives out ledger ids that it holds already.", "bk-spark cluster raise-ledger-ids")
    if found.get("limbo"):
        text = "It may have lost data, and repairs it from the other bookies by itself. This says what it waits for."
        yield Advice(text, f"bk-spark bookie limbo {bookie}")
    is_plain = not any(found.get(name) for name in ("failed", "lapsed", "ids_given_out_again"))
    if found.get("mode") == "read-only" and is_plain:
        yield _about_read_only(bookie, found)
    elif is_plain and any(_is_nearly_full(one) for one in found.get("directories", ())):
        text = (
            f"A disk is fuller than {NEARLY_FULL:.0%}. Delete ledgers or truncate logs that nobody needs, and collect at once."
        )
        yield Advice(text, f"bk-spark bookie gc run {bookie}")


def _about_read_only(bookie: str, found: Mapping[str, Any]) -> Advice:
    if "read-only off" in str(found.get("why")):
        return Advice("An operator keeps writers away from it.", f"bk-spark bookie read-only off {bookie}")
    if found.get("why"):
        text = "Make its disks larger, or delete ledgers and truncate logs that nobody needs, and collect at once."
        return Advice(text, f"bk-spark bookie gc run {bookie}")
    text = "It gives no reason itself: it is being decommissioned, or is about to be writable again."
    return Advice(text, f"bk-spark bookie status {bookie}")


def _is_nearly_full(directory: Mapping[str, Any]) -> bool:
    """Not if it could not be measured, which both sizes of 0 say."""
    return bool(directory["free_bytes"] < (1 - NEARLY_FULL) * directory["total_bytes"])
