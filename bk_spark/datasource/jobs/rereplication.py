"""Re-replication as a Spark job: the Spark cluster copies what a lost bookie held, a group of ledgers in each task.

The driver lists the ledgers that name the bookie and groups them (``groups.py``). Each task copies its group, several ledgers
side by side, with AutoRecovery's code (``rereplicator.py``) and under the same locks. So the job may run beside AutoRecovery,
and a task that Spark repeats or runs twice skips what is done. The driver does not rely on the tasks' results: it lists anew,
in rounds, until no ledger names the bookie. It ends with problems when the same ledgers name the bookie after a round as before
it, and nobody else had locked one of them.

``time`` is here for the pause in which locks of others, or of a task that was killed, may go.

Ref: docs/rules.md, protocol rules 53 to 56; situations 40 and 76.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.datasource.jobs.spark_job import SparkJob
from bk_spark.errors import ConfigError
from bk_spark.metadata.store import find
from bk_spark.progress import Progress, no_progress
from bk_spark.replication.groups import LedgersNaming, groups, ledgers_naming
from bk_spark.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCKED_ROUNDS = 6
"""Limit of rounds in a row that change nothing while others hold locks. The locks of a dead task go after one round."""

_COUNTS = [(name, pa.int64()) for name in ("ledger_id", "fragments", "entries", "nbytes")]
_RESULT = pa.schema([*_COUNTS, ("is_whole", pa.bool_()), ("is_locked", pa.bool_()), ("problem", pa.string())])
"""The fields of RereplicatedLedger that tasks report."""


@dataclass(frozen=True, slots=True)
class ReplicationReport:
    """What was done for one bookie. Copies that a repeated task made are counted once, those of a lost task not at all."""

    bookie_id: str
    ledgers: int = 0
    """Ledgers that this call made whole."""
    fragments: int = 0
    entries: int = 0
    nbytes: int = 0
    rounds: int = 0
    problems: tuple[str, ...] = ()
    """A sentence for each ledger that still names the bookie, or may. Empty: no ledger names it."""


def replicate_with_spark(
    spark: SparkSession,
    metadata_uri: str,
    bookie_id: str,
    *,
    force: bool = False,
    config: ClientConfig | None = None,
    recovery: AutoRecoveryConfig | None = None,
    tell: Progress = no_progress,
) -> ReplicationReport:
    """Replace ``bookie_id`` by another bookie in every fragment that names it, and copy the entries there.

    Of ``recovery``, parallel_ledgers and replicate_bytes_per_s apply to each task; open_fragment_grace_s is how long the writer
    of an open ledger has to replace the bookie itself before the ledger is fenced and closed. AutoRecovery may run or not, be
    enabled or disabled. The bookie's cookie stays. May be repeated after any error.

    Raises ConfigError where the bookie is registered and not ``force`` (with ``force`` it must be read-only, since writers go
    on to choose a writable one), or where neither a ledger nor a cookie knows it; JobFailedError; MetadataUnavailableError.
    """
    plan = _Plan(metadata_uri, bookie_id, config or ClientConfig(), recovery or AutoRecoveryConfig())
    with BookKeeper(metadata_uri, plan.config) as client:
        check_can_be_replicated(client, bookie_id, force=force)
        return _Replication(spark, client, plan, tell).run()


def check_can_be_replicated(client: BookKeeper, bookie_id: str, *, force: bool) -> None:
    """Raises ConfigError for a bookie that is registered, unless it is forced, and for an unknown one.

    A mistyped id must not look like a bookie that no ledger needs.
    """
    what = "the bookie to re-replicate"
    if not force and any(bookie.bookie_id == bookie_id for bookie in client.list_bookies()):
        remedy = "it is registered and serves what it holds: decommission it, or stop it first, or force it"
        raise ConfigError(what, bookie_id, remedy)
    store, znodes = client.metadata_store, client.znodes
    store.sync(znodes.root)
    if find(store, znodes.cookie(bookie_id)) is not None:
        return
    found = ledgers_naming(store, znodes, bookie_id, lambda _: None, limit=1)
    if not found.shares and not found.unreadable:
        remedy = "no ledger names it and it has no cookie: see 'bk-spark bookie list' and 'bk-spark ledger show ID'"
        raise ConfigError(what, bookie_id, remedy)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Pickled to every task."""

    metadata_uri: str
    bookie_id: str
    config: ClientConfig
    recovery: AutoRecoveryConfig
    groups: tuple[Sequence[int], ...] = ()

    def copy_group(self, number: int) -> list[dict[str, Any]]:
        """Copy the ledgers of one group. Its client has a session of its own, whose locks go when the task ends in any way."""
        done: list[RereplicatedLedger] = []
        with BookKeeper(self.metadata_uri, self.config) as client:
            rereplicator = Rereplicator(client.context, self.recovery, owner=f"bk-spark replicate {self.bookie_id}")
            rereplicator.rereplicate_many(self.groups[number], {self.bookie_id}, done.append)
        return [{name: getattr(ledger, name) for name in _RESULT.names} for ledger in done]


class _Replication:
    """One call of ``replicate_with_spark``."""

    def __init__(self, spark: SparkSession, client: BookKeeper, plan: _Plan, tell: Progress) -> None:
        self._spark = spark
        self._client = client
        self._plan = plan
        self._tell = tell
        self._report = ReplicationReport(plan.bookie_id)
        self._problems: dict[int, str] = {}
        """Ledger id → why the last round did not make it whole."""

    def run(self) -> ReplicationReport:
        found, standstills = self._naming(), 0
        while found.shares:
            is_locked = self._run_round(found)
            if is_locked:
                time.sleep(self._plan.config.session_timeout_s)
            before, found = found, self._naming()
            standstills = 0 if _ids(before) - _ids(found) else standstills + 1
            if standstills and (not is_locked or standstills == LOCKED_ROUNDS):
                break
        left = [_sentence(share.ledger_id, self._problems) for share in found.shares]
        return replace(self._report, problems=(*left, *found.unreadable))

    def _naming(self) -> LedgersNaming:
        store, znodes = self._client.metadata_store, self._client.znodes
        return ledgers_naming(store, znodes, self._plan.bookie_id, lambda done: self._tell("ledgers looked at", done, done))

    def _run_round(self, found: LedgersNaming) -> bool:
        """Run one Spark job over all ledgers found. Returns whether others had locked some of them."""
        plan = replace(self._plan, groups=tuple(groups(found.shares)))
        what = f"the re-replication of bookie {plan.bookie_id}"
        spark_job = SparkJob(what, "what was made whole stays so, run it again", plan.copy_group, _RESULT)
        rows = spark_job.run(self._spark, len(plan.groups))
        sums = self._report
        self._report = replace(
            sums,
            rounds=sums.rounds + 1,
            ledgers=sums.ledgers + sum(row.is_whole for row in rows),
            fragments=sums.fragments + sum(row.fragments for row in rows),
            entries=sums.entries + sum(row.entries for row in rows),
            nbytes=sums.nbytes + sum(row.nbytes for row in rows),
        )
        self._problems = {row.ledger_id: row.problem for row in rows if not row.is_whole}
        self._tell("ledgers", self._report.ledgers, self._report.ledgers + len(self._problems))
        return any(row.is_locked for row in rows)


def _ids(found: LedgersNaming) -> set[int]:
    return {share.ledger_id for share in found.shares}


def _sentence(ledger_id: int, problems: Mapping[int, str]) -> str:
    problem, name = problems.get(ledger_id, "it was not copied"), f"ledger {ledger_id}"
    return problem if name in problem else f"{name}: {problem}"
