"""Committing a write job from a client, so that whatever happens its ledgers end up either listed or deleted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bk_spark.client.log_jobs import WriteJob
from bk_spark.client.log_layout import LogVersion
from bk_spark.client.log_plan import CommitRequest
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.metadata_store import StoreError, TransactionFailedError

if TYPE_CHECKING:
    from bk_spark.client.log_store import LogStore

_LOGGER = logging.getLogger(__name__)


def commit_job(logs: LogStore, job: WriteJob, request: CommitRequest) -> LogVersion:
    """Commit, or end the job without a commit and raise why.

    A commit that fails may have taken effect, or still be on its way (log rule 1). Abort finds out, and deletes only what
    no commit can list any more; where it says that the commit came first, committing again only reads as which version.
    Raises what LogStore.commit does. After MetadataUnavailableError the outcome may be unknown: the log tells it later.
    """
    try:
        version = logs.commit(job, request)
    except BaseException as problem:
        if logs.abort(job) or not isinstance(problem, MetadataUnavailableError):
            raise
        version = logs.commit(job, request)
    if version.job_id == job.job_id:  # else there was nothing to commit, and the job was aborted
        _clear(logs, job, request)
    return version


def _clear(logs: LogStore, job: WriteJob, request: CommitRequest) -> None:
    """Delete the job's index and what it created and did not list. The commit is done, so a failure here is none of it."""
    opened = [] if request.opened is None else [request.opened]
    try:
        logs.finish(job, [one.ledger_id for one in request.ledgers] + opened)
    except (BookKeeperError, StoreError, TransactionFailedError) as problem:
        what = "write job %s committed to log '%s'; what it leaves behind is left to 'bk-spark orphans sweep': %s"
        _LOGGER.warning(what, job.job_id, job.log_name, problem)
