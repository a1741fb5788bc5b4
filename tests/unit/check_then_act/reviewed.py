"""Every place that the analysis finds in the product, and why it does no harm there.

An entry that nothing finds any more fails the test, as a finding without an entry does.
"""

from __future__ import annotations

OWN_NAME = "the znode's name is never used again, and only its maker or the end of its session deletes it"
NO_VALUE = (
    "a directory without a value: the store refuses to delete one that has children, and it is made anew where it is missed"
)
EXISTENCE = "the existence of the znode is what counts, not its value: it is made once, and never again after its deletion"
FINAL = "what was read is final: it never changes back"

REVIEWED: dict[str, dict[str, str]] = {
    # bookies
    "bookie/space/issued_ids.py:_finding": {
        "create": "a mark that is not needed any more keeps data, until an operator removes it"
    },
    # client
    "bookkeeper.py:BookKeeper._try_to_create": {"call": f"the check of a write job's znode in a creation: {EXISTENCE}"},
    "client/driver/runner.py:Runner._compare_and_set": {"any version": f"the guard of a worker's session: {OWN_NAME}"},
    "client/driver/runner.py:Runner._read": {
        "call, 2 times": "the end of what a meter measures: it only has the name of a job's end"
    },
    "client/ledger/ledger_store.py:LedgerStore._create": {"any version": f"the znode that issued the id: {OWN_NAME}"},
    "client/ledger/ledger_store.py:LedgerStore.new_id": {"call": f"the znode that issued the id: {OWN_NAME}"},
    "log/direct_readers.py:_mark": {
        "version of another read, 2 times": "head and secret change in one transaction, each at the version of its own read"
    },
    "log/secure_log.py:_mark": {"create": "it goes with the head at its version, and is refused where there is one already"},
    # tiers
    "lake/serve.py:TierServer._working_on": {
        "any version": "a sign of who works on a log: whoever takes another's away has the same work done twice, which is safe",
    },
    "lake/vacuum.py:TierVacuum._delete_records": {"any version, 2 times": f"records below the mark in the head: {FINAL}"},
    # logs
    "log/changes/delete.py:LogDeleter._remove": {"call, 2 times": f"a log that is being deleted stays so: {FINAL}"},
    "log/changes/delete.py:LogDeleter._remove_head": {"any version, 2 times": f"a log that is being deleted stays so: {FINAL}"},
    "log/changes/delete.py:LogDeleter._remove_job": {
        "call, 2 times": f"the end of a job of a log that is being deleted: {FINAL}"
    },
    "log/changes/jobs.py:WriteJobs._abort": {"call": f"the job has ended without a commit: {FINAL}"},
    "log/changes/jobs.py:WriteJobs.clear": {
        "call": f"the index of a job that has ended, once its ledgers are deleted: {FINAL}"
    },
    "log/changes/jobs.py:WriteJobs.creation_of_ledger": {"any version": EXISTENCE},
    "log/changes/jobs.py:WriteJobs.end": {"any version": f"tasks set it to show that they live, and end with it: {EXISTENCE}"},
    "log/changes/ledgers.py:LogLedgers._delete": {"call": "the path in the index goes with its ledger, whose version is given"},
    "log/changes/ledgers.py:LogLedgers._present": {"any version": f"a path in the index of ledgers has no value: {EXISTENCE}"},
    "log/changes/transaction.py:_end_of_job": {"any version": f"tasks set it to show that they live: {EXISTENCE}"},
    "log/changes/transaction.py:commit_operations": {"call": "the end of the job, beside the head at its version"},
    "log/cleanup/orphans.py:Orphans._remove_empty": {
        "any version": f"directories of a log that does not exist. Its head would be one of their children: {NO_VALUE}",
        "call": "checkpoints below a uid without a head are of a log that was deleted, and uids are drawn anew",
    },
    "log/cleanup/orphans.py:Orphans._remove_job": {
        "call": f"the pages of a job that has ended without a commit: {FINAL}",
        "version of another read": f"the version is that of the same directory: what was read besides is a job's end: {FINAL}",
    },
    "log/cleanup/records.py:LogRecords._delete": {
        "call, 3 times": f"records below the head's oldest_record, which only rises: {FINAL}"
    },
    "log/cleanup/records.py:LogRecords._finish_jobs": {
        "call": f"the job of a record below oldest_record has committed: {FINAL}"
    },
    "log/cleanup/records.py:LogRecords.delete_below": {"any version": NO_VALUE},
    "log/cleanup/records.py:LogRecords.delete_checkpoints": {"call": f"the head's vacuumed_version only rises: {FINAL}"},
    "log/cleanup/records.py:_deletions": {"any version": f"the record of a version, its pages and its job: {FINAL}"},
    "log/cleanup/store_clock.py:StoreTimes.now_ms": {"version of nothing": "the write is there for its time alone"},
    "log/cleanup/vacuum.py:LogVacuum._delete_records": {"call": f"the head's oldest_record only rises: {FINAL}"},
    "log/stored/tree.py:_remove_children": {"any version": "for its caller, and listed with each of those"},
    "log/stored/tree.py:remove_tree": {
        "any version": "for its callers, which are listed each",
        "call": "a child that is made meanwhile is refused, and listed by the next try",
    },
    "log/stream/cursors.py:LogCursors.publish": {
        "version of nothing": "a cursor shows where its query stands, and the last one that says so is right"
    },
    "log/stream/cursors.py:LogCursors.remove": {"any version": "an operator's order, whatever the cursor says"},
    # replication
    "replication/auditor_znodes.py:AuditorElection._find_or_vote": {"create": f"a vote has a number of its own: {OWN_NAME}"},
    "replication/auditor_znodes.py:AuditorElection.withdraw": {"any version": OWN_NAME},
    "replication/auditor_znodes.py:AuditorZnodes._overwrite": {
        "version of nothing": "the report and the time of a check: the last one that writes them is right"
    },
    "replication/lock.py:ReplicationLock.cut_off": {"any version": OWN_NAME},
    # metadata
    "metadata/ledger_ids.py:forget": {"any version": OWN_NAME},
    "metadata/ledger_ids.py:highest_issued_id": {"call": f"the znode that issued the id: {OWN_NAME}"},
    "metadata/ledger_ids.py:raise_ledger_ids": {"call": f"the znodes that issued ids: {OWN_NAME}"},
    "metadata/registration.py:register": {
        "any version": "the bookie's own registration in its other mode: the caller holds the lock of its directories"
    },
    "metadata/registration.py:remove_cookie": {
        "version of another read": "a bookie that starts raises its cookie's version, which was read first, before it registers"
    },
    "metadata/registration.py:unregister": {
        "any version": "the caller has seen the bookie's process end, and starts the next one"
    },
    "metadata/under_replication.py:UnderReplication._make_way": {"any version": NO_VALUE},
    "metadata/under_replication.py:UnderReplication._mark": {"call": NO_VALUE},
    "metadata/under_replication.py:UnderReplication._remove_empty": {"any version": NO_VALUE},
    "metadata/under_replication.py:UnderReplication._wake_workers": {
        "version of nothing": "the write is there to fire watches alone"
    },
    "metadata/under_replication.py:UnderReplication.enable": {"any version": "an operator's order: a switch without a value"},
    "metadata/under_replication.py:UnderReplication.remove": {"any version, 2 times": f"the guard: {OWN_NAME}; and {NO_VALUE}"},
}
