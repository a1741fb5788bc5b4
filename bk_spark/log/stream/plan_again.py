"""Planning that a vacuum may meet: it removes records and ledgers that the plan was about to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from bk_spark.errors import ConfigError, DataLossError
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.values import Head

_TRIES = 5
"""Each run of a vacuum raises the oldest version at most once: five such runs do not fall into one planning."""

_Plan = TypeVar("_Plan")


def planned(names: LogNames, uid: str, head: Head, plan: Callable[[Head], _Plan]) -> _Plan:
    """Call ``plan`` with ``head``; call it again where a vacuum removed meanwhile what it looked at.

    Removed is not lost: the rows of a deleted ledger may be in those that a compaction put in its place.
    """
    for _ in range(_TRIES):
        try:
            return plan(head)
        except (ConfigError, DataLossError):
            now = names.head(head.name, uid)
            if now.oldest_version == head.oldest_version:
                raise
            head = replace(head, oldest_version=now.oldest_version, oldest_record=now.oldest_record)
    return plan(head)
