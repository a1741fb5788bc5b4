"""Has the processes of a cluster write down what they do, and holds that against the specification of the protocol."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from tests.simulation.engines.invariants import Violation
from tests.specification.actions import Ledger, encode
from tests.specification.judge import NotAllowedError
from tests.specification.recorded import actions_of, judge_recorded
from tests.specification.traced import traced

WRITTEN_S = 1.0
"""What a process has told by a moment it has written down by so long after it: it does nothing between the two."""


class Traces:
    """``directory`` has a file for each process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory

    def command(self, who: str, words: list[str]) -> list[str]:
        """``words``, a command of ours, so that it writes down what it does under the name ``who``."""
        return traced(self._directory / f"{who}.trace", words)

    def judge(self, client: BookKeeper, ledger_id: int, kept: Path) -> tuple[int, Violation | None]:
        """How many steps the trace has, and the first one that the specification does not have. ``kept`` gets the trace.

        Re-replication may go on meanwhile: what is judged ends when the metadata are read.
        """
        end, until_ns = _stored(client, ledger_id), time.monotonic_ns()
        time.sleep(WRITTEN_S)
        actions = actions_of(sorted(self._directory.iterdir()), ledger_id, until_ns)
        kept.write_text("".join(f"{encode(action)}\n" for action in actions))
        try:
            judge_recorded(actions, end)
        except NotAllowedError as problem:
            return len(actions), Violation("I18", str(problem))
        return len(actions), None

    def forget(self) -> None:
        """All that was told so far."""
        for file in self._directory.iterdir():
            os.truncate(file, 0)


def _stored(client: BookKeeper, ledger_id: int) -> tuple[int, Ledger]:
    metadata, version = client._ledgers.versioned(ledger_id)
    return version, Ledger.of(metadata)
