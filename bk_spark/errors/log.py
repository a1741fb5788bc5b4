"""Errors about logs: what is written to them, read from them, and the jobs that do it. The tree: ``errors/__init__.py``."""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.errors.general import BookKeeperError


@dataclass(eq=False)
class SchemaMismatchError(BookKeeperError):
    """A DataFrame does not fit the schema of the log that it is appended to."""

    log: str
    problem: str

    def __str__(self) -> str:
        return f"the data does not fit the schema of log '{self.log}': {self.problem}"


@dataclass(eq=False)
class NoSuchLogError(BookKeeperError):
    """There is no log of this name, or it was deleted since it was opened."""

    name: str

    def __str__(self) -> str:
        return f"there is no log '{self.name}': 'bk-spark log list' shows what there is"


@dataclass(eq=False)
class DataLossError(BookKeeperError):
    """What a reader of a log was to read next is gone: truncated, or older than what the log retains."""

    log: str
    problem: str

    def __str__(self) -> str:
        remedy = "to go on from the first row there is, set failOnDataLoss to false"
        return f"rows of log '{self.log}' are gone before they were read: {self.problem}; {remedy}"

    @property
    def warning(self) -> str:
        """The sentence where ``failOnDataLoss`` is false."""
        return f"rows of log '{self.log}' were gone before they were read, and are skipped: {self.problem}"


@dataclass(eq=False)
class LogReplacedError(BookKeeperError):
    """A commit replaced content of the log that a stream reads, whose option ``overwrites`` is ``fail``."""

    log: str
    version: int

    def __str__(self) -> str:
        remedy = "set option 'overwrites' to read (the new content) or skip (only what is appended to it)"
        return f"version {self.version} of log '{self.log}' replaced content that is being read as a stream: {remedy}"


@dataclass(eq=False)
class JobFailedError(BookKeeperError):
    """A Spark job that bk_spark started failed. ``problem`` is what the task that failed said."""

    what: str
    problem: str
    consequence: str = "nothing of it is visible"

    def __str__(self) -> str:
        return f"{self.what} failed, {self.consequence}: {self.problem}"


@dataclass(eq=False)
class JobEndedError(BookKeeperError):
    """A write job has ended, by its commit, an abort or the sweep: what this attempt wrote is not kept."""

    log: str
    job_id: str

    def __str__(self) -> str:
        what = f"write job {self.job_id} on log '{self.log}' has ended"
        return f"{what}: this attempt's data is not kept, write it again as a new job"
