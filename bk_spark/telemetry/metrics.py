"""Declares every metric: name, text, labels. docs/metrics.md is the manual, and a test keeps it equal to this module.

There are five registries because a process can be a bookie, a client, AutoRecovery, a tierer of logs or a gateway, or several
of them.
*Asked* metrics get their values at each scrape: a bookie's from bookie/process/monitoring.py, a tierer's from lake/watch.py, a
gateway's from gateway/http.py.
"""

from __future__ import annotations

from bk_spark.telemetry.registry import Declarations

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for requests and syncs: a sync takes 0.05 to 20 ms, on a stalled disk seconds."""

LONG_SECONDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Bounds for background work."""

GROUPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Bounds for the requests of a group, at most 1,024."""

ENTRIES = (1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536)
"""Bounds for the entries of a batch, at most 65,536."""

SIZES = tuple(4.0**power for power in range(4, 13))
"""Bounds for bytes, 256 to 16 Mi: messages are hardly larger."""

_bookie = Declarations("bk_spark_bookie_")
_client = Declarations("bk_spark_client_")
_autorecovery = Declarations("bk_spark_autorecovery_")
_tier = Declarations("bk_spark_tier_")
_gateway = Declarations("bk_spark_gateway_")

BOOKIE = _bookie.registry
"""Metrics of the bookie that this process runs."""

CLIENT = _client.registry
"""Metrics of all clients in this process."""

AUTORECOVERY = _autorecovery.registry
"""Metrics of the auditor and the replication worker in this process."""

TIER = _tier.registry
"""Metrics of what tiers logs in this process."""

GATEWAY = _gateway.registry
"""Metrics of the gateway that this process runs."""

DESCRIBED = {
    "bookie": _bookie.described,
    "client": _client.described,
    "autorecovery": _autorecovery.described,
    "tier": _tier.described,
    "gateway": _gateway.described,
}
"""All metrics, for the manual."""

# AutoRecovery

UNDER_REPLICATED_LEDGERS = _autorecovery.gauge("under_replicated_ledgers", "Ledgers that are marked as under-replicated.")
LOST_BOOKIES = _autorecovery.gauge(
    "lost_bookies", "Bookies that are named by ledgers and are gone for longer than the grace period."
)
LEDGERS_IN_FEW_RACKS = _autorecovery.gauge(
    "ledgers_in_few_racks", "Ledgers whose copies could be in more racks or zones than they are, at the last audit."
)
IS_AUDITOR = _autorecovery.gauge("is_auditor", "1 if this process is the elected auditor, else 0.")
AUDITS = _autorecovery.counter("audits_total", "Audits that were completed, by kind.", ("kind",))
AUDIT_S = _autorecovery.histogram("audit_seconds", "How long an audit took, by kind.", LONG_SECONDS, ("kind",))
LEDGERS_REPLICATED = _autorecovery.counter("ledgers_replicated_total", "Ledgers that were made whole again.")
ENTRIES_REPLICATED = _autorecovery.counter("entries_replicated_total", "Entries that were copied to another bookie.")
BYTES_REPLICATED = _autorecovery.counter("bytes_replicated_total", "Bytes that were copied to another bookie.")
REPLICATION_FAILURES = _autorecovery.counter("replication_failures_total", "Tries that left a ledger under-replicated.")

# Tiers of logs: what this process did

TIERED_ROWS = _tier.counter("rows_total", "Rows that came into tables.")
TIERED_BYTES = _tier.counter("bytes_total", "Payload bytes of the ledgers whose rows came into tables.")
TIERED_LEDGERS = _tier.counter("ledgers_total", "Ledgers whose rows came into tables.")
TIER_STEPS = _tier.counter("steps_total", "Steps that were completed, each one change of a table.")
TIER_FILES = _tier.counter("files_written_total", "Data files that were written and proved.")
TIER_FILE_BYTES = _tier.counter("file_bytes_written_total", "Bytes of the data files that were written and proved.")
TIER_RELEASED = _tier.counter("ledgers_released_total", "Ledgers that were deleted from bookies, since tables have their rows.")
TIER_RELEASED_BYTES = _tier.counter(
    "released_bytes_total", "Payload bytes of the ledgers that were deleted from bookies, each counted once."
)
TIER_FAILURES = _tier.counter("failures_total", "Tries to tier a log that failed; each is tried again.")

# Tiers of logs: asked for at each scrape of tier serve

TIER_LOGS = _tier.asked_gauge("logs", "Logs that have a tier.")
TIER_UNKNOWN = _tier.asked_gauge("logs_unknown", "Logs whose tier could not be looked at, with or without one.")
TIER_BEHIND = _tier.asked_gauge("logs_behind", "Logs whose lag is above three times their tier_after_s, and above 900 s.")
TIER_LAG_S = _tier.asked_gauge(
    "lag_seconds", "Since the oldest closed ledger that its table does not have came into its log, over all logs; 0 for none."
)
TIER_LOG_LAG_S = _tier.asked_gauge(
    "log_lag_seconds", "As lag_seconds, of the logs that are behind; the 20 with the longest at most.", ("log",)
)
TIER_OPEN_S = _tier.asked_gauge(
    "open_seconds", "Since the oldest open ledger was opened, over all logs; its rows are tiered once it is closed."
)
TIER_WAITING_ROWS = _tier.asked_gauge("waiting_rows", "Rows of closed ledgers that tables do not have yet.")
TIER_WAITING_BYTES = _tier.asked_gauge("waiting_bytes", "Payload bytes of closed ledgers that tables do not have yet.")
TIER_TABLE_ROWS = _tier.asked_gauge("table_rows", "Rows of the newest versions of logs that tables have.")
TIER_TABLE_BYTES = _tier.asked_gauge("table_bytes", "Payload bytes of the ledgers that these rows came from.")
TIER_FAILING = _tier.asked_gauge("failing_logs", "Logs that this process failed to tier at its last try.")
TIER_LOG_FAILURES = _tier.asked_gauge(
    "log_failures", "Tries in a row that failed, by log; the 20 with the most at most.", ("log",)
)
TIER_LOOKED_S = _tier.asked_gauge("looked_seconds", "Since all logs were looked at: what waits is known from then.")

# Gateways: counted as it happens

GATEWAY_CALLS = _gateway.counter(
    "calls_total", "Calls that ended, by method of Flight and status of gRPC.", ("method", "status")
)
GATEWAY_BYTES = _gateway.counter("bytes_total", "Bytes of messages that callers took or sent, by direction.", ("direction",))
GATEWAY_ROWS = _gateway.counter("rows_total", "Rows that were read, or acknowledged to who appended them.", ("direction",))
GATEWAY_STALLED = _gateway.counter(
    "ended_calls_total", "Calls that the gateway ended: their callers stood still, or lost a right."
)

# Gateways: asked for at each scrape

GATEWAY_OPEN_CALLS = _gateway.asked_gauge("open_calls", "Calls that are open, by method of Flight.", ("method",))
GATEWAY_WAITING_CALLS = _gateway.asked_gauge(
    "waiting_calls", "Open calls whose callers have taken or sent nothing for 10 s; tails that wait for rows do not count."
)

# Clients: requests to single bookies, one batch each, and what writers do about failed bookies

ADDS = _client.counter("adds_total", "Adds that a bookie was sent, by its answer.", ("status",))
ADDED_BYTES = _client.counter("added_bytes_total", "Bytes of the batches that a bookie was sent.")
ADD_S = _client.histogram("add_seconds", "From the send of an add to the bookie's answer.", SECONDS)
READS = _client.counter("reads_total", "Reads that a bookie was asked for, by how they ended.", ("status",))
READ_BYTES = _client.counter("read_bytes_total", "Bytes of the batches that bookies sent.")
READ_S = _client.histogram("read_seconds", "From the request of a read to its last reply.", SECONDS)
ENSEMBLE_CHANGES = _client.counter("ensemble_changes_total", "Choices of another bookie for the place of one that failed.")
WITHOUT_SPARE = _client.counter("without_spare_total", "Times that no bookie was there for the place of one that failed.")
ERRORS = _client.counter(
    "errors_total", "Batches, reads, closes and recoveries that ended in an error, by its class.", ("error",)
)

# Bookies: counted as it happens; a request is one batch

BOOKIE_ADDS = _bookie.counter("adds_total", "Add requests that were answered, by status.", ("status",))
BOOKIE_ADDED_ENTRIES = _bookie.counter(
    "added_entries_total", "Entries of the add requests that were answered, by status.", ("status",)
)
BOOKIE_ADDED_BYTES = _bookie.counter(
    "added_bytes_total", "Bytes of the add requests that were answered, by status.", ("status",)
)
BOOKIE_ADD_S = _bookie.light_histogram("add_seconds", "From the receipt of an add to its reply.", SECONDS)
BOOKIE_ADD_ENTRIES = _bookie.light_histogram("add_batch_entries", "Entries of an add request.", ENTRIES)
BOOKIE_ADD_BYTES = _bookie.light_histogram("add_batch_bytes", "Bytes of an add request.", SIZES)
BOOKIE_COPIED_ENTRIES = _bookie.counter(
    "copied_entries_total", "Entries that recoveries, re-replications and its own repair brought to it."
)
BOOKIE_COPIED_BYTES = _bookie.counter(
    "copied_bytes_total", "Bytes that recoveries, re-replications and its own repair brought to it."
)
BOOKIE_READS = _bookie.counter("reads_total", "Read requests, by how they ended.", ("status",))
BOOKIE_READ_ENTRIES = _bookie.counter("read_entries_total", "Entries of the batches that were sent to readers.")
BOOKIE_READ_BYTES = _bookie.counter("read_bytes_total", "Bytes of the batches that were sent to readers.")
BOOKIE_READ_S = _bookie.histogram("read_seconds", "From the receipt of a read to its last reply.", SECONDS)
BOOKIE_CONFIRMED_READS = _bookie.counter(
    "last_add_confirmed_reads_total", "Reads of a last add confirmed that were answered, by status.", ("status",)
)
BOOKIE_FENCES = _bookie.counter("fences_total", "Fences that were asked for, by status.", ("status",))
BOOKIE_GROUP_S = _bookie.light_histogram(
    "group_sync_seconds", "How long it took to make one group of requests durable, all files together.", SECONDS
)
BOOKIE_GROUP_REQUESTS = _bookie.light_histogram("group_requests", "Requests that shared one sync.", GROUPS)
BOOKIE_GROUP_BYTES = _bookie.light_histogram("group_bytes", "Bytes that shared one sync.", SIZES)
BOOKIE_SYNC_S = _bookie.histogram(
    "sync_seconds", "How long one fdatasync took, by kind of file: journal, entry_log, other.", SECONDS, ("file",)
)
BOOKIE_CHECKPOINT_S = _bookie.histogram("checkpoint_seconds", "How long the slow part of a checkpoint took.", LONG_SECONDS)

# Bookies: asked for at each scrape

BOOKIE_INFO = _bookie.asked_gauge("info", "1; the version that runs.", ("version",))
BOOKIE_UPTIME_S = _bookie.asked_gauge("uptime_seconds", "Since this process began to serve.")
BOOKIE_READY = _bookie.asked_gauge("ready", "1 if it takes adds, as /ready says, else 0.")
BOOKIE_READ_ONLY = _bookie.asked_gauge("read_only", "1 if its disks are too full for adds or an operator ordered it, else 0.")
BOOKIE_FAILED = _bookie.asked_gauge("failed", "1 if a write, sync or commit failed, so that it takes no change.")
BOOKIE_EPOCH_AGE_S = _bookie.asked_gauge(
    "epoch_age_seconds", "Since its last boot epoch in the metadata store began; from epoch_timeout_s on it takes no changes."
)
BOOKIE_ZOOKEEPER_CONNECTED = _bookie.asked_gauge("zookeeper_connected", "1 while it has a connection to ZooKeeper, else 0.")
BOOKIE_ZOOKEEPER_LOST = _bookie.asked_counter(
    "zookeeper_sessions_lost_total", "ZooKeeper sessions that ended without its doing; it registers again in the next one."
)
BOOKIE_ZOOKEEPER_CHANGED_S = _bookie.asked_gauge(
    "zookeeper_changed_seconds", "Since the connection to ZooKeeper was made, or broke, or a session was lost."
)
BOOKIE_CERTIFICATE_DAYS = _bookie.asked_gauge(
    "certificate_days_left",
    "Days until a certificate in use ends, below 0 after that; use is server, ca or client. Absent without TLS.",
    ("use", "subject", "serial"),
)
BOOKIE_LIMBO_IDS = _bookie.asked_gauge(
    "limbo_ledger_ids", "Ledger ids in limbo after a possible loss; no more ledgers than that."
)
BOOKIE_START_BYTES = _bookie.asked_gauge(
    "start_bytes", "Bytes of the step of its start under way that are done, such as the replay; absent once it serves."
)
BOOKIE_START_TOTAL_BYTES = _bookie.asked_gauge(
    "start_total_bytes", "Bytes of that step in all, 0 if they are not counted; absent once it serves."
)
BOOKIE_ADD_STREAMS = _bookie.asked_gauge("add_streams", "Add streams that are open; a client has one.")
BOOKIE_LONG_POLLS = _bookie.asked_gauge("long_polls", "Reads of a last add confirmed that wait for news.")
BOOKIE_QUEUE_BYTES = _bookie.asked_gauge("sync_queue_bytes", "Bytes of requests that are not answered yet.")
BOOKIE_QUEUE_LIMIT_BYTES = _bookie.asked_gauge(
    "sync_queue_limit_bytes", "Above it no more requests are received (sync_queue_bytes)."
)
BOOKIE_CACHE_BYTES = _bookie.asked_gauge(
    "write_cache_bytes", "Bytes in memory that the index does not have: active, frozen (being written).", ("cache",)
)
BOOKIE_CACHE_LIMIT_BYTES = _bookie.asked_gauge(
    "write_cache_limit_bytes", "A cache of this size is written out (write_cache_bytes)."
)
BOOKIE_DISK_FREE_BYTES = _bookie.asked_gauge(
    "disk_free_bytes", "Free space on the disk of a directory; absent if it cannot be measured.", ("directory",)
)
BOOKIE_DISK_TOTAL_BYTES = _bookie.asked_gauge(
    "disk_total_bytes", "Size of the disk of a directory; absent if it cannot be measured.", ("directory",)
)
BOOKIE_DISK_FULL = _bookie.asked_gauge(
    "disk_full", "1 if the disk of a directory is above the watermark or cannot be measured.", ("directory",)
)
BOOKIE_GC_RUNS = _bookie.asked_counter("gc_runs_total", "Runs of garbage collection that ended.")
BOOKIE_GC_FAILING = _bookie.asked_gauge("gc_failing", "1 if the last run was not complete, else 0.")
BOOKIE_GC_SUSPENDED = _bookie.asked_gauge("gc_suspended", "1 while garbage collection is suspended, else 0.")
BOOKIE_GC_LEDGERS = _bookie.asked_counter("gc_ledgers_deleted_total", "Ledgers of which nothing is kept any more.")
BOOKIE_GC_LOGS = _bookie.asked_counter("gc_entry_logs_deleted_total", "Entry logs that were deleted.")
BOOKIE_GC_DELETED_BYTES = _bookie.asked_counter(
    "gc_deleted_bytes_total", "Bytes of entry logs that were deleted, what compaction copied of them included."
)
BOOKIE_COMPACTED_LOGS = _bookie.asked_counter(
    "compaction_entry_logs_total", "Entry logs out of which live records were copied."
)
BOOKIE_COMPACTED_BYTES = _bookie.asked_counter("compaction_bytes_total", "Bytes that compaction copied.")
BOOKIE_LOG_BYTES = _bookie.asked_gauge("entry_log_bytes", "Bytes of all entry logs, after the last GC run.")
BOOKIE_LOG_LIVE_BYTES = _bookie.asked_gauge("entry_log_live_bytes", "Bytes of entry logs that are live, after the last GC run.")
BOOKIE_SCRUBS = _bookie.asked_counter("scrub_runs_total", "Scrubs that read everything.")
BOOKIE_SCRUB_BYTES = _bookie.asked_gauge("scrub_bytes", "Bytes that the scrub under way, or the last one, has read.")
BOOKIE_SCRUB_TOTAL_BYTES = _bookie.asked_gauge(
    "scrub_total_bytes", "Bytes that were stored when that scrub began: about what it reads in all."
)
BOOKIE_SCRUB_FAILING = _bookie.asked_gauge(
    "scrub_failing", "1 if the index is damaged, or damage could not be repaired at the last try, else 0."
)
BOOKIE_DAMAGED = _bookie.asked_gauge("damaged_batches", "Batches that are known to be damaged and not repaired.")
BOOKIE_REPAIRED = _bookie.asked_counter("repaired_batches_total", "Damaged batches that were repaired.")
BOOKIE_SETTLED = _bookie.asked_counter("limbo_settled_total", "Ledgers whose limbo was ended.")
BOOKIE_UNSETTLED = _bookie.asked_gauge("limbo_unsettled", "Ledgers that were tried and are still in limbo.")
BOOKIE_LIMBO_ENTRIES = _bookie.asked_counter(
    "limbo_copied_entries_total", "Entries that were copied from other bookies to end limbo."
)
BOOKIE_LIMBO_BYTES = _bookie.asked_counter(
    "limbo_copied_bytes_total", "Bytes that were copied from other bookies to end limbo."
)
