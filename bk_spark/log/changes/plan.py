"""Plans a commit: the new head and the new version, from the head that was read. Pure; each try plans anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bk_spark.errors import ConfigError, MetadataConflictError, SchemaMismatchError
from bk_spark.log.stored.by_key.entry_rows import EntryRows
from bk_spark.log.stored.json_values import check_integer
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.listing import position_of, with_entries
from bk_spark.log.stored.schema import MERGE_OPTION, Schema, appended_schema, encode_schema
from bk_spark.log.stored.tier_schema import check_tier_follows
from bk_spark.log.stored.values import (
    CommitKind,
    CommittedLedger,
    Content,
    Head,
    LogVersion,
    OpenLedger,
    Totals,
    TransactionRecord,
    WriterState,
    page_count,
)

MAX_OPEN_LEDGERS = 2
"""A leader's ledger, and the one before it, whose last appends are not confirmed yet."""
REMOVING = (CommitKind.REPLACE, CommitKind.COMPACT, CommitKind.COMPACT_KEYS, CommitKind.TRUNCATE)
"""Kinds that remove some ledgers, so that the commit needs the listing. They keep the log's schema."""
_REMOVE_NAMED = (CommitKind.REPLACE, CommitKind.COMPACT, CommitKind.COMPACT_KEYS)
_MAX_SCHEMAS = 10_000
"""They stand in one directory."""
_MAX_APPLICATION_ID = 1000
"""Characters: it stands in each commit of its application, beside little else. A longer one is refused."""
_REPEATED = (
    *("version", "time_ms", "content", "schema_id", "base_version", "replaced_version", "total", "end_row", "lanes"),
    "span_ledger",
)
"""Fields of the newest version that the head repeats."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What a job wants to commit. Raises ConfigError if it is created with arguments that do not fit together."""

    kind: CommitKind
    ledgers: tuple[CommittedLedger, ...] = ()
    """CLOSED ledgers to add, in the order in which the log is to list them."""
    schema_json: str | None = None
    """APPEND and OVERWRITE only: Spark's JSON of the schema of the rows; None for entries."""
    merge_schema: bool = False
    """Lets an append add columns to the log's schema."""
    lanes: Lanes = PLAIN
    """APPEND and OVERWRITE only: the lanes in which ``ledgers`` lie."""
    remove: tuple[int, ...] = ()
    """REPLACE, COMPACT and COMPACT_KEYS only: the ledgers to remove, one stretch of the log in its order."""
    entries: tuple[EntryRows, ...] = ()
    """COMPACT_KEYS only: how many rows the entries of the ledgers to remove have."""
    application: tuple[str, int] | None = None
    """An id and a version. The commit is dropped as a duplicate unless the version is above the log's last one for the id."""
    opened: int | None = None
    """A ledger of the job that a leader opens at the end of the log. Such a commit is an APPEND of nothing else."""
    closed: tuple[CommittedLedger, ...] = ()
    """With ``leader_epoch`` only: ends of the leader's own open ledgers, in log order. Ends that are recorded already are
    skipped."""
    leader_epoch: int | None = None
    """Set by a leader: the commit is refused (LedgerFencedError) once the log has another one. Without it, an
    APPEND or OVERWRITE displaces a leader and closes its ledgers."""
    before: int | None = None
    """TRUNCATE only: the ledger that becomes the first."""
    merge_option: str = MERGE_OPTION
    """What the user of ``merge_schema`` calls it."""

    @property
    def displaces(self) -> bool:
        """Whether the commit displaces a leader: nothing may be listed behind a ledger that still grows (log rule 2)."""
        return self.leader_epoch is None and self.kind in (CommitKind.APPEND, CommitKind.OVERWRITE)

    def __post_init__(self) -> None:
        _check_distinct("a ledger to add", [one.ledger_id for one in self.ledgers])
        _check_distinct("a ledger to remove", self.remove)
        if (self.kind in _REMOVE_NAMED) != bool(self.remove):
            remedy = "ledgers to remove are named by a replacement or a compaction, and by nothing else"
            raise ConfigError("remove", self.remove, remedy)
        if (self.kind is CommitKind.TRUNCATE) != (self.before is not None):
            remedy = "the ledger that stays first is named by a truncation, and by nothing else"
            raise ConfigError("before", self.before, remedy)
        if self.kind in REMOVING and self.schema_json is not None:
            remedy = f"a commit of kind {self.kind.value} keeps the schema of the log"
            raise ConfigError("schema_json", self.schema_json[:200], remedy)
        foreign = next((one for one in self.ledgers if self.kind not in REMOVING and one.lane >= self.lanes.count), None)
        if foreign is not None:
            raise ConfigError(f"lane of ledger {foreign.ledger_id}", foreign.lane, f"it was written for {self.lanes}")
        spans = [one for one in self.ledgers if one.span is not None and self.kind is not CommitKind.COMPACT_KEYS]
        if spans:
            raise ConfigError(
                f"span of ledger {spans[0].ledger_id}", spans[0].span, "only a compaction by key makes one: leave it out"
            )
        self._check_leader()
        check_application(self.application)

    def _check_leader(self) -> None:
        nothing_else = self.kind is CommitKind.APPEND and not self.ledgers
        if (self.opened is not None or self.leader_epoch is not None) and not nothing_else:
            raise ConfigError("kind of a leader's commit", self.kind.value, "it must be an append without ledgers")
        if self.closed and self.leader_epoch is None:
            raise ConfigError("closed", self.closed, "only a leader, which gives its epoch, knows where its ledgers end")


def _check_distinct(what: str, ids: Sequence[int]) -> None:
    seen: set[int] = set()
    for one in ids:
        if one in seen:
            raise ConfigError(what, one, "it is given twice")
        seen.add(one)


def check_application(application: tuple[str, int] | None) -> None:
    """Raise ConfigError for what is neither None nor an id and a version."""
    if application is None:
        return
    if not isinstance(application, tuple) or len(application) != 2:
        raise ConfigError("application", application, "it must be an id and a version, such as ('loader', 7)")
    application_id, version = application
    if not isinstance(application_id, str) or not 1 <= len(application_id) <= _MAX_APPLICATION_ID:
        raise ConfigError("application id", application_id, f"it must have 1 to {_MAX_APPLICATION_ID} characters")
    check_integer("application version", version, 0)


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """A log's content, schema and lanes after a commit. ``new_schema`` is the value to store, if the schema is a new one."""

    content: Content
    schema_id: int | None
    new_schema: bytes | None = None
    lanes: Lanes = PLAIN


@dataclass(frozen=True, slots=True)
class Findings:
    """What one try of a commit has read besides the head."""

    schema: SchemaPlan
    closed: tuple[CommittedLedger, ...] = ()
    """The ends of open ledgers that this commit records. They are the first open ledgers of the head."""
    listed: tuple[CommittedLedger, ...] = ()
    """The closed ledgers of the head's version; empty unless the commit is of a kind in REMOVING."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The next head and the version that goes with it."""

    head: Head
    version: LogVersion
    new_schema: bytes | None


def plan_schema(head: Head, request: CommitRequest, given: Schema | None, stored: Schema | None) -> SchemaPlan:
    """Raises SchemaMismatchError if an append does not fit the log, ConfigError for a schema that cannot be stored."""
    if request.kind in REMOVING:
        if head.content is None:
            raise MetadataConflictError(f"log '{head.name}'", "it is empty, there is nothing to remove")
        return SchemaPlan(head.content, head.schema_id, lanes=head.lanes)
    content = Content.ENTRIES if given is None else Content.ROWS
    if request.kind is CommitKind.APPEND and head.content not in (None, content):
        holds = f"the log holds {head.content.value if head.content else 'nothing'} and the data is {content.value}"
        raise SchemaMismatchError(head.name, f"{holds} (option 'content'): write it to another log, or overwrite")
    lanes = plan_lanes(head, request)
    if given is None:
        return SchemaPlan(content, None, lanes=lanes)
    schema = given
    if request.kind is CommitKind.APPEND and stored is not None:
        schema = appended_schema(head.name, stored, given, merge=request.merge_schema, option=request.merge_option)
    if schema == stored:
        return SchemaPlan(content, head.schema_id, lanes=lanes)
    check_tier_follows(head, stored, schema)
    if head.schema_count >= _MAX_SCHEMAS:
        what = f"the number of schemas of log '{head.name}'"
        raise ConfigError(what, head.schema_count, "it is the maximum: write to a new log")
    encoded = encode_schema(f"the schema given for log '{head.name}'", schema)
    return SchemaPlan(content, head.schema_count, encoded, lanes)


def plan_lanes(head: Head, request: CommitRequest) -> Lanes:
    """The log's lanes after an append or an overwrite.

    Raises ConfigError for a leader on a log with several lanes; MetadataConflictError for ledgers that lie in other lanes.
    """
    if request.kind is CommitKind.OVERWRITE or head.content is None:
        return request.lanes
    if request.opened is not None and head.lanes != PLAIN:
        remedy = f"it has {head.lanes}, and a leader writes one ledger at a time: append rows with append_rows or with Spark"
        raise ConfigError("the log to lead", head.name, remedy)
    if request.ledgers and request.lanes != head.lanes:
        problem = f"it has {head.lanes}, the rows were written for {request.lanes}: write them again"
        raise MetadataConflictError(f"log '{head.name}'", problem)
    return head.lanes


def plan_removal(head: Head, request: CommitRequest, found: Findings) -> Totals:
    """How much the commit removes.

    Raises MetadataConflictError unless all ledgers that it names are listed as one stretch and closed, and ConfigError if a
    compaction changes the number of rows, or something parts a span.
    """
    if request.kind is CommitKind.OVERWRITE:
        return head.total + Totals.of(with_entries(found.closed))
    if request.kind is CommitKind.APPEND:
        return Totals()
    listed = found.listed + with_entries(found.closed)
    still_open = [one.ledger_id for one in head.writer.open_ledgers[len(found.closed) :]]
    if request.before is not None:
        return _whole_spans(head, _before(head, request.before, listed, still_open), listed)
    for one in still_open:
        if one in request.remove:
            raise _is_open(head, one)
    start = position_of(head.name, listed, request.remove)
    _check_tier(head, listed[start:])
    gone = listed[start : start + len(request.remove)]
    removed, added = _whole_spans(head, gone, listed[start:]), Totals.of(request.ledgers)
    if request.kind is CommitKind.COMPACT_KEYS:
        _check_span(head, request, removed, is_first=start == 0)
        return removed
    if request.kind is CommitKind.COMPACT and removed != replace(added, ledgers=removed.ledgers, length=removed.length):
        what = f"the number of rows that a compaction of log '{head.name}' puts in the place of {removed.rows}"
        raise ConfigError(what, added.rows, "a compaction keeps the rows: other content is a replacement")
    _check_lanes(head.name, request, gone)
    return removed


def _whole_spans(head: Head, gone: Sequence[CommittedLedger], listed: Sequence[CommittedLedger]) -> Totals:
    """How much ``gone``, the beginning of ``listed``, is. Raises ConfigError if it has a span in part."""
    behind = listed[len(gone)] if len(gone) < len(listed) else None
    cut = next((one for one in (gone[0] if gone else None, behind) if one is not None and one.span == 0), None)
    if cut is not None:
        remedy = f"ledger {head.span_ledger} and those behind it, of which it is one, are a span that a compaction by key made"
        raise ConfigError(f"the ledger to part from others of log '{head.name}'", cut.ledger_id, f"{remedy}: they go together")
    return Totals.of(gone)


def _check_span(head: Head, request: CommitRequest, removed: Totals, *, is_first: bool) -> None:
    """Raises ConfigError unless a compaction by key puts one span in the place of the log's first ledgers."""
    what = f"the ledgers that a compaction by key puts in the place of others in log '{head.name}'"
    if head.lanes == PLAIN or head.tier is not None:
        remedy = "it has no keys" if head.lanes == PLAIN else "it has a tier, whose table keeps every row"
        raise ConfigError("the log to compact by key", head.name, f"{remedy}: leave it as it is")
    added = Totals.of(request.ledgers)
    if not is_first or [one.span for one in request.ledgers] != [removed.span, *[0] * (len(request.ledgers) - 1)]:
        ids = [one.ledger_id for one in request.ledgers]
        raise ConfigError(what, ids[:10], f"they must be one span of {removed.span} row numbers, before all other ledgers")
    if added.rows >= removed.rows:
        remedy = f"there were {removed.rows}: a compaction by key that removes none is no commit"
        raise ConfigError(f"the number of rows that a compaction by key keeps in log '{head.name}'", added.rows, remedy)


def _check_tier(head: Head, rest: Sequence[CommittedLedger]) -> None:
    """Raises MetadataConflictError unless the first of ``rest``, the end of the list, lies behind the tier's boundary."""
    if head.tier is not None and any(one.ledger_id == head.tier.boundary for one in rest):
        problem = f"ledger {rest[0].ledger_id}, which is to be replaced, is in the log's tier: its rows stay as they are"
        raise MetadataConflictError(f"log '{head.name}'", problem)


def _check_lanes(log: str, request: CommitRequest, gone: Sequence[CommittedLedger]) -> None:
    """Raises ConfigError where a replacement leaves its lane, or a compaction moves rows to another lane."""
    if request.kind is CommitKind.COMPACT:
        if _rows_by_lane(request.ledgers) != _rows_by_lane(gone):
            what = f"the number of rows by lane that a compaction of log '{log}' puts in the place of {_rows_by_lane(gone)}"
            raise ConfigError(what, _rows_by_lane(request.ledgers), "a compaction keeps every row in its lane")
        return
    lanes, is_span = {one.lane for one in gone}, any(one.span is not None for one in gone)
    for one in request.ledgers:
        if {one.lane} != lanes and not (is_span and one.lane in lanes):
            remedy = f"it takes the place of ledgers of lane {', '.join(map(str, sorted(lanes)))} of log '{log}'"
            raise ConfigError(f"lane of ledger {one.ledger_id}", one.lane, f"{remedy}: replace the ledgers of one lane by such")


def _rows_by_lane(ledgers: Sequence[CommittedLedger]) -> dict[int, int]:
    rows = Counter[int]()
    for one in ledgers:
        rows[one.lane] += one.rows
    return {lane: rows[lane] for lane in sorted(rows) if rows[lane]}


def plan_commit(head: Head, request: CommitRequest, found: Findings, job_id: str, now_ms: int) -> CommitPlan:
    """The commit on top of ``head``. Its time is never before the time of the version below. Raises as ``plan_removal``."""
    number, time_ms = head.version + 1, max(now_ms, head.time_ms)
    removed, added = plan_removal(head, request, found), Totals.of(request.ledgers)
    total = head.total + Totals.of(with_entries(found.closed)) - removed + added
    end_row = end_row_after(head, request, Totals.of(found.closed).rows, total)
    writer = _writer_after(head, request, found.closed, number)
    schema = found.schema
    base = number if request.kind is CommitKind.OVERWRITE else head.base_version
    replaced = number if request.kind in (CommitKind.OVERWRITE, CommitKind.REPLACE) else head.replaced_version
    version = LogVersion(
        version=number,
        time_ms=time_ms,
        kind=request.kind,
        content=schema.content,
        schema_id=schema.schema_id,
        base_version=base,
        application=request.application,
        job_id=job_id,
        pages=page_count(request.ledgers, request.remove, request.entries),
        added=added,
        removed=removed,
        total=total,
        replaced_version=replaced,
        end_row=end_row,
        epoch=writer.epoch,
        opened=request.opened,
        closed=found.closed,
        lanes=schema.lanes,
        span_ledger=request.ledgers[0].ledger_id if request.kind is CommitKind.COMPACT_KEYS else _span_after(head, total),
    )
    repeated = {name: getattr(version, name) for name in _REPEATED}
    schema_count = head.schema_count + (schema.new_schema is not None)
    return CommitPlan(replace(head, **repeated, schema_count=schema_count, writer=writer), version, schema.new_schema)


def _span_after(head: Head, total: Totals) -> int | None:
    """A span has gaps, and there is one at most: without gaps the commit has removed it."""
    return head.span_ledger if total.gaps else None


def in_transaction(plan: CommitPlan, transaction: TransactionRecord) -> CommitPlan:
    """The same commit, as a part of a transaction."""
    number = plan.version.version
    head, version = replace(plan.head, transaction_version=number), replace(plan.version, transaction=transaction)
    return replace(plan, head=head, version=version)


def end_row_after(head: Head, request: CommitRequest, closed_rows: int, total: Totals) -> int:
    """The row number behind the last row of the new version, whose closed ledgers are ``total``.

    After a replacement a stream reads the whole new content, so all listed rows get new numbers. At every version,
    end_row - total.span is the row number of the first listed row.
    """
    if request.kind is CommitKind.REPLACE:
        return head.end_row + total.span
    if request.kind in (CommitKind.COMPACT, CommitKind.COMPACT_KEYS, CommitKind.TRUNCATE):
        return head.end_row + closed_rows
    return head.end_row + closed_rows + Totals.of(request.ledgers).rows


def _writer_after(head: Head, request: CommitRequest, closed: Sequence[CommittedLedger], number: int) -> WriterState:
    """The leader's epoch and the open ledgers after the commit. Raises ConfigError for a third open ledger."""
    found = head.writer.open_ledgers
    still_open = found[len(closed) :]
    if request.opened is not None:
        still_open += (OpenLedger(request.opened, number),)
    if len(still_open) > MAX_OPEN_LEDGERS:
        what = f"the ledger to open in log '{head.name}'"
        raise ConfigError(what, request.opened, f"{[one.ledger_id for one in found]} are open: close the first one before")
    begins = request.opened is not None and request.leader_epoch is None
    ends = not still_open and (request.leader_epoch is not None or (request.displaces and bool(found)))
    return WriterState(head.writer.epoch + (begins or ends), still_open)


def _before(head: Head, first: int, listed: Sequence[CommittedLedger], still_open: Sequence[int]) -> Sequence[CommittedLedger]:
    """What a truncation before ledger ``first`` removes."""
    if first in still_open[1:]:
        raise _is_open(head, still_open[0])
    if first in still_open:
        return listed
    for place, one in enumerate(listed):
        if one.ledger_id == first:
            return listed[:place]
    raise MetadataConflictError(f"log '{head.name}'", f"it does not list ledger {first}, before which it is to be truncated")


def _is_open(head: Head, ledger_id: int) -> MetadataConflictError:
    problem = (
        f"ledger {ledger_id}, which is to be removed, is open: its writer, or 'bk-spark log recover NAME', must close it first"
    )
    return MetadataConflictError(f"log '{head.name}'", problem)
