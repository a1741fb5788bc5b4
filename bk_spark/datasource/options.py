"""The one option table of the format: strings from Spark → frozen ``SourceOptions``, with defaults, units and errors.

Spark hands over all options as strings under lower-cased keys. An unknown option, a value out of range, an option that
does not apply each raise ConfigError when the data source is made, so that ``load()`` and ``save()`` fail at once.
``OPTIONS`` is the table from which the documentation is made.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from bk_spark.config import KIB, MAX_ENTRY_BYTES, MIB, ClientConfig, DigestType
from bk_spark.errors import ConfigError
from bk_spark.quorum import check_quorums

Use = Literal["all", "read", "write"]

METADATA_VARIABLE = "BK_SPARK_METADATA"
CLIENT_PREFIX = "client."

MAX_LEDGERS = 10_000
"""Ledgers that one ``ledger`` option may name: each costs a look-up in the metadata store before the first row."""

MAX_ROW_BYTES_PER_ENTRY = MAX_ENTRY_BYTES // 2
"""The cut works on bytes before compression; half of the maximum leaves room for uneven rows."""

_SPARKS_OWN = frozenset({"provider", "owner", "location", "external", "comment"})
"""What a catalog table (CREATE TABLE … USING bookkeeper) passes along beside the user's options, and ``option.<key>``."""

_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_BINARY_UNITS = {"": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table. ``parse`` gets the option's name and the string; ``rows_only`` ones do not apply to entries."""

    name: str
    use: Use
    default: str
    parse: Callable[[str, str], Any]
    meaning: str
    unit: str = ""
    rows_only: bool = False

    @property
    def key(self) -> str:
        """As Spark hands it over."""
        return self.name.lower()

    @property
    def attribute(self) -> str:
        """The field of SourceOptions: ``maxRowsPerEntry`` → ``max_rows_per_entry``."""
        return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", self.name).lower()


def _text(name: str, value: str) -> str:
    if not value:
        raise ConfigError(f"option '{name}'", value, "it must not be empty")
    return value


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        if not re.fullmatch(r"\d{1,19}", value.strip()) or not low <= int(value) <= high:
            raise ConfigError(f"option '{name}'", value, f"it must be a whole number from {low} to {high}")
        return int(value)

    return parse


def _size(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        match = _SIZE.fullmatch(value.strip())
        size = int(match[1]) * _BINARY_UNITS[match[2].lower()] if match and len(match[1]) < 20 else -1
        if not low <= size <= high:
            raise ConfigError(f"option '{name}'", value, f"it must be a size from {low} to {high} bytes, such as 65536 or 64m")
        return size

    return parse


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"option '{name}'", value, "it must be true or false")
    return value.lower() == "true"


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.lower() not in choices:
            raise ConfigError(f"option '{name}'", value, f"it must be one of {', '.join(choices)}")
        return value.lower()

    return parse


def _digest_type(name: str, value: str) -> DigestType:
    if value.upper() not in DigestType.__members__:
        raise ConfigError(f"option '{name}'", value, f"it must be one of {', '.join(DigestType.__members__)}")
    return DigestType[value.upper()]


def _password(_name: str, value: str) -> bytes:
    return value.encode()


def _ledger_ids(name: str, value: str) -> tuple[int, ...]:
    ids: list[int] = []
    for part in value.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise ConfigError(f"option '{name}'", value, "it must be a ledger id, a list such as 3,5 or a range such as 3-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or len(ids) + last - first >= MAX_LEDGERS:
            raise ConfigError(f"option '{name}'", value, f"it must name ascending ranges, {MAX_LEDGERS} ledgers at most")
        ids += range(first, last + 1)
    if len(set(ids)) != len(ids):
        raise ConfigError(f"option '{name}'", value, "it names a ledger twice")
    return tuple(ids)


OPTIONS: tuple[Option, ...] = (
    Option("metadata", "all", f"${METADATA_VARIABLE}", _text, "the cluster: `zk://host:port[,host:port…]/root`"),
    Option("path", "all", "(required, or `ledger`)", _text, "name of the log; what `load(…)` and `save(…)` are given"),
    Option("ledger", "read", "", _ledger_ids, "ledgers to read as entries: an id, a list `3,5` or a range `3-9`"),
    Option("content", "all", "rows", _one_of("rows", "entries"), "`rows`: any DataFrame; `entries`: one row an entry"),
    Option("ensembleSize", "write", "3", _integer(1, 64), "bookies that a ledger is spread over", "bookies"),
    Option("writeQuorum", "write", "3", _integer(1, 64), "bookies that hold each entry", "bookies"),
    Option("ackQuorum", "write", "2", _integer(1, 64), "bookies that have an entry on disk before it is confirmed", "bookies"),
    Option("digestType", "all", "CRC32C", _digest_type, "`CRC32C` or `HMAC`: protects entries from writer to reader"),
    Option("password", "all", "", _password, "authenticates adds and reads; never shown"),
    Option("compression", "write", "zstd", _one_of("none", "lz4", "zstd"), "of row payloads", rows_only=True),
    Option("maxRowsPerEntry", "write", "65536", _integer(1, 2**31 - 1), "cut of row payloads", "rows", rows_only=True),
    Option(
        "maxBytesPerEntry", "write", "1m", _size(KIB, MAX_ROW_BYTES_PER_ENTRY), "the same, before compression", "bytes", True
    ),
    Option(
        "maxBytesPerPartition",
        "read",
        "128m",
        _size(1, 2**40),
        "larger ledgers are split, smaller ones are packed together",
        "bytes",
    ),
    Option("minPartitions", "read", "1", _integer(1, 100_000), "a hint: partitions are made smaller to reach it"),
    Option("recover", "read", "false", _boolean, "`true`: fences and closes open ledgers, then reads to their end"),
    Option("includeMetadata", "read", "false", _boolean, "adds `_ledger_id` and `_entry_id` to rows", rows_only=True),
    Option("versionAsOf", "read", "(latest)", _integer(0, 2**63 - 1), "the log as it stood at that version"),
    Option("applicationId", "write", "", _text, "with `applicationVersion`: makes a repeated batch write harmless"),
    Option("applicationVersion", "write", "", _integer(0, 2**63 - 1), "a write not above the log's last one is dropped"),
    Option("mergeSchema", "write", "false", _boolean, "new columns are added to the log's schema", rows_only=True),
)
"""Every option, save ``client.<field>``: any field of ClientConfig, such as ``client.add_timeout_s``."""


def options_table() -> str:
    """The table as the README shows it, in Markdown."""
    uses = {"all": "read, write"}
    head = ["| option | for | default | meaning |", "|---|---|---|---|"]
    rows = [f"| `{o.name}` | {uses.get(o.use, o.use)} | {o.default or '(none)'} | {o.meaning} |" for o in OPTIONS]
    fields_row = "| `client.<field>` | read, write | | any field of ClientConfig, such as `client.add_timeout_s` |"
    return "\n".join([*head, *rows, fields_row])


_BY_KEY = {option.key: option for option in OPTIONS}


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """All options of one ``load()`` or ``save()``, parsed and checked against each other. Pickles with reader and writer."""

    metadata: str
    path: str | None = None
    ledger: tuple[int, ...] = ()
    content: str = "rows"
    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = field(default=b"", repr=False)
    compression: str = "zstd"
    max_rows_per_entry: int = 65_536
    max_bytes_per_entry: int = MIB
    max_bytes_per_partition: int = 128 * MIB
    min_partitions: int = 1
    recover: bool = False
    include_metadata: bool = False
    version_as_of: int | None = None
    application_id: str | None = None
    application_version: int | None = None
    merge_schema: bool = False
    client: ClientConfig = field(default_factory=ClientConfig)
    given: frozenset[str] = frozenset()
    """Keys of the options that the user gave: what is checked against the use that is made of them."""

    def __post_init__(self) -> None:
        self._check_target()
        self._check_application()
        if self.reads_entries:
            self._refuse([o for o in OPTIONS if o.rows_only], "entries", "leave it out, or leave out option 'content'")

    @property
    def reads_entries(self) -> bool:
        return self.content == "entries" or bool(self.ledger)

    @property
    def log(self) -> str:
        """The name of the log. Raises ConfigError where there is none."""
        if self.path is None:
            raise ConfigError("option 'path'", None, "it must name the log: .load('name') or .save('name')")
        return self.path

    def check_use(self, use: Use) -> None:
        """Raise ConfigError if an option was given that does not apply to reading, or to writing."""
        other = {"read": "a write", "write": "a read"}[use]
        self._refuse([o for o in OPTIONS if o.use not in ("all", use)], f"a {use}", f"it belongs to {other}, leave it out")
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)

    def _refuse(self, options: list[Option], use: str, remedy: str) -> None:
        for option in options:
            if option.key in self.given:
                value = getattr(self, option.attribute)
                raise ConfigError(f"option '{option.name}'", value, f"it does not apply to {use}: {remedy}")

    def _check_target(self) -> None:
        if self.ledger and self.path is not None:
            raise ConfigError("option 'ledger'", self.ledger, f"the log '{self.path}' is named too: give one of the two")
        if self.ledger and self.content == "rows" and "content" in self.given:
            raise ConfigError("option 'content'", "rows", "ledgers are read as entries: leave it out, or name a log")
        if self.ledger and self.version_as_of is not None:
            raise ConfigError("option 'versionAsOf'", self.version_as_of, "ledgers have no versions: leave it out")
        if not self.ledger and self.path is None:
            raise ConfigError("option 'path'", None, "it must name the log: .load('name') or .save('name')")

    def _check_application(self) -> None:
        if (self.application_id is None) != (self.application_version is None):
            raise ConfigError("option 'applicationId'", self.application_id, "it and 'applicationVersion' only work together")


def parse_options(options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> SourceOptions:
    """What Spark hands over, checked. Raises ConfigError; never shows the password."""
    given = {key.lower(): value for key, value in options.items() if not _is_sparks_own(key.lower())}
    for key in given:
        _check_known(key)
    if "metadata" not in given and METADATA_VARIABLE in environment:
        given["metadata"] = environment[METADATA_VARIABLE]
    if "metadata" not in given:
        raise ConfigError(
            "option 'metadata'", None, f"it must be the cluster's URI, zk://host:port/ledgers; or set ${METADATA_VARIABLE}"
        )
    values = {o.attribute: o.parse(o.name, given[o.key]) for o in OPTIONS if o.key in given}
    client = {key.removeprefix(CLIENT_PREFIX): value for key, value in given.items() if key.startswith(CLIENT_PREFIX)}
    return SourceOptions(**values, client=_client_config(client), given=frozenset(given))


def _is_sparks_own(key: str) -> bool:
    return key in _SPARKS_OWN or key.startswith("option.")


def _check_known(key: str) -> None:
    if key == "paths":
        raise ConfigError("option 'path'", "a list", "load one log at a time, and join them with union()")
    names = [o.name for o in OPTIONS] + [CLIENT_PREFIX + f.name for f in fields(ClientConfig)]
    by_key = {name.lower(): name for name in names}
    if key not in by_key:
        nearest = difflib.get_close_matches(key, by_key, 1)
        known = f"the nearest is '{by_key[nearest[0]]}'" if nearest else f"there are {', '.join(o.name for o in OPTIONS)}"
        raise ConfigError("option", key, f"the format 'bookkeeper' has no such option, {known}")


def _client_config(given: Mapping[str, str]) -> ClientConfig:
    chosen = [field for field in fields(ClientConfig) if field.name in given]
    values: dict[str, Any] = {field.name: _field(field.name, given[field.name], field.default) for field in chosen}
    return ClientConfig(**values)


def _field(name: str, value: str, default: object) -> bool | int | float:
    if isinstance(default, bool):
        return _boolean(CLIENT_PREFIX + name, value)
    if name.endswith("_bytes"):
        return _size(1, 2**40)(CLIENT_PREFIX + name, value)
    if isinstance(default, int):
        return _integer(1, 2**31 - 1)(CLIENT_PREFIX + name, value)
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
        raise ConfigError(f"option '{CLIENT_PREFIX}{name}'", value, "it must be a number of seconds, such as 2.5")
    return float(value)
