"""Re-replication as a Spark job: the Spark cluster copies what a lost bookie held, a group of ledgers a task.

The driver lists the ledgers that name the bookie and groups them (``groups.py``); each task copies its group,
several ledgers side by side, with the code that AutoRecovery uses (``rereplicator.py``) and under the same locks. So it may
run beside AutoRecovery, and a task that Spark repeats or runs twice finds what is done and does it not again. Nothing that a
task says is believed in the end: the driver lists anew, in rounds, until no ledger names the bookie. It ends with problems
when after a round the same ledgers name it and none was locked by somebody else.

It is a DataFrame job, ``mapInArrow`` over a range, so it runs on classic Spark and on Spark Connect alike. ``bk_spark`` must be
importable on the executors. ``time`` is here for the pause that locks of others, or of a task that was killed, are given.

Ref: docs/rules.md, protocol rules 53 to 56; situations 40 and 76.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.replication.groups import LedgersNaming, groups, ledgers_naming
from bk_spark.client.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.client.replication.rereplicator import Rereplicator
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.config import ClientConfig
from bk_spark.datasource.jobs.compact_log import sentence_of
from bk_spark.errors import ConfigError, JobFailedError
from bk_spark.metadata.store import NoNodeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCKED_ROUNDS = 6
"""Rounds in a row that change nothing, with ledgers that are locked by others. A dead task's locks go after one."""

Tell = Callable[[str, int, int], None]
"""What is done, how much of it, of how much."""

_FIELDS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("ledger_id", pa.int64(), "BIGINT"),
    ("is_whole", pa.bool_(), "BOOLEAN"),
    ("is_locked", pa.bool_(), "BOOLEAN"),
    ("fragments", pa.int64(), "BIGINT"),
    ("entries", pa.int64(), "BIGINT"),
    ("nbytes", pa.int64(), "BIGINT"),
    ("problem", pa.string(), "STRING"),
)
_RESULT = pa.schema([(name, kind) for name, kind, _ in _FIELDS])
_RESULT_DDL = ", ".join(f"{name} {ddl}" for name, _, ddl in _FIELDS)


@dataclass(frozen=True, slots=True)
class ReplicationReport:
    """What was done for one bookie. Copies that a repeated task made are counted once, those of a lost one not at all."""

    bookie_id: str
    ledgers: int
    """Made whole by this call."""
    fragments: int
    entries: int
    nbytes: int
    rounds: int
    problems: tuple[str, ...]
    """Ledgers that still name the bookie, or may, and why: a sentence each. None: no ledger names it."""


def replicate_with_spark(
    spark: SparkSession,
    metadata_uri: str,
    bookie_id: str,
    *,
    force: bool = False,
    config: ClientConfig | None = None,
    recovery: AutoRecoveryConfig | None = None,
    tell: Tell = lambda what, done, total: None,
) -> ReplicationReport:
    """Give every fragment that names ``bookie_id`` another bookie in its place, with all its entries.

    Of ``recovery`` count parallel_ledgers and replicate_bytes_per_s, of each task, and open_fragment_grace_s: a ledger that is
    still written to, and whose writer does not replace the bookie within it, is fenced and closed. AutoRecovery need not
    run, and may; that it is disabled does not matter. The bookie's cookie stays. May be repeated after any error.

    Raises ConfigError where the bookie is registered and not ``force`` (only with a read-only one does that end: writers go on
    to choose a writable one), or where neither a ledger nor a cookie knows it; JobFailedError; MetadataUnavailableError.
    """
    plan = _Plan(metadata_uri, bookie_id, config or ClientConfig(), recovery or AutoRecoveryConfig())
    with BookKeeper(metadata_uri, plan.config) as client:
        if not force:
            check_is_gone(client, bookie_id)
        return _Replication(spark, client, plan, tell).run()


def check_is_gone(client: BookKeeper, bookie_id: str) -> None:
    """Raises ConfigError if the bookie is registered."""
    if any(one.bookie_id == bookie_id for one in client.list_bookies()):
        remedy = "it is registered and serves what it holds: decommission it, or stop it first, or force it"
        raise ConfigError("the bookie to re-replicate", bookie_id, remedy)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What goes to every task."""

    metadata_uri: str
    bookie_id: str
    config: ClientConfig
    recovery: AutoRecoveryConfig
    groups: tuple[Sequence[int], ...] = ()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of groups → what became of each of their ledgers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = self._copy(self.groups[number])
                columns = [[getattr(one, name) for one in done] for name in _RESULT.names]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(c, f.type) for c, f in zip(columns, _RESULT, strict=True)], schema=_RESULT
                )

    def _copy(self, ledger_ids: Sequence[int]) -> list[RereplicatedLedger]:
        """With a session of its own, whose locks go when the task ends, however it ends."""
        done: list[RereplicatedLedger] = []
        with BookKeeper(self.metadata_uri, self.config) as client:
            rereplicator = Rereplicator(client.context, self.recovery, owner=f"bk-spark replicate {self.bookie_id}")
            rereplicator.rereplicate_many(ledger_ids, {self.bookie_id}, done.append)
        return done


@dataclass(slots=True)
class _Sums:
    ledgers: int = 0
    fragments: int = 0
    entries: int = 0
    nbytes: int = 0
    rounds: int = 0
    problems: dict[int, str] = field(default_factory=dict)
    """Of the last round."""


class _Replication:
    """One call."""

    def __init__(self, spark: SparkSession, client: BookKeeper, plan: _Plan, tell: Tell) -> None:
        self._spark = spark
        self._client = client
        self._plan = plan
        self._tell = tell
        self._sums = _Sums()

    def run(self) -> ReplicationReport:
        found, standstills = self._naming(), 0
        if not found.shares:
            self._check_is_known(found)
        while found.shares:
            is_locked = any(row.is_locked for row in self._round(found))
            if is_locked:
                time.sleep(self._plan.config.session_timeout_s)
            before, found = found, self._naming()
            standstills = 0 if _ids(before) - _ids(found) else standstills + 1
            if standstills and (not is_locked or standstills == LOCKED_ROUNDS):
                break
        return self._report(found)

    def _naming(self) -> LedgersNaming:
        store, znodes = self._client.metadata_store, self._client.znodes
        return ledgers_naming(store, znodes, self._plan.bookie_id, lambda done: self._tell("ledgers looked at", done, done))

    def _round(self, found: LedgersNaming) -> list[Any]:
        """One Spark job over all that was found; gives back its rows."""
        plan, config = self._plan, tuple(groups(found.shares))
        tasks = _Plan(plan.metadata_uri, plan.bookie_id, plan.config, plan.recovery, config)
        frame = self._spark.range(0, len(config), 1, len(config)).mapInArrow(tasks.run, _RESULT_DDL)
        try:
            rows: list[Any] = frame.collect()
        except (PySparkException, Py4JJavaError) as problem:
            what = f"the re-replication of bookie {plan.bookie_id}"
            raise JobFailedError(what, sentence_of(problem), "what was made whole stays so, run it again") from None
        self._add(rows)
        self._tell("ledgers", self._sums.ledgers, self._sums.ledgers + len(self._sums.problems))
        return rows

    def _add(self, rows: Sequence[Any]) -> None:
        sums = self._sums
        sums.rounds += 1
        sums.ledgers += sum(row.is_whole for row in rows)
        sums.fragments += sum(row.fragments for row in rows)
        sums.entries += sum(row.entries for row in rows)
        sums.nbytes += sum(row.nbytes for row in rows)
        sums.problems = {row.ledger_id: row.problem for row in rows if not row.is_whole}

    def _check_is_known(self, found: LedgersNaming) -> None:
        """A name that was mistyped must not look like a bookie that nothing needs any more."""
        if found.unreadable:
            return
        with contextlib.suppress(NoNodeError):
            self._client.metadata_store.get(self._client.znodes.cookie(self._plan.bookie_id))
            return
        remedy = "no ledger names it and it has no cookie: see 'bk-spark bookie list' and 'bk-spark ledger show'"
        raise ConfigError("the bookie to re-replicate", self._plan.bookie_id, remedy)

    def _report(self, found: LedgersNaming) -> ReplicationReport:
        sums = self._sums
        left = [_told(share.ledger_id, sums.problems.get(share.ledger_id, "it was not copied")) for share in found.shares]
        problems = (*left, *found.unreadable)
        return ReplicationReport(
            self._plan.bookie_id, sums.ledgers, sums.fragments, sums.entries, sums.nbytes, sums.rounds, problems
        )


def _ids(found: LedgersNaming) -> set[int]:
    return {share.ledger_id for share in found.shares}


def _told(ledger_id: int, problem: str) -> str:
    name = f"ledger {ledger_id}"
    return problem if name in problem else f"{name}: {problem}"
