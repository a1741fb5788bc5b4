"""What tests of logs ask of a commit, in short."""

from __future__ import annotations

import json

from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind


def schema_json(**columns):
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def append(*ledgers, **more):
    return CommitRequest(CommitKind.APPEND, tuple(ledgers), **more)


def overwrite(*ledgers, **more):
    return CommitRequest(CommitKind.OVERWRITE, tuple(ledgers), **more)


def replacement(remove, *ledgers):
    return CommitRequest(CommitKind.REPLACE, tuple(ledgers), remove=tuple(one.ledger_id for one in remove))


def write(world, name, *ledgers, request=append, logs=None, **more):
    logs = logs or world.logs
    job = logs.jobs.begin(name)
    return logs.commit(job, request(*(ledgers or [world.job_ledger(job)]), **more))


def ids(*ledgers):
    return [one.ledger_id for one in ledgers]
