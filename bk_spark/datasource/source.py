"""The data source that Spark finds under the name ``bookkeeper``: it checks, then makes readers and writers.

Spark's look-up of formats imports this module, so readers, writers and what they need are imported only where they are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import parse_options
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.worker_python import is_classic, use_this_python
from bk_spark.errors import BookKeeperError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceReader

    from bk_spark.datasource.read.loaded_log import LoadedLog
    from bk_spark.datasource.read.loaded_logs import LoadedLogs
    from bk_spark.datasource.read.read_task import Reading
    from bk_spark.datasource.topics.reading import TopicsRead
    from bk_spark.datasource.write.several_writer import SeveralBatchWriter, SeveralStreamWriter
    from bk_spark.datasource.write.writer import BatchWriter, StreamWriter
    from bk_spark.topic.columns import TopicColumns


def register(spark: SparkSession) -> None:
    """Make the format ``bookkeeper`` known to ``spark``, where Spark cannot find it by itself:

    - the program runs in a virtual environment that is not activated. Spark's workers then take the first ``python3`` of PATH,
      or ``PYSPARK_PYTHON``. If neither that nor ``spark.pyspark.python`` is set, and the master is local, they take this
      process's Python from now on. With another master, a warning says where that Python has no bk_spark;
    - the package is in a zip given with ``--py-files``;
    - its files were added after Spark first looked for formats;
    - it is not installed on the server of Spark Connect (send it: ``spark.addArtifacts("bk_spark.zip", pyfile=True)``);
    - another thread than the one that made ``spark`` writes: call this in that thread, before its first write or stream.

    ``spark`` may be a session of Spark Connect. The package must be importable on the executors too.
    """
    use_this_python(spark)
    spark.dataSource.register(BookKeeperDataSource)
    if is_classic(spark):
        _activate(spark)


def _activate(spark: SparkSession) -> None:
    """Make ``spark`` the session of the calling thread, where a write of Spark 4.3 looks for Python formats."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


class BookKeeperDataSource(DataSource):
    """The format ``bookkeeper``: DataFrames in replicated logs on a BookKeeper cluster, and back.

    A *log* is a named list of ledgers; ``save("name")`` adds to it in one atomic commit, or replaces all of it, and
    ``load("name")`` reads it as it stands at that moment: load again to see later writes. A log holds one of two forms:

    - ``rows`` (the default): any DataFrame whose types Arrow carries, nested ones too. The log stores the schema. An append
      is checked against it by column name; a missing column is null. Columns come back nullable, nested ones too.
    - ``entries`` (``option("content", "entries")``, and always with ``ledger``): one row for each entry. They are read as
      ``ledger_id BIGINT, entry_id BIGINT, payload BINARY``, and written from one column ``payload``, BINARY or STRING.

    The modes are ``append`` and ``overwrite`` (one atomic replacement, also of the schema). Spark refuses all others for
    Python data sources, and ``append`` must be given. ``.schema(…)`` selects columns; their types must be the log's.
    ``collect()`` without a shuffle gives log order.

    ``where`` compares columns, or fields inside of structs, with literals: ``amount > 5 AND NOT shop.city LIKE 'B%'``.
    Operators are ``= != <> < <= > >= <=>``, ``[NOT] IN (…)``, ``[NOT] BETWEEN … AND …``, ``[NOT] LIKE '…'``,
    ``IS [NOT] NULL``, joined by AND, OR and NOT. Literals are numbers, strings, true and false, ``X'00FF'``; dates and times
    are strings. The read gives exactly the rows for which it is true by Spark SQL's rules (with ANSI mode on, as by default);
    the columns compared need not be selected. Entries whose statistics exclude the condition are not decoded. Anything else is
    refused: use ``DataFrame.where()`` for it.

    Times have an offset from UTC, such as ``Z`` or ``+01:00``, or ``timeZone`` names their zone: Spark does not tell a format
    the session's. A time without either is refused.

    A batch read goes from ``startingOffsets`` or ``startingTimestamp`` (included) to ``endingOffsets`` (excluded), or to what
    the log held at ``versionAsOf`` or ``timestampAsOf``. Offsets are those that a stream reports: a batch read between two of
    them gives the rows of the micro-batches between them. An open ledger is read as far as it is confirmed, and nothing
    behind it is read.

    One load reads several logs of the same content: ``load(["a", "b"])``, ``logs`` or ``logsPattern``. They are read one after
    the other. Columns match by name, with the wider of two types; a column that a log lacks is null. A stream follows them
    all, and finds logs that come later; ``maxRowsPerTrigger`` and ``maxBytesPerTrigger`` are limits of all together.

    ``view=latest`` reads the newest row of each key alone, of one log with ``partitionKey``: the last one in the log's order at
    the version that is read. With ``deletedBy``, the name of a boolean column, a key whose newest row has true there is gone.
    ``where`` is true of the newest row: it never brings back an older one. A task reads whole lanes, and their keys alone are
    in its memory, at most about 32 MiB of them; more go to files in its directory for temporary files.

    ``includeMetadata`` adds ``_ledger_id BIGINT, _entry_id BIGINT, _log STRING``, and of the version that added the ledger
    ``_version BIGINT`` and ``_commit_timestamp TIMESTAMP``. The last one is null for ledgers that a writer opened, and both
    are null where a vacuum removed the version's record.

    ``topic``, ``topics`` and ``topicsPattern`` read topics of Apache Pulsar from their bookies, in batches and streams, and
    change nothing there. A row is a message: ``key``, ``value``, ``_topic``, ``_message_id``, ``_publish_time``,
    ``_event_time``, ``_producer``, ``_sequence_id``, ``_properties`` and ``_ordering_key``. Offsets are message ids such as
    ``17:3``, for ledger and entry (docs/guide/pulsar.md, "Read topics").

    In SQL: ``CREATE TEMPORARY VIEW v USING bookkeeper OPTIONS (metadata '…', path 'orders')``, then SELECT, INSERT INTO and
    INSERT OVERWRITE. A view keeps reading its first snapshot. Spark 4.3 loses the options of a catalog table when the table
    is used: give them again with ``SELECT … FROM t WITH ('metadata' = '…', 'path' = '…')``, ``INSERT INTO t WITH (…)``,
    ``spark.read.option(…).table("t")`` or ``writeTo("t").option(…)``.

    A write has no effect until the driver commits. Each task attempt with rows writes a ledger of its own; the commit
    lists the ledgers of the attempts that Spark chose, and all others are deleted.

    ``writeStream`` puts each row into the log exactly once, also across retries, killed executors and a killed driver. Each
    batch is one commit, which the log knows as version ``batchId`` of application ``spark-stream:<StreamingQuery.id>``; the
    log drops a batch that it has already. The id is stored in the checkpoint: restart with it. A new checkpoint is a new
    query, whose rows are added to what is there. ``bk-spark log show`` lists the application of each commit. Output mode
    ``append`` adds, ``complete`` replaces the content with each batch; Spark refuses ``update``. Any number of queries may
    write one log. Writes inside ``foreachBatch`` are batch writes: to repeat them is harmless only with ``applicationId`` and
    ``applicationVersion`` (such as the batch's id). Each write to one log needs an ``applicationId`` of its own.

    Options: an unknown one, or one that does not apply, is an error. Sizes are in bytes, or like ``64m``. In the table, read
    and write mean batches and streams; ``startingOffsets`` is earliest for a batch, latest for a stream.

    ==================== =========== ======================== ====================
    option               for         default                  meaning
    ==================== =========== ======================== ====================
    metadata             all         $BK_SPARK_METADATA       the cluster: `zk://host:port,…/root[?tls=true]`, or `embedded:DIR`
    path                 all         (or the next three)      name of the log, as given to `load(…)` and `save(…)`
    logs                 read        (none)                   names of several logs, `a,b,c`, for one read
    logsPattern          read        (none)                   regular expression: reads the logs whose whole name it matches
    ledger               read        (none)                   ledgers to read as entries: `7`; batches: also `3,5` or `3-9`
    topic                read        (none)                   a topic of Pulsar, `persistent://tenant/namespace/name`
    topics               read        (none)                   several topics, `a,b,c`
    topicsPattern        read        (none)                   `persistent://tenant/namespace/` and a regular expression
    pulsarMetadata       read        (beside `metadata`)      Pulsar's ZooKeeper, `zk://host:port[/root]`
    offloadEndpoint      read        (as Pulsar noted it)     the object store with offloaded ledgers, `https://host[:port]`
    schema               read        raw                      column `value`: `raw` bytes, or typed by the `topic`
    startingSubscription read        (none)                   starts where this durable subscription of Pulsar stands
    tombstones           read        true                     `false` leaves out messages of Pulsar without a value
    unreadable           read        fail                     messages that cannot be read, as encrypted ones: `fail`, or `skip`
    content              all         rows                     `rows`: any DataFrame; `entries`: single entries
    ensembleSize         write       3                        how many bookies a ledger is spread over
    writeQuorum          write       3                        how many bookies store each entry
    ackQuorum            write       2                        how many bookies must have an entry on disk to confirm it
    digestType           all         CRC32C                   `CRC32C`, `HMAC`, `CRC32` or `DUMMY`: proves entries to readers
    password             all         (none)                   authenticates adds and reads; never shown: text, or `0x…`
    passwordFile         all         (none)                   the same as the first line of a file, which the driver reads
    compression          write       zstd                     of row payloads: `none`, `lz4` or `zstd`
    maxRowsPerEntry      write       65536                    most rows of an entry; smaller batches are joined
    maxBytesPerEntry     write       1m                       most bytes of an entry, before compression
    where                read        (none)                   a condition on columns, in SQL: reads matching rows only
    maxBytesPerPartition read        128m                     larger ledgers are split, smaller ones are packed together
    minPartitions        read        1                        a hint: partitions are made smaller to reach it
    recover              batch read  false                    `true`: fences and closes open ledgers, then reads to their end
    includeMetadata      read        false                    columns that tell where a row comes from: `_log`, `_version` …
    startingOffsets      read        earliest; stream: latest `earliest`, `latest` or an offset (JSON): first entry to read
    endingOffsets        batch read  latest                   `latest` or an offset (JSON): first entry not to read
    startingTimestamp    read        (none)                   reads what was committed at that time or later
    versionAsOf          batch read  (latest)                 the log as it stood at that version
    timestampAsOf        batch read  (latest)                 the log as it stood at that time
    timeZone             read        (none)                   of times without an offset, such as `Europe/Berlin`
    maxRowsPerTrigger    stream read (unlimited)              most rows of a micro-batch, but at least one entry
    maxBytesPerTrigger   stream read (unlimited)              most payload bytes of a micro-batch
    failOnDataLoss       read        true                     `false`: skips what truncation removed, with a warning
    overwrites           read        fail                     where a commit replaced content: `fail`, `read` it, or `skip` it
    cursorName           stream read (random)                 names the stream's position in `bk-spark log show`
    applicationId        batch write (none)                   with `applicationVersion`: makes a repeated batch write harmless
    applicationVersion   batch write (none)                   a write is dropped if not above the id's last version
    partitionKey         write       (none)                   columns `a,b`: rows of one key go to one lane and stay in order
    lanes                write       (8, or the log's)        with `partitionKey`: to how many lanes
    lane                 read        (all)                    lanes to read: a number from 0 on, or a list `0,3`
    logColumn            write       (none)                   text column with the log's name, in place of `path`; not written
    createLogs           write       false                    with `logColumn`: makes logs that are missing
    view                 batch read  all                      `latest`: of each `partitionKey` the newest row alone
    deletedBy            batch read  (none)                   with `view=latest`: a boolean column, true where a key is gone
    mergeSchema          write       false                    the log's schema takes new columns and fields, and wider types
    tlsCa                all         (none)                   TLS with bookies (and ZooKeeper): authorities, as a PEM file
    tlsCertificate       all         (none)                   this client's certificate, a PEM file on all machines
    tlsKey               all         (none)                   the certificate's private key, a PEM file on all machines
    zookeeperAuth        all         $BK_SPARK_ZOOKEEPER_AUTH `digest:` or `sasl:user:password`, `x509`; Spark may show it
    bookieAuth           all         $BK_SPARK_BOOKIE_AUTH    `sasl:user:password`, for Apache's bookies that ask for it
    client.<field>       all                                  any field of ClientConfig, such as ``client.add_timeout_s``
    ==================== =========== ======================== ====================

    Example, with a cluster that lives as long as the ``with`` block::

        from pyspark.sql import SparkSession
        from bk_spark import LocalCluster, register

        spark = SparkSession.builder.master("local[2]").getOrCreate()
        register(spark)
        with LocalCluster(bookies=3) as cluster:
            orders = spark.range(1000).selectExpr("id", "id * 1.5 AS price", "array(id, id + 1) AS items")
            orders.write.format("bookkeeper").option("metadata", cluster.metadata_uri).mode("append").save("orders")
            stored = spark.read.format("bookkeeper").option("metadata", cluster.metadata_uri).load("orders")
            stored.where("id < 3").show()

    Ref: docs/formats.md, "Row payloads"; Spark's Python Data Source API.
    """

    @plain_errors()
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)
        self._loaded: LoadedLogs | None = None
        self._topic_columns: TopicColumns | None = None

    @classmethod
    def name(cls) -> str:
        return "bookkeeper"

    @plain_errors()
    def schema(self) -> StructType:
        """The schema of the log, or of entries. Raises NoSuchLogError, MetadataUnavailableError, ConfigError."""
        from bk_spark.datasource.read.loaded_log import columns_of
        from bk_spark.datasource.spark_schema import ENTRIES

        options = self._options
        options.check_use("batch read", "stream read")
        if options.reads_topics:
            from bk_spark.datasource.topics.reading import spark_schema

            return spark_schema(self._topics())
        return ENTRIES if options.ledger else columns_of(options, self._load().stored)

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns ``schema``. Raises SchemaMismatchError where the log does not have them."""
        from bk_spark.datasource.read.read_task import Reading
        from bk_spark.datasource.read.reader import EntryReader
        from bk_spark.datasource.spark_schema import ENTRIES, check_asked

        options = self._options
        options.check_use("batch read")
        if options.reads_topics:
            from bk_spark.datasource.topics.reader import TopicsReader

            return TopicsReader(self._topics_read(schema))
        if options.ledger:
            check_asked("(entries)", ENTRIES, schema)
            return EntryReader(Reading(options, schema))
        logs = self._load().logs
        if options.recover:
            self._recover(logs)
        return EntryReader(self._reading(schema), logs)

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter | SeveralBatchWriter:
        """As ``begin_write``, or as ``attempt_of`` for rows that name their logs."""
        from bk_spark.datasource.write.writer import begin_write

        self._options.check_use("batch write")
        if self._options.log_column is not None:
            from bk_spark.datasource.write.several_writer import SeveralBatchWriter, attempt_of

            return SeveralBatchWriter(attempt_of(self._options, schema, overwrite, needs_bookies=True))
        return begin_write(self._options, schema, overwrite)

    @plain_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that follows the logs, with the columns ``schema`` for the query's whole life. Its methods raise errors."""
        from bk_spark.datasource.read.several_reader import SeveralReader
        from bk_spark.datasource.read.stream_reader import RefusedStream, StreamReader

        try:
            self._options.check_use("stream read")
            if self._options.reads_topics:
                from bk_spark.datasource.topics.stream import TopicsStream

                return TopicsStream(self._topics_read(schema))
            if self._options.ledger:
                return self._ledger_stream(schema)
            reading, loaded = self._reading(schema), self._load()
        except BookKeeperError as problem:
            return RefusedStream(problem)
        if self._options.names_several:
            return SeveralReader(reading, loaded.stored)
        [log] = loaded.logs
        return StreamReader(reading, log.name, log.uid)

    @plain_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter | SeveralStreamWriter:
        """The writer of one batch of a query. Spark calls this before the batch's tasks, and again to commit what they wrote.

        Raises as ``begin_batch``, or as ``attempt_of`` for rows that name their logs.
        """
        from bk_spark.datasource.write.writer import begin_batch

        self._options.check_use("stream write")
        if self._options.log_column is not None:
            from bk_spark.datasource.write.several_writer import SeveralStreamWriter, attempt_of

            return SeveralStreamWriter(attempt_of(self._options, schema, overwrite, needs_bookies=False))
        return begin_batch(self._options, schema, overwrite)

    def _ledger_stream(self, schema: StructType) -> DataSourceStreamReader:
        from bk_spark.datasource.ledgers.stream import LedgerStream
        from bk_spark.datasource.read.read_task import Reading
        from bk_spark.datasource.spark_schema import ENTRIES, check_asked

        check_asked("(entries)", ENTRIES, schema)
        return LedgerStream(Reading(self._options, schema))

    def _reading(self, schema: StructType) -> Reading:
        """Raises SchemaMismatchError where the log does not have the columns ``schema``, ConfigError where it lacks a lane."""
        from bk_spark.datasource.read.loaded_log import columns_of, filter_of, latest_of
        from bk_spark.datasource.read.read_task import Reading
        from bk_spark.datasource.spark_schema import check_asked

        stored, logs = self._load().stored, self._load().logs
        check_asked(stored.name, columns_of(self._options, stored), schema)
        where = filter_of(self._options, stored)
        reading = Reading(self._options, schema, where, latest=latest_of(self._options, logs[0], where))
        for log in logs:
            reading.lanes.of(log.name, log.version, log.lanes)
        return reading

    def _topics_read(self, schema: StructType) -> TopicsRead:
        """Raises SchemaMismatchError where topics do not have the columns ``schema``."""
        from bk_spark.datasource.spark_schema import check_asked
        from bk_spark.datasource.topics.reading import TopicsRead, spark_schema

        columns = self._topics()
        check_asked("(topics of Pulsar)", spark_schema(columns), schema)
        return TopicsRead(self._options, columns, schema)

    def _topics(self) -> TopicColumns:
        """The columns of the topics as the first call saw them. Raises NoSuchTopicError where there is none."""
        from bk_spark.datasource.topics.reading import access_of, columns_of, named_topics
        from bk_spark.topic.store import TopicStore

        if self._topic_columns is None:
            topics = named_topics(self._options, TopicStore(access_of(self._options)))
            self._topic_columns = columns_of(self._options, topics).detached
        return self._topic_columns

    def _load(self) -> LoadedLogs:
        """The logs as the first call saw them, so that schema and reader see one version of each."""
        from bk_spark.datasource.read.loaded_logs import load_logs

        if self._loaded is None:
            self._loaded = load_logs(connect(self._options.metadata, self._options.client), self._options)
        return self._loaded

    def _recover(self, logs: Sequence[LoadedLog]) -> None:
        """Fence and close the logs' open ledgers, so that every version that lists them as open is read to their ends."""
        bookkeeper = connect(self._options.metadata, self._options.client)
        for log in logs:
            bookkeeper.open_log(log.name, password=self._options.password).recover()
