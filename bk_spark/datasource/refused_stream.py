"""A stream that cannot be read: it gives its error when Spark first asks it for something.

Where ``streamReader()`` itself raises, Spark 4.3 fails once more on its way out, and its user reads last of all that a local
variable named 'reader' is missing. What a reader's methods raise ends the query with that error alone.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bk_spark.errors import BookKeeperError


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises ``problem`` at whatever Spark asks first."""

    def __init__(self, problem: BookKeeperError) -> None:
        self._problem = problem

    def getDefaultReadLimit(self) -> NoReturn:
        """With a trigger that has no limits of its own."""
        raise self._problem

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        """With this trigger."""
        raise self._problem

    def initialOffset(self) -> NoReturn:
        """With an empty checkpoint."""
        raise self._problem

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        """With a checkpoint whose last batch was committed."""
        raise self._problem

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """With a checkpoint whose last batch was not."""
        raise self._problem

    def read(self, partition: InputPartition) -> NoReturn:
        """Never, as no partitions are planned."""
        raise self._problem
