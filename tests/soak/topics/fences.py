"""Whether anybody but the broker put its hands on the topics' ledgers: in the broker's log, and in BookKeeper's metadata.

A broker creates a ledger and closes it: so the metadata of an open one were written once, and those of a closed one twice. Who
else closes a ledger recovers it, which is one more change; and the broker, which finds itself fenced, logs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bk_spark import BookKeeper
from bk_spark.local.cluster import ROOT
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.metadata.znodes import Znodes
from tests.soak.pulsar.managed_ledgers import LedgerInfo, ledgers_of

FENCED = re.compile("fenced", re.IGNORECASE)

CREATED, CLOSED = 0, 1
"""Versions of a ledger's metadata."""

SHOWN = 5


@dataclass(slots=True)
class Hands:
    """What was found."""

    open_ledgers: int = 0
    closed_ledgers: int = 0
    log_lines: int = 0
    """Of the broker, looked at."""
    violations: list[str] = field(default_factory=list)


def look(bookkeeper: BookKeeper, partitions: Iterable[str], log: Path, *, was_killed: bool = False) -> Hands:
    """``partitions`` as in ``tenant/namespace/persistent/name``. While the broker runs, and nobody writes.

    A broker that was killed recovers its ledgers when it is back: then who changed them does not show.
    """
    hands = Hands()
    for partition in partitions:
        infos = ledgers_of(bookkeeper.metadata_store, partition)
        for info in infos:
            told = _judge(bookkeeper, info, hands, is_last=info is infos[-1], was_killed=was_killed)
            hands.violations += [f"ledger {info.ledger_id} of {partition} {one}" for one in told]
    hands.violations += [] if was_killed else _fenced(log, hands)
    return hands


def partition_names(topic: str, partitions: int) -> Sequence[str]:
    """As Pulsar names managed ledgers. ``topic`` is a whole name; 0 partitions for a topic without."""
    namespace, _, name = topic.removeprefix("persistent://").rpartition("/")
    whole = f"{namespace}/persistent/{name}"
    return [f"{whole}-partition-{number}" for number in range(partitions)] or [whole]


def _judge(bookkeeper: BookKeeper, info: LedgerInfo, hands: Hands, *, is_last: bool, was_killed: bool) -> list[str]:
    metadata = bookkeeper.ledger_metadata(info.ledger_id)
    found = bookkeeper.metadata_store.get(Znodes(ROOT).ledger(info.ledger_id))
    hands.open_ledgers += metadata.state is LedgerState.OPEN
    hands.closed_ledgers += metadata.is_closed
    wanted = CREATED if is_last else CLOSED
    told = []
    if metadata.state is not (LedgerState.OPEN if is_last else LedgerState.CLOSED):
        told.append(f"is {metadata.state.name}, and it is {'' if is_last else 'not '}the last one")
    if found.version != wanted and not was_killed:
        told.append(f"was changed {found.version} times, and its broker did {wanted} times")
    if not is_last and _entries(metadata) != info.entries:
        told.append(f"has {_entries(metadata)} entries, and its broker closed it with {info.entries}")
    return told


def _entries(metadata: LedgerMetadata) -> int:
    return (-1 if metadata.last_entry_id is None else metadata.last_entry_id) + 1


def _fenced(log: Path, hands: Hands) -> list[str]:
    with log.open(errors="replace") as lines:
        told = []
        for line in lines:
            hands.log_lines += 1
            if FENCED.search(line):
                told.append(line.strip())
    return [f"the broker's log: {len(told)} lines such as {one}" for one in told[:SHOWN]]
