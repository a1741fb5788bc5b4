"""The data source that Spark finds under the name ``bookkeeper``: it checks, then makes readers and writers.

Reader, writer and all that they need are imported where they are made: Spark's look-up of formats imports this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StringType, StructType

from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions, parse_options
from bk_spark.errors import (
    ConfigError,
    NoSuchLogError,
    NotEnoughBookiesError,
    SchemaMismatchError,
    UnauthorizedAccessError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bk_spark.client.bookkeeper import BookKeeper
    from bk_spark.client.log_snapshot import LogSnapshot
    from bk_spark.datasource.reader import EntryReader
    from bk_spark.datasource.writer import LogWriter


def register(spark: SparkSession) -> None:
    """Make the format ``bookkeeper`` known to ``spark``, where Spark cannot find it by itself.

    That is: a zip given with ``--py-files``, files added after Spark first looked for formats, a local Connect server.
    The package must be importable on the executors too.
    """
    spark.dataSource.register(BookKeeperDataSource)


@dataclass(frozen=True, slots=True)
class _LoadedLog:
    """What ``schema()`` saw of the log, so that the partitions are planned at the same version."""

    uid: str
    version: int
    content: str | None
    schema_json: str | None


class BookKeeperDataSource(DataSource):
    """The format ``bookkeeper``: DataFrames in replicated logs on a BookKeeper cluster, and back.

    A *log* is a named list of ledgers; ``save("name")`` adds to it in one atomic commit, or replaces all of it, and
    ``load("name")`` reads it as it stands at that moment: load again to see what was written since. There are two forms:

    - ``rows`` (the default): any DataFrame whose types Arrow carries, nested ones too. The log stores the schema; an append
      is checked against it by column name, a missing column is null. Columns come back nullable, nested ones too.
    - ``entries`` (``option("content", "entries")``, and always with ``ledger``): one row an entry. They are read as
      ``ledger_id BIGINT, entry_id BIGINT, payload BINARY``, and written from one column ``payload``, BINARY or STRING.

    Modes are ``append`` and ``overwrite`` (one atomic replacement, also of the schema); Spark refuses all others for
    Python data sources, and ``append`` must be said. With ``.schema(…)`` only those columns are read; their types must be
    the log's. ``collect()`` without a shuffle gives log order. In SQL: ``CREATE TEMPORARY VIEW v USING bookkeeper
    OPTIONS (metadata '…', path 'orders')``, then SELECT and INSERT INTO; a view stays on its first snapshot.

    A write has no effect until the driver's commit: each task attempt with rows writes a ledger of its own, the commit
    lists those of the attempts that Spark chose, and all others are deleted.

    Options: an unknown one, or one that does not apply, is an error. Sizes are in bytes, or like ``64m``.

    ==================== =========== ======================= ====================
    option               for         default                 meaning
    ==================== =========== ======================= ====================
    metadata             read, write $BK_SPARK_METADATA      the cluster: `zk://host:port[,host:port…]/root`
    path                 read, write (required, or `ledger`) name of the log; what `load(…)` and `save(…)` are given
    ledger               read        (none)                  ledgers to read as entries: an id, a list `3,5` or a range `3-9`
    content              read, write rows                    `rows`: any DataFrame; `entries`: one row an entry
    ensembleSize         write       3                       bookies that a ledger is spread over
    writeQuorum          write       3                       bookies that hold each entry
    ackQuorum            write       2                       bookies that have an entry on disk before it is confirmed
    digestType           read, write CRC32C                  `CRC32C` or `HMAC`: protects entries from writer to reader
    password             read, write (none)                  authenticates adds and reads; never shown
    compression          write       zstd                    of row payloads
    maxRowsPerEntry      write       65536                   cut of row payloads
    maxBytesPerEntry     write       1m                      the same, before compression
    maxBytesPerPartition read        128m                    larger ledgers are split, smaller ones are packed together
    minPartitions        read        1                       a hint: partitions are made smaller to reach it
    recover              read        false                   `true`: fences and closes open ledgers, then reads to their end
    includeMetadata      read        false                   adds `_ledger_id` and `_entry_id` to rows
    versionAsOf          read        (latest)                the log as it stood at that version
    applicationId        write       (none)                  with `applicationVersion`: makes a repeated batch write harmless
    applicationVersion   write       (none)                  a write not above the log's last one is dropped
    mergeSchema          write       false                   new columns are added to the log's schema
    client.<field>       read, write                         any field of ClientConfig, such as ``client.add_timeout_s``
    ==================== =========== ======================= ====================

    Example, with a cluster that lives as long as the ``with`` block::

        from pyspark.sql import SparkSession
        from bk_spark.local_cluster import LocalCluster

        spark = SparkSession.builder.master("local[2]").getOrCreate()
        with LocalCluster(bookies=3) as cluster:
            orders = spark.range(1000).selectExpr("id", "id * 1.5 AS price", "array(id, id + 1) AS items")
            orders.write.format("bookkeeper").option("metadata", cluster.metadata_uri).mode("append").save("orders")
            stored = spark.read.format("bookkeeper").option("metadata", cluster.metadata_uri).load("orders")
            stored.where("id < 3").show()

    Ref: docs/formats.md, "Row payloads"; Spark's Python Data Source API.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)
        self._loaded: _LoadedLog | None = None

    @classmethod
    def name(cls) -> str:
        return "bookkeeper"

    def schema(self) -> StructType:
        """The log's schema, or that of entries. Raises NoSuchLogError, MetadataUnavailableError, ConfigError."""
        from bk_spark.datasource.spark_schema import ENTRIES

        self._options.check_use("read")
        return ENTRIES if self._options.ledger else self._columns(self._load())

    def reader(self, schema: StructType) -> EntryReader:
        """Reads the columns ``schema``. Raises SchemaMismatchError where the log has not got them."""
        from bk_spark.datasource.reader import EntryReader, PlannedLog
        from bk_spark.datasource.spark_schema import ENTRIES, check_asked

        options = self._options
        options.check_use("read")
        if options.ledger:
            check_asked("(entries)", ENTRIES, schema)
            return EntryReader(options, schema, None)
        loaded = self._load()
        check_asked(options.log, self._columns(loaded), schema)
        return EntryReader(options, schema, PlannedLog(options.log, loaded.uid, loaded.version))

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        """Checks all that can be known before the tasks run, then begins a write job.

        Raises SchemaMismatchError, NotEnoughBookiesError, MetadataUnavailableError, ConfigError.
        """
        from bk_spark.client.log_layout import CommitKind
        from bk_spark.datasource.writer import LogWriter

        options = self._options
        options.check_use("write")
        stored = None if options.reads_entries else self._rows_schema(schema)
        if stored is None:
            _check_entries(schema)
        bookkeeper = connect(options.metadata, options.client)
        _check_bookies(bookkeeper, options)
        if not overwrite:
            _check_append(bookkeeper, options, stored)
        kind = CommitKind.OVERWRITE if overwrite else CommitKind.APPEND
        return LogWriter(options, bookkeeper.logs.begin_job(options.log), kind, stored)

    def _load(self) -> _LoadedLog:
        if self._loaded is None:
            options = self._options
            snapshot = connect(options.metadata, options.client).logs.snapshot(options.log, options.version_as_of)
            content = snapshot.content.value if snapshot.content else None
            self._loaded = _LoadedLog(snapshot.uid, snapshot.version, content, snapshot.schema_json)
        return self._loaded

    def _columns(self, log: _LoadedLog) -> StructType:
        """What a load of ``log`` gives without a user's schema."""
        from bk_spark.datasource.spark_schema import ENTRIES, from_json, with_metadata_columns

        options = self._options
        if options.reads_entries:
            return ENTRIES
        if log.content == "entries":
            remedy = f"log '{options.log}' holds entries: read it with content=entries"
            raise ConfigError("option 'content'", options.content, remedy)
        if log.schema_json is None:
            what = f"version {log.version} of log '{options.log}'"
            raise ConfigError(
                what, "empty", "it holds nothing and has no schema: write to the log first, or read a later version"
            )
        stored = from_json(log.schema_json)
        return with_metadata_columns(options.log, stored) if options.include_metadata else stored

    def _rows_schema(self, schema: StructType) -> StructType:
        from bk_spark.datasource.spark_schema import nullable, to_arrow

        if not schema.fields:
            raise ConfigError("the DataFrame's schema", schema.simpleString(), "it has no columns, there is nothing to write")
        stored = nullable(self._options.log, schema)
        to_arrow(stored)
        return stored


def _check_entries(schema: StructType) -> None:
    if schema.names != ["payload"] or not isinstance(schema["payload"].dataType, (BinaryType, StringType)):
        remedy = "entries are written from one column 'payload', BINARY or STRING: select it, cast or renamed as needed"
        raise ConfigError("the DataFrame's schema", schema.simpleString(), remedy)


def _check_bookies(bookkeeper: BookKeeper, options: SourceOptions) -> None:
    bookies = bookkeeper.list_bookies()
    writable = sum(not bookie.read_only for bookie in bookies)
    if writable < options.ensemble_size:
        purpose = f"an ensemble of {options.ensemble_size} (option 'ensembleSize')"
        raise NotEnoughBookiesError(options.ensemble_size, writable, purpose, len(bookies) - writable)


def _check_password(bookkeeper: BookKeeper, options: SourceOptions, log: LogSnapshot) -> None:
    """One password for all ledgers of a log: with two of them, nobody could read all of it."""
    for metadata in bookkeeper.ledger_metadata_many([ledger.ledger_id for ledger in log.ledgers[-1:]]):
        if metadata.password != options.password:
            raise UnauthorizedAccessError(metadata.ledger_id)


def _check_append(bookkeeper: BookKeeper, options: SourceOptions, given: StructType | None) -> None:
    """The commit checks this again, against the log as it stands then; here it spares the user writing it all in vain."""
    from bk_spark.client.log_schema import appended_schema, parse_schema

    try:
        log = bookkeeper.logs.snapshot(options.log)
    except NoSuchLogError:
        return
    if log.content is None:
        return
    _check_password(bookkeeper, options, log)
    if log.content.value != options.content:
        problem = f"the log holds {log.content.value}, option 'content' is {options.content}: use another log"
        raise SchemaMismatchError(log.name, problem)
    if given is not None and log.schema_json is not None:
        stored, appended = (parse_schema(log.name, text) for text in (log.schema_json, given.json()))
        appended_schema(log.name, stored, appended, merge=options.merge_schema)
