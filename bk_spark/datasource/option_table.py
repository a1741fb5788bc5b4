"""The table of the format's options: names, uses, defaults, parsers and meanings. The documentation's table is made from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from bk_spark.config import BOOKIE_AUTH_VARIABLE, KIB, MAX_ENTRY_BYTES, TLS_NAMES, ZOOKEEPER_AUTH_VARIABLE
from bk_spark.datasource import option_values as values
from bk_spark.datasource.option_values import EARLIEST, LATEST
from bk_spark.datasource.passwords import password
from bk_spark.datasource.sizes import size
from bk_spark.log.rows.latest.asked import ALL, VIEWS
from bk_spark.rows.lane_limits import MAX_LANES
from bk_spark.rows.payload_defaults import COMPRESSION, COMPRESSIONS
from bk_spark.rows.where.condition import parse_where

Use = Literal["batch read", "stream read", "batch write", "stream write"]
"""How the format is used."""

_USES: dict[str, tuple[Use, ...]] = {
    "all": ("batch read", "stream read", "batch write", "stream write"),
    "read": ("batch read", "stream read"),
    "write": ("batch write", "stream write"),
    "batch read": ("batch read",),
    "stream read": ("stream read",),
    "batch write": ("batch write",),
}
"""The second column of the table → the uses that it stands for."""

METADATA_VARIABLE = "BK_SPARK_METADATA"
CLIENT_PREFIX = "client."

OF_TOPICS_TOO = frozenset(
    {
        "metadata",
        "password",
        "passwordFile",
        "maxBytesPerPartition",
        "minPartitions",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "timeZone",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "failOnDataLoss",
        "tlsCa",
        "tlsCertificate",
        "tlsKey",
        "zookeeperAuth",
        "bookieAuth",
    }
)
"""The options that apply to logs and to topics of Pulsar."""

MAX_ROW_BYTES_PER_ENTRY = MAX_ENTRY_BYTES // 2
"""Rows are cut into entries by their bytes before compression; half of an entry's maximum leaves room for uneven rows."""

SECURITY = frozenset({*TLS_NAMES, "zookeeper_auth", "bookie_auth"})
"""Fields of ClientConfig that have options of their own."""


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table. ``parse`` takes the option's name and the string.

    ``rows_only``: it does not apply to entries. ``topics``: it applies only to topics of Pulsar.
    """

    name: str
    use: str
    default: str
    """As a user would write it. One in parentheses, or a variable, only says what holds without the option."""
    parse: Callable[[str, str], Any]
    meaning: str
    rows_only: bool = False
    topics: bool = False

    @property
    def key(self) -> str:
        """The key under which Spark passes it."""
        return self.name.lower()

    @property
    def attribute(self) -> str:
        """The field of SourceOptions, or of its ``client``: ``maxRowsPerEntry`` → ``max_rows_per_entry``."""
        return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", self.name).lower()

    @property
    def uses(self) -> tuple[Use, ...]:
        return _USES[self.use]


_SIZE_PER_ENTRY = size(KIB, MAX_ROW_BYTES_PER_ENTRY)
_ANY_SIZE = size(1, 2**40)
_VERSION = values.integer(0, 2**63 - 1)
_ANY_COUNT = values.integer(1, 2**63 - 1)
_OVERWRITES = values.one_of("fail", "read", "skip")
_STARTS = values.offsets(EARLIEST, LATEST)
_LANES = values.integer(1, MAX_LANES)
_COMPRESSION = values.one_of(*COMPRESSIONS)
_METADATA = "columns that tell where a row comes from: `_log`, `_version` …"

OPTIONS: tuple[Option, ...] = (
    Option(
        "metadata",
        "all",
        f"${METADATA_VARIABLE}",
        values.text,
        "the cluster: `zk://host:port,…/root[?tls=true]`, or `embedded:DIR`",
    ),
    Option("path", "all", "(or the next three)", values.text, "name of the log, as given to `load(…)` and `save(…)`"),
    Option("logs", "read", "", values.log_names, "names of several logs, `a,b,c`, for one read"),
    Option("logsPattern", "read", "", values.pattern, "regular expression: reads the logs whose whole name it matches"),
    Option("ledger", "read", "", values.ledger_ids, "ledgers to read as entries: `7`; batches: also `3,5` or `3-9`"),
    Option("topic", "read", "", values.topic_name, "a topic of Pulsar, `persistent://tenant/namespace/name`", topics=True),
    Option("topics", "read", "", values.topic_names, "several topics, `a,b,c`", topics=True),
    Option(
        "topicsPattern",
        "read",
        "",
        values.topics_pattern,
        "`persistent://tenant/namespace/` and a regular expression",
        topics=True,
    ),
    Option(
        "pulsarMetadata", "read", "(beside `metadata`)", values.text, "Pulsar's ZooKeeper, `zk://host:port[/root]`", topics=True
    ),
    Option(
        "offloadEndpoint",
        "read",
        "(as Pulsar noted it)",
        values.text,
        "the object store with offloaded ledgers, `https://host[:port]`",
        topics=True,
    ),
    Option(
        "schema",
        "read",
        "raw",
        values.one_of("raw", "topic"),
        "column `value`: `raw` bytes, or typed by the `topic`",
        topics=True,
    ),
    Option(
        "startingSubscription", "read", "", values.text, "starts where this durable subscription of Pulsar stands", topics=True
    ),
    Option("tombstones", "read", "true", values.boolean, "`false` leaves out messages of Pulsar without a value", topics=True),
    Option(
        "unreadable",
        "read",
        "fail",
        values.one_of("fail", "skip"),
        "messages that cannot be read, as encrypted ones: `fail`, or `skip`",
        topics=True,
    ),
    Option("content", "all", "rows", values.one_of("rows", "entries"), "`rows`: any DataFrame; `entries`: single entries"),
    Option("ensembleSize", "write", "3", values.integer(1, 64), "how many bookies a ledger is spread over"),
    Option("writeQuorum", "write", "3", values.integer(1, 64), "how many bookies store each entry"),
    Option("ackQuorum", "write", "2", values.integer(1, 64), "how many bookies must have an entry on disk to confirm it"),
    Option(
        "digestType",
        "all",
        "CRC32C",
        values.digest_type,
        "`CRC32C`, `HMAC`, `CRC32` or `DUMMY`: proves entries to readers",
    ),
    Option("password", "all", "", password, "authenticates adds and reads; never shown: text, or `0x…`"),
    Option("passwordFile", "all", "", values.text, "the same as the first line of a file, which the driver reads"),
    Option("compression", "write", COMPRESSION, _COMPRESSION, "of row payloads: `none`, `lz4` or `zstd`", rows_only=True),
    Option(
        "maxRowsPerEntry",
        "write",
        "65536",
        values.integer(1, 2**31 - 1),
        "most rows of an entry; smaller batches are joined",
        rows_only=True,
    ),
    Option("maxBytesPerEntry", "write", "1m", _SIZE_PER_ENTRY, "most bytes of an entry, before compression", rows_only=True),
    Option("where", "read", "", parse_where, "a condition on columns, in SQL: reads matching rows only", rows_only=True),
    Option("maxBytesPerPartition", "read", "128m", _ANY_SIZE, "larger ledgers are split, smaller ones are packed together"),
    Option("minPartitions", "read", "1", values.integer(1, 100_000), "a hint: partitions are made smaller to reach it"),
    Option("recover", "batch read", "false", values.boolean, "`true`: fences and closes open ledgers, then reads to their end"),
    Option("includeMetadata", "read", "false", values.boolean, _METADATA, rows_only=True),
    Option(
        "startingOffsets",
        "read",
        "earliest; stream: latest",
        _STARTS,
        "`earliest`, `latest` or an offset (JSON): first entry to read",
    ),
    Option(
        "endingOffsets",
        "batch read",
        "latest",
        values.offsets(LATEST),
        "`latest` or an offset (JSON): first entry not to read",
    ),
    Option("startingTimestamp", "read", "", values.moment, "reads what was committed at that time or later"),
    Option("versionAsOf", "batch read", "(latest)", _VERSION, "the log as it stood at that version"),
    Option("timestampAsOf", "batch read", "(latest)", values.moment, "the log as it stood at that time"),
    Option(
        "timeZone",
        "read",
        "",
        values.zone_name,
        "of times without an offset, such as `Europe/Berlin`",
    ),
    Option("maxRowsPerTrigger", "stream read", "(unlimited)", _ANY_COUNT, "most rows of a micro-batch, but at least one entry"),
    Option("maxBytesPerTrigger", "stream read", "(unlimited)", _ANY_SIZE, "most payload bytes of a micro-batch"),
    Option("failOnDataLoss", "read", "true", values.boolean, "`false`: skips what truncation removed, with a warning"),
    Option("overwrites", "read", "fail", _OVERWRITES, "where a commit replaced content: `fail`, `read` it, or `skip` it"),
    Option(
        "cursorName",
        "stream read",
        "(random)",
        values.short_text(200),
        "names the stream's position in `bk-spark log show`",
    ),
    Option("applicationId", "batch write", "", values.text, "with `applicationVersion`: makes a repeated batch write harmless"),
    Option("applicationVersion", "batch write", "", _VERSION, "a write is dropped if not above the id's last version"),
    Option(
        "partitionKey",
        "write",
        "",
        values.column_names,
        "columns `a,b`: rows of one key go to one lane and stay in order",
        rows_only=True,
    ),
    Option("lanes", "write", "(8, or the log's)", _LANES, "with `partitionKey`: to how many lanes", rows_only=True),
    Option("lane", "read", "(all)", values.lane_numbers, "lanes to read: a number from 0 on, or a list `0,3`", rows_only=True),
    Option(
        "logColumn",
        "write",
        "",
        values.text,
        "text column with the log's name, in place of `path`; not written",
        rows_only=True,
    ),
    Option("createLogs", "write", "false", values.boolean, "with `logColumn`: makes logs that are missing", rows_only=True),
    Option(
        "view",
        "batch read",
        ALL,
        values.one_of(*VIEWS),
        "`latest`: of each `partitionKey` the newest row alone",
        rows_only=True,
    ),
    Option(
        "deletedBy",
        "batch read",
        "",
        values.text,
        "with `view=latest`: a boolean column, true where a key is gone",
        rows_only=True,
    ),
    Option(
        "mergeSchema",
        "write",
        "false",
        values.boolean,
        "the log's schema takes new columns and fields, and wider types",
        rows_only=True,
    ),
    Option("tlsCa", "all", "", values.text, "TLS with bookies (and ZooKeeper): authorities, as a PEM file"),
    Option("tlsCertificate", "all", "", values.text, "this client's certificate, a PEM file on all machines"),
    Option("tlsKey", "all", "", values.text, "the certificate's private key, a PEM file on all machines"),
    Option(
        "zookeeperAuth",
        "all",
        f"${ZOOKEEPER_AUTH_VARIABLE}",
        values.text,
        "`digest:` or `sasl:user:password`, `x509`; Spark may show it",
    ),
    Option(
        "bookieAuth",
        "all",
        f"${BOOKIE_AUTH_VARIABLE}",
        values.text,
        "`sasl:user:password`, for Apache's bookies that ask for it",
    ),
)
"""Every option except ``client.<field>``: any field of ClientConfig, such as ``client.add_timeout_s``."""


def options_table() -> str:
    """The table in Markdown, for docs/guide/spark.md."""
    head = ["| option | for | default | meaning |", "|---|---|---|---|"]
    rows = [f"| `{o.name}` | {o.use} | {o.default or '(none)'} | {o.meaning} |" for o in OPTIONS]
    fields_row = "| `client.<field>` | all | | any field of ClientConfig, such as `client.add_timeout_s` |"
    return "\n".join([*head, *rows, fields_row])


def default_of(name: str) -> Any:
    """The value of the default that the table has for an option."""
    [option] = [one for one in OPTIONS if one.name == name]
    return option.parse(name, option.default)
