"""When a tail of rows looks again, how long it waits, and when it ends or gives up. Pure."""

from __future__ import annotations

from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.log.stream.waits import HEARTBEAT_S, PATIENCE_S

POLL_S = 1.0
"""The longest wait at the bookies of an open ledger: they do not know of the log's next commit, which is looked for then."""


class TailPace:
    """Of a tail that ends once nothing came for ``timeout_s``; None: never. Raises ConfigError. Times are of one clock."""

    def __init__(self, timeout_s: float | None) -> None:
        if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s < 0):
            raise ConfigError("timeout_s", timeout_s, "it must be a number of seconds from 0 on, or None")
        self._timeout_s = timeout_s
        self._gave_s = 0.0
        self._looked_s = 0.0
        self._has_given = False

    def begin(self, now_s: float) -> None:
        self._gave_s = self._looked_s = now_s

    def gave(self, now_s: float) -> None:
        """Rows were given, and the consumer is done with them."""
        self._gave_s, self._has_given = now_s, True

    def wait_s(self, now_s: float, *, leader: bool) -> float | None:
        """How long to wait behind a look; None: the tail is at its end. ``leader`` says whether a ledger is open.

        What came while the consumer had the rows is looked for before any wait.
        """
        self._looked_s = now_s
        has_given, self._has_given = self._has_given, False
        if has_given:
            return 0.0
        most_s = POLL_S if leader else HEARTBEAT_S
        if self._timeout_s is None:
            return most_s
        left_s = self._gave_s + self._timeout_s - now_s
        return min(most_s, left_s) if left_s > 0 else None

    def may_retry(self, problem: BookKeeperError, now_s: float) -> bool:
        """Whether a look that failed is to be repeated after RETRY_S."""
        return problem.retryable and now_s <= max(self._looked_s, self._gave_s) + PATIENCE_S
