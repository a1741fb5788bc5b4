"""What a commit makes of the head that it found: pure arithmetic, repeated on every try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bk_spark.client.log_layout import CommitKind, CommittedLedger, Content, Head, LogVersion, Totals, encode_schema, page_count
from bk_spark.client.log_schema import Schema, appended_schema
from bk_spark.client.log_snapshot import position_of
from bk_spark.errors import ConfigError, MetadataConflictError, SchemaMismatchError

_MAX_SCHEMAS = 10_000
"""They stand in one directory."""
_MAX_APPLICATION_ID = 1000


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What a job wants committed. Checked when it is made; raises ConfigError."""

    kind: CommitKind
    ledgers: tuple[CommittedLedger, ...] = ()
    """CLOSED ledgers, in the order in which the log is to list them."""
    schema_json: str | None = None
    """Spark's JSON of the schema of rows; None for entries. A REPLACE has none: it keeps the log's."""
    merge_schema: bool = False
    """An append may add columns to the log's schema."""
    remove: tuple[int, ...] = ()
    """REPLACE only: the ledgers to remove, one stretch of the log in its order."""
    application: tuple[str, int] | None = None
    """An id and a version: dropped as a duplicate unless the version is above the log's last for the id."""

    def __post_init__(self) -> None:
        _check_distinct("a ledger to add", [one.ledger_id for one in self.ledgers])
        _check_distinct("a ledger to remove", self.remove)
        if (self.kind is CommitKind.REPLACE) != bool(self.remove):
            raise ConfigError("remove", self.remove, "ledgers to remove are named by a replacement, and by nothing else")
        if self.kind is CommitKind.REPLACE and self.schema_json is not None:
            raise ConfigError("schema_json", self.schema_json[:200], "a replacement keeps the schema of the log")
        if self.application is not None:
            _check_application(*self.application)


def _check_distinct(what: str, ids: Sequence[int]) -> None:
    seen: set[int] = set()
    for one in ids:
        if one in seen:
            raise ConfigError(what, one, "it is given twice")
        seen.add(one)


def _check_application(application_id: str, version: int) -> None:
    if not isinstance(application_id, str) or not 1 <= len(application_id) <= _MAX_APPLICATION_ID:
        raise ConfigError("application id", application_id, f"it must have 1 to {_MAX_APPLICATION_ID} characters")
    if type(version) is not int or not 0 <= version < 2**63:
        raise ConfigError("application version", version, "it must be an integer from 0 to 2^63 - 1")


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """The content and schema that a log has after a commit; ``new_schema`` is the value to store where it is a new one."""

    content: Content
    schema_id: int | None
    new_schema: bytes | None = None


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The next head and the version that goes with it."""

    head: Head
    version: LogVersion
    new_schema: bytes | None


def plan_schema(head: Head, request: CommitRequest, given: Schema | None, stored: Schema | None) -> SchemaPlan:
    """Raises SchemaMismatchError where an append does not fit, ConfigError for a schema that cannot be stored."""
    if request.kind is CommitKind.REPLACE:
        if head.content is None:
            raise MetadataConflictError(f"log '{head.name}'", "it is empty, there is nothing to replace")
        return SchemaPlan(head.content, head.schema_id)
    content = Content.ENTRIES if given is None else Content.ROWS
    if request.kind is CommitKind.APPEND and head.content not in (None, content):
        raise SchemaMismatchError(head.name, _mixed(head, content))
    if given is None:
        return SchemaPlan(content, None)
    schema = given
    if request.kind is CommitKind.APPEND and stored is not None:
        schema = appended_schema(head.name, stored, given, merge=request.merge_schema)
    if schema == stored:
        return SchemaPlan(content, head.schema_id)
    return SchemaPlan(content, head.schema_count, _new_schema(head, schema))


def plan_removal(head: Head, request: CommitRequest, listed: Sequence[CommittedLedger]) -> Totals:
    """How much the commit removes. Raises MetadataConflictError unless all that it names is listed, as one stretch."""
    if request.kind is CommitKind.OVERWRITE:
        return head.total
    if not request.remove:
        return Totals()
    start = position_of(head.name, listed, request.remove)
    return Totals.of(listed[start : start + len(request.remove)])


def plan_commit(
    head: Head, request: CommitRequest, schema: SchemaPlan, removed: Totals, job_id: str, now_ms: int
) -> CommitPlan:
    """The commit on top of ``head``. Its time is never before that of the version below it."""
    number, time_ms = head.version + 1, max(now_ms, head.time_ms)
    base = number if request.kind is CommitKind.OVERWRITE else head.base_version
    added = Totals.of(request.ledgers)
    total = head.total - removed + added
    schemas = head.schema_count + (schema.new_schema is not None)
    pages = page_count(request.ledgers, request.remove)
    version = LogVersion(
        number,
        time_ms,
        request.kind,
        schema.content,
        schema.schema_id,
        base,
        request.application,
        job_id,
        pages,
        added,
        removed.ledgers,
        total,
    )
    after = Head(head.name, number, time_ms, schema.content, schema.schema_id, schemas, base, total)
    return CommitPlan(after, version, schema.new_schema)


def _mixed(head: Head, content: Content) -> str:
    holds = head.content.value if head.content else "nothing"
    return f"the log holds {holds} and the data is {content.value} (option 'content'): write it to another log, or overwrite"


def _new_schema(head: Head, schema: Schema) -> bytes:
    if head.schema_count >= _MAX_SCHEMAS:
        what = f"the number of schemas of log '{head.name}'"
        raise ConfigError(what, head.schema_count, "it is the maximum: write to a new log")
    return encode_schema(f"the schema given for log '{head.name}'", schema)
