"""How large a cluster is made, all of it in proportion to its ledgers."""

from __future__ import annotations

from dataclasses import dataclass

BOOKIES = 10
"""Bookies that ledgers name, with three copies each: so each bookie holds three of ten ledgers. Three of them run."""
PER_COMMIT = 10
"""Ledgers of one commit to the long log, as of a streaming sink with ten partitions."""
LEDGERS_OF_LOG = 10
"""Of each of the many logs."""


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster with ``ledgers`` ledgers in one long log, and a tenth of that in many other logs."""

    ledgers: int

    @property
    def versions(self) -> int:
        """Of the long log."""
        return self.ledgers // PER_COMMIT

    @property
    def logs(self) -> int:
        """All of them: 10,000, the most that a cluster has, beside 1,000,000 ledgers."""
        return max(5, self.ledgers // 100)

    @property
    def followed_logs(self) -> int:
        """Those whose names fit the pattern of a stream."""
        return max(2, self.ledgers // 500)

    @property
    def orphans(self) -> int:
        """Writes that were given up, and as many logs that never came to be."""
        return max(2, self.ledgers // 1_000)

    @property
    def held(self) -> int:
        """Ledgers that one bookie holds."""
        return self.ledgers * 3 // BOOKIES

    @property
    def tailed_ledgers(self) -> int:
        return max(1, self.ledgers // 5_000)

    @property
    def tails(self) -> int:
        return 10 * self.tailed_ledgers

    @property
    def writers(self) -> int:
        """That one process has open."""
        return max(2, self.ledgers // 200)

    @property
    def watches(self) -> int:
        """Of one session."""
        return max(2, self.ledgers // 100)
