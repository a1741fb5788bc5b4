"""Plans a compaction: which ledgers of a log are worth merging. Pure.

A ledger below half of the target is *small*. Small neighbours are merged, in log order, until the next one would exceed the
target; a group of one is left alone. A ledger of at least half of the target stays as it is, so a byte is rewritten a bounded
number of times, however often compaction runs. Only ledgers of one lane are merged, and none of a span.

In a secured log ledgers without keys are rewritten, too, whatever their size and neighbours.

A commit replaces one stretch of a log. Groups that touch each other form one stretch, and each stretch is committed by
itself. If somebody truncates or replaces a ledger meanwhile, only the stretch with that ledger fails.

Worked example, target 100: of ledgers of 20, 30, 40, 30, 80, 10, 10 and 60 bytes the first three become one and the two of 10
become one: two stretches, two commits. The second 30 has no small neighbour left that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bk_spark.config import MIB
from bk_spark.errors import ConfigError
from bk_spark.log.stored.values import CommittedLedger, Totals

TARGET_BYTES = 128 * MIB
"""What a partition reads by default: a ledger of this size is read by one task without being split."""

MAX_GROUP_LEDGERS = 2000
"""One task opens them one after the other, at about two milliseconds each. Ten thousand ledgers still give five tasks."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What one compaction did."""

    log: str
    version: int
    """The newest version after it."""
    commits: int
    """0 where there was nothing to do."""
    removed: Totals
    added: Totals


@dataclass(frozen=True, slots=True)
class LedgerGroup:
    """Ledgers of one lane that follow each other in a log and become one."""

    ledgers: tuple[CommittedLedger, ...]

    @property
    def total(self) -> Totals:
        return Totals.of(self.ledgers)

    @property
    def lane(self) -> int:
        return self.ledgers[0].lane


@dataclass(frozen=True, slots=True)
class CompactionStretch:
    """Groups that follow each other without a gap: what one commit replaces."""

    groups: tuple[LedgerGroup, ...]

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """What the commit removes, in log order."""
        return tuple(one.ledger_id for group in self.groups for one in group.ledgers)


def plan_compaction(
    listed: Sequence[CommittedLedger], target_bytes: int = TARGET_BYTES, without_key: frozenset[int] = frozenset()
) -> list[CompactionStretch]:
    """What to merge of the CLOSED ledgers that a log lists, given in log order; empty if there is nothing to do.

    Those of ``without_key`` are rewritten in any case, unless they are of a span: a compaction by key rewrites that.
    Raises ConfigError for a target that is no positive number of bytes.
    """
    if type(target_bytes) is not int or target_bytes < 1:
        raise ConfigError("target_bytes", target_bytes, "it must be a number of bytes, at least 1")
    stretches: list[list[LedgerGroup]] = []
    behind = None
    for start, group in _groups(listed, target_bytes, without_key):
        if start != behind:
            stretches.append([])
        stretches[-1].append(group)
        behind = start + len(group.ledgers)
    return [CompactionStretch(tuple(groups)) for groups in stretches]


def _groups(
    listed: Sequence[CommittedLedger], target_bytes: int, without_key: frozenset[int]
) -> Iterator[tuple[int, LedgerGroup]]:
    """Groups of two ledgers or more, or of one without a key, each with its place in the list."""
    start = 0
    while start < len(listed):
        stop = max(_end_of_group(listed, start, target_bytes), start + 1)
        first = listed[start]
        if stop - start > 1 or (first.ledger_id in without_key and first.span is None):
            yield start, LedgerGroup(tuple(listed[start:stop]))
        start = stop


def _end_of_group(listed: Sequence[CommittedLedger], start: int, target_bytes: int) -> int:
    size, stop = 0, start
    while stop < len(listed) and stop - start < MAX_GROUP_LEDGERS:
        length = listed[stop].length
        is_other = listed[stop].lane != listed[start].lane or listed[stop].span is not None
        if 2 * length >= target_bytes or size + length > target_bytes or is_other:
            break
        size, stop = size + length, stop + 1
    return stop
