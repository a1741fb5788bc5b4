"""The options of the format: strings from Spark → frozen ``SourceOptions``, with defaults, units and errors.

Spark passes all options as strings under lower-cased keys. An unknown option, a value out of range, or an option that
does not apply raises ConfigError when the data source is made, so ``load()`` and ``save()`` fail at once. The table
``OPTIONS`` is also the source of the documentation.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, tzinfo
from typing import Any

from bk_spark.config import BOOKIE_AUTH_VARIABLE, ZOOKEEPER_AUTH_VARIABLE, ClientConfig, DigestType
from bk_spark.datasource import option_values as values
from bk_spark.datasource.option_table import (
    CLIENT_PREFIX,
    METADATA_VARIABLE,
    OF_TOPICS_TOO,
    OPTIONS,
    SECURITY,
    Option,
    Use,
    default_of,
)
from bk_spark.datasource.option_values import LATEST
from bk_spark.datasource.passwords import password_in_file
from bk_spark.datasource.sizes import size
from bk_spark.embedded.join import settled
from bk_spark.errors import ConfigError, State
from bk_spark.log.rows.latest.asked import AskedView
from bk_spark.quorum import check_quorums
from bk_spark.rows.local_time import NO_ZONE, time_zone
from bk_spark.rows.where.condition import Condition

_PATHS = "paths"
"""The key under which Spark passes the list of ``load(["a", "b"])``."""

_SPARKS_OWN = frozenset({"provider", "owner", "location", "external", "comment"})
"""Keys that a catalog table (CREATE TABLE … USING bookkeeper) passes beside the user's options; ``option.<key>`` too."""

_SPARKS_QUERY = frozenset({"checkpointlocation", "queryname"})
"""Keys that a streaming query passes to its sink, for Spark's own use."""

_GIVE_METADATA = (
    f"it must be the cluster's URI, zk://host:port/ledgers or embedded:DIR (bookies of this machine, started at first use); "
    f"or set ${METADATA_VARIABLE}"
)
_OF_ONE_LOG = ("several logs", "each has versions and offsets of its own: give a time, or read one log")
"""Why a batch read of several logs takes no offset and no version."""
_GIVE_PATH = "it must name the log: .load('name') or .save('name'); or option 'topic' a topic of Pulsar"
_DROPPED_OPTIONS = (
    "Spark passed no option at all, as for a catalog table (CREATE TABLE), whose options it drops: give them at each use, "
    "SELECT … FROM t WITH ('metadata' = '…', 'path' = '…') or INSERT INTO t WITH (…), or use "
    "CREATE TEMPORARY VIEW v USING bookkeeper OPTIONS (metadata '…', path '…')"
)
"""For a use without options. Nothing else tells the use of a table whose options are lost from a ``load()`` without any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """All options of one ``load()`` or ``save()``, parsed and checked against each other. Pickled with reader and writer."""

    metadata: str
    path: str | None = None
    logs: tuple[str, ...] = ()
    logs_pattern: str | None = None
    ledger: tuple[int, ...] = ()
    topic: str | None = None
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    pulsar_metadata: str | None = None
    offload_endpoint: str | None = None
    schema: str = default_of("schema")
    starting_subscription: str | None = None
    tombstones: bool = default_of("tombstones")
    unreadable: str = default_of("unreadable")
    content: str = default_of("content")
    ensemble_size: int = default_of("ensembleSize")
    write_quorum: int = default_of("writeQuorum")
    ack_quorum: int = default_of("ackQuorum")
    digest_type: DigestType = field(default=default_of("digestType"))
    password: bytes = field(default=b"", repr=False)
    password_file: str | None = None
    compression: str = default_of("compression")
    max_rows_per_entry: int = default_of("maxRowsPerEntry")
    max_bytes_per_entry: int = default_of("maxBytesPerEntry")
    max_bytes_per_partition: int = default_of("maxBytesPerPartition")
    min_partitions: int = default_of("minPartitions")
    recover: bool = default_of("recover")
    include_metadata: bool = default_of("includeMetadata")
    where: Condition | None = None
    starting_offsets: str | None = None
    ending_offsets: str = default_of("endingOffsets")
    starting_timestamp: int | None = None
    version_as_of: int | None = None
    timestamp_as_of: int | None = None
    time_zone: str | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = default_of("failOnDataLoss")
    overwrites: str = default_of("overwrites")
    cursor_name: str | None = None
    application_id: str | None = None
    application_version: int | None = None
    partition_key: tuple[str, ...] = ()
    lanes: int | None = None
    lane: tuple[int, ...] = ()
    log_column: str | None = None
    create_logs: bool = default_of("createLogs")
    view: str = default_of("view")
    deleted_by: str | None = None
    merge_schema: bool = default_of("mergeSchema")
    client: ClientConfig = field(default_factory=ClientConfig)
    given: frozenset[str] = frozenset()
    """Keys of the options that the user gave; only these are checked against the use of the format."""

    def __post_init__(self) -> None:
        self._check_target()
        self._check_topics()
        self._check_application()
        self._check_range()
        self._check_view()
        if self.reads_entries:
            self._refuse([o for o in OPTIONS if o.rows_only], "entries", "leave it out, or leave out option 'content'")

    @property
    def reads_entries(self) -> bool:
        return self.content == "entries" or bool(self.ledger)

    @property
    def reads_topics(self) -> bool:
        """Whether the options name topics of Pulsar."""
        return bool(self.topic or self.topics or self.topics_pattern)

    @property
    def names_several(self) -> bool:
        """Whether a list or a pattern names the logs, however many they are."""
        return bool(self.logs) or self.logs_pattern is not None

    @property
    def zone(self) -> tzinfo | None:
        """The time zone of times without an offset from UTC; None if none is given."""
        return None if self.time_zone is None else time_zone(self.time_zone)

    @property
    def asked_view(self) -> AskedView:
        """Raises ConfigError."""
        return AskedView(self.view, self.deleted_by, "option 'view'", "option 'deletedBy'")

    @property
    def log(self) -> str:
        """The name of the log. Raises ConfigError where the options name none."""
        if self.path is None:
            raise _no_path()
        return self.path

    def check_use(self, *uses: Use) -> None:
        """Raise ConfigError if a given option applies to none of ``uses``."""
        for option in OPTIONS:
            if not set(option.uses) & set(uses):
                self._refuse([option], f"a {uses[0]}", f"it belongs to a {option.uses[0]}, leave it out")
        for key in _SPARKS_QUERY & self.given:
            if "stream write" not in uses:
                problem = f"it does not apply to a {uses[0]}: it belongs to a stream write, leave it out"
                raise ConfigError("option", key, problem)
        if uses == ("batch read",) and self.names_several:
            self._refuse([o for o in OPTIONS if o.name == "startingOffsets"], *_OF_ONE_LOG)
        if uses == ("batch read",) and self.ledger:
            starting = [o for o in OPTIONS if o.name == "startingOffsets"]
            self._refuse(starting, "a batch read of ledgers", "name a log, or leave it out")
        if uses == ("stream read",) and len(self.ledger) > 1:
            problem = "a stream follows one ledger: start one for each, or name a log, which is a list of ledgers"
            raise ConfigError("option 'ledger'", State(f"a list of {len(self.ledger)} ledgers"), problem)
        if uses == ("batch read",) and self.starting_offsets == LATEST:
            problem = "a batch read has no rows behind it: only a stream starts there"
            raise ConfigError("option 'startingOffsets'", LATEST, problem)
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)

    def _refuse(self, options: list[Option], use: str, remedy: str) -> None:
        for option in options:
            if option.key in self.given:
                value = getattr(self, option.attribute)
                raise ConfigError(f"option '{option.name}'", value, f"it does not apply to {use}: {remedy}")

    def _check_target(self) -> None:
        targets = {
            "path": self.path,
            "logColumn": self.log_column,
            "logs": self.logs,
            "logsPattern": self.logs_pattern,
            "ledger": self.ledger,
            "topic": self.topic,
            "topics": self.topics,
            "topicsPattern": self.topics_pattern,
        }
        named = [name for name, value in targets.items() if value]
        if len(named) > 1:
            problem = f"option '{named[0]}' names what to read or write too, {targets[named[0]]!r}: give one of the two"
            raise ConfigError(f"option '{named[1]}'", targets[named[1]], problem)
        if self.ledger and self.content == "rows" and "content" in self.given:
            raise ConfigError("option 'content'", "rows", "ledgers are read as entries: leave it out, or name a log")
        if not named:
            raise _no_path()
        if self.log_column is None:
            self._refuse([o for o in OPTIONS if o.name == "createLogs"], "one log", "a write to a log makes it, leave it out")

    def _check_topics(self) -> None:
        """Options of topics and options of logs do not mix."""
        if self.reads_topics:
            of_logs = [o for o in OPTIONS if not o.topics and o.name not in OF_TOPICS_TOO]
            self._refuse(of_logs, "topics of Pulsar", "leave it out")
        else:
            self._refuse([o for o in OPTIONS if o.topics], "logs", "leave it out, or name topics with option 'topic'")

    def _check_range(self) -> None:
        """A read has one start and one end, and only the read of a log or of topics has them."""
        names = ("startingOffsets", "startingTimestamp", "startingSubscription")
        starts = [o for o in OPTIONS if o.name in names and o.key in self.given]
        ends = [o for o in OPTIONS if o.name in ("endingOffsets", "versionAsOf", "timestampAsOf") and o.key in self.given]
        if self.ledger:
            of_logs = [o for o in OPTIONS if o.name in ("cursorName", "overwrites", "failOnDataLoss")]
            not_offsets = [o for o in starts if o.name != "startingOffsets"]
            self._refuse([*not_offsets, *ends, *of_logs], "ledgers", "name a log, or leave it out")
        if self.names_several:
            self._refuse([o for o in ends if o.name != "timestampAsOf"], *_OF_ONE_LOG)
        for given in (starts, ends):
            if len(given) > 1:
                value = getattr(self, given[1].attribute)
                raise ConfigError(f"option '{given[1].name}'", value, f"'{given[0].name}' says where too: give one of the two")

    def _check_view(self) -> None:
        """The newest row of a key is that of one log at one version."""
        if not self.asked_view.is_latest:
            return
        if self.names_several:
            remedy = "it does not apply to several logs, each of which has a key of its own: read one log, and use union()"
            raise ConfigError("option 'view'", self.view, remedy)
        ranges = [o for o in OPTIONS if o.name in ("startingOffsets", "endingOffsets", "startingTimestamp")]
        remedy = "leave it out, give versionAsOf or timestampAsOf, or take Log.read_rows(start=…, end=…)"
        self._refuse(ranges, "view=latest", remedy)

    def _check_application(self) -> None:
        if (self.application_id is None) != (self.application_version is None):
            raise ConfigError("option 'applicationId'", self.application_id, "it and 'applicationVersion' only work together")


def parse_options(options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> SourceOptions:
    """Parse and check what Spark passes. Raises ConfigError, which never shows the password or ZooKeeper's credential."""
    lowered = {key.lower(): value for key, value in options.items()}
    given = {key: value for key, value in lowered.items() if key not in _SPARKS_OWN and not key.startswith("option.")}
    for key in given:
        _check_known(key)
    dropped = "" if given else f". {_DROPPED_OPTIONS}"
    if "metadata" not in given and METADATA_VARIABLE in environment:
        given["metadata"] = environment[METADATA_VARIABLE]
    if "metadata" not in given:
        raise ConfigError("option 'metadata'", None, _GIVE_METADATA + dropped)
    if dropped:
        raise ConfigError("option 'path'", None, _GIVE_PATH + dropped)
    of_topics = {o.key for o in OPTIONS if o.name in ("topic", "topics", "topicsPattern")} & given.keys()
    special = _OFFSETS_OF_TOPICS if of_topics else _OFFSETS_OF_A_LEDGER if "ledger" in given else {}
    parsed = {o.attribute: special.get(o.name, o.parse)(o.name, given[o.key]) for o in OPTIONS if o.key in given}
    _add_password(parsed)
    if _PATHS in given:
        _add_paths(parsed, given[_PATHS])
    for option in OPTIONS:
        if isinstance(parsed.get(option.attribute), datetime):
            parsed[option.attribute] = _placed(option, given[option.key], parsed)
    client = {key.removeprefix(CLIENT_PREFIX): value for key, value in given.items() if key.startswith(CLIENT_PREFIX)}
    secured = {name: parsed.pop(name) for name in SECURITY & parsed.keys()}
    for name, variable in (("zookeeper_auth", ZOOKEEPER_AUTH_VARIABLE), ("bookie_auth", BOOKIE_AUTH_VARIABLE)):
        if variable in environment:
            secured.setdefault(name, environment[variable])
    parsed["metadata"] = settled(parsed["metadata"])
    return SourceOptions(**parsed, client=_client_config(client, secured), given=frozenset(given))


_OFFSETS_OF_TOPICS: dict[str, Callable[[str, str], Any]] = {
    "startingOffsets": values.topic_start,
    "endingOffsets": values.topic_end,
}
_OFFSETS_OF_A_LEDGER: dict[str, Callable[[str, str], Any]] = {"startingOffsets": values.ledger_start}
"""Positions in topics and in ledgers have forms of their own."""


def _placed(option: Option, value: str, parsed: Mapping[str, Any]) -> int:
    """Milliseconds since 1970 of a time that names no offset from UTC."""
    if "time_zone" not in parsed:
        raise ConfigError(f"option '{option.name}'", value, NO_ZONE)
    return values.milliseconds(parsed[option.attribute], time_zone(parsed["time_zone"]))


def _add_password(parsed: dict[str, Any]) -> None:
    """The first line of ``passwordFile`` is the password."""
    if "password_file" not in parsed:
        return
    if "password" in parsed:
        raise ConfigError("option 'passwordFile'", parsed["password_file"], "'password' gives one too: give one of the two")
    parsed["password"] = password_in_file("option 'passwordFile'", parsed["password_file"])


def _add_paths(parsed: dict[str, Any], value: str) -> None:
    """The list of ``load([…])`` means what option ``logs`` does."""
    if "logs" in parsed:
        raise ConfigError("option 'logs'", parsed["logs"], "load([…]) names logs too: give one of the two")
    parsed["logs"] = values.log_list("path", value)


def _no_path() -> ConfigError:
    return ConfigError("option 'path'", None, _GIVE_PATH)


def _check_known(key: str) -> None:
    if key in (_PATHS, *_SPARKS_QUERY):
        return
    own = {CLIENT_PREFIX + o.attribute: o.name for o in OPTIONS if o.attribute in SECURITY}
    if key in own:
        raise ConfigError("option", key, f"give it as '{own[key]}'")
    names = [o.name for o in OPTIONS] + [CLIENT_PREFIX + f.name for f in fields(ClientConfig) if f.name not in SECURITY]
    if key not in {name.lower() for name in names}:
        kind = [name for name in names if name.startswith(CLIENT_PREFIX) is key.startswith(CLIENT_PREFIX)]
        bare = {name.removeprefix(CLIENT_PREFIX).lower(): name for name in kind}
        nearest = difflib.get_close_matches(key.removeprefix(CLIENT_PREFIX), bare, 1)
        known = f"the nearest is '{bare[nearest[0]]}'" if nearest else f"there are {', '.join(kind)}"
        raise ConfigError("option", key, f"the format 'bookkeeper' has no such option, {known}")


def _client_config(given: Mapping[str, str], secured: Mapping[str, Any]) -> ClientConfig:
    chosen = [field for field in fields(ClientConfig) if field.name in given]
    parsed = {field.name: _field(CLIENT_PREFIX + field.name, given[field.name], field.default) for field in chosen}
    return ClientConfig(**parsed, **secured)


def _field(name: str, value: str, default: object) -> Any:
    if isinstance(default, bool):
        return values.boolean(name, value)
    if name.endswith("_bytes"):
        return size(1, 2**40)(name, value)
    return values.integer(1, 2**31 - 1)(name, value) if isinstance(default, int) else values.seconds(name, value)
