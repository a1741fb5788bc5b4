"""Where a log's tier lies, and when rows come into it and ledgers leave bookies: what a user sets.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bk_spark.errors import ConfigError, State
from bk_spark.log.stored.json_values import FORMAT_OF_TIERS, check_integer, decode, encode, integer, items, text

SCHEMES = ("file", "s3", "gs", "abfs", "abfss")
_SECRET = re.compile(
    r"secret|password|token|credential|access-key|account-key|api-key|connection-string|authorization|^header\.", re.IGNORECASE
)
_URL_WITH_PASSWORD = re.compile(r"^[\w+.-]+://[^/@\s]*:[^/@\s]+@")
_NO_SECRETS = "a secret would lie in the metadata store: give it in the environment of whoever tiers and reads"


BUCKET = "bucket"
_PARTITION = re.compile(r"(years|months|days|hours)\(\s*(.+?)\s*\)|bucket\(\s*([1-9]\d{0,5})\s*,\s*(.+?)\s*\)")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a table's partitioning: ``days(at)``, ``bucket(16, customer)``."""

    transform: str
    column: str
    count: int = 0
    """Of buckets."""

    def __str__(self) -> str:
        return f"{self.transform}({f'{self.count}, ' if self.count else ''}{self.column})"

    @staticmethod
    def parse(given: str) -> PartitionField:
        """Raises ConfigError."""
        found = _PARTITION.fullmatch(given) if isinstance(given, str) else None
        if found is None:
            remedy = "it must be years, months, days or hours of a column, as in days(at), or as in bucket(16, customer)"
            raise ConfigError("a partition of a tier", given, remedy)
        return PartitionField(found[1], found[2]) if found[1] else PartitionField(BUCKET, found[4], int(found[3]))


@dataclass(frozen=True, slots=True)
class Tier:
    """A log's tier: an Iceberg table.

    Raises ConfigError for a location, a name or a number that cannot be one, and for a secret.
    """

    location: str
    """Where the table's files lie: ``file:///…``, ``s3://bucket/…``, ``gs://…`` or ``abfs://…``. The tier's alone."""
    table: str
    """Namespace and name: ``shop.orders``."""
    catalog: Mapping[str, str] = field(default_factory=dict)
    """pyiceberg's properties of the catalog, and its ``name`` (``default``). Without secrets: whoever tiers or reads has them
    in its environment. Without a ``type`` or ``uri`` it is a file of SQLite, ``_catalog.db`` at a ``file:`` location."""
    tier_after_s: int = 900
    """``bk-spark tier serve`` tiers rows so many seconds after their commit. A leader's ledger is rolled for it."""
    keep_on_bookies_s: int = 86_400
    """Ledgers stay on bookies for so many seconds after they were tiered."""
    tier_after_bytes: int | None = None
    """Or sooner: once so many bytes wait. None: they wait for ``tier_after_s``."""
    keep_on_bookies_bytes: int | None = None
    """Or shorter: the oldest ones leave while tiered ledgers of more bytes are on bookies. None: however many."""
    partition: Sequence[str] = ()
    """How the table is partitioned: ``days(at)`` (``years``, ``months``, ``hours``), ``bucket(16, customer)``."""

    def __post_init__(self) -> None:
        scheme, found, rest = self.location.partition("://") if isinstance(self.location, str) else ("", "", "")
        if not found or scheme not in SCHEMES or not rest.strip("/") or set("?#%") & set(rest):
            remedy = "it must be the address of a folder without ?, # and %, such as s3://bucket/orders or file:///data/orders"
            raise ConfigError("the location of a tier", self.location, remedy)
        if _URL_WITH_PASSWORD.match(self.location):
            raise ConfigError("the location of a tier", State("(not shown)"), f"it has a password in it: {_NO_SECRETS}")
        object.__setattr__(self, "location", self.location.rstrip("/"))
        if not isinstance(self.table, str) or not all(self.table.split(".")) or "." not in self.table:
            raise ConfigError("the table of a tier", self.table, "it must have a namespace and a name, such as shop.orders")
        if not isinstance(self.catalog, Mapping) or not all(
            isinstance(one, str) for pair in self.catalog.items() for one in pair
        ):
            raise ConfigError("the catalog of a tier", self.catalog, "it must map names to texts, as pyiceberg's properties do")
        secret = next((k for k, one in self.catalog.items() if _SECRET.search(k) or _URL_WITH_PASSWORD.match(one)), None)
        if secret is not None:
            raise ConfigError("the catalog of a tier", secret, _NO_SECRETS)
        check_integer("tier_after_s", self.tier_after_s, 0)
        check_integer("keep_on_bookies_s", self.keep_on_bookies_s, 0)
        for name, limit in (("tier_after_bytes", self.tier_after_bytes), ("keep_on_bookies_bytes", self.keep_on_bookies_bytes)):
            if limit is not None:
                check_integer(name, limit, 1)
        given = (
            (self.partition,) if isinstance(self.partition, str) or not isinstance(self.partition, Sequence) else self.partition
        )
        object.__setattr__(self, "partition", tuple(str(PartitionField.parse(one)) for one in given))
        if len(set(self.partition)) < len(self.partition):
            raise ConfigError("the partitioning of a tier", ", ".join(self.partition), "one is given twice")

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        return tuple(map(PartitionField.parse, self.partition))

    def encode(self) -> bytes:
        return encode(FORMAT_OF_TIERS, **{**asdict(self), "catalog": dict(self.catalog), "partition": list(self.partition)})

    @staticmethod
    def decode(what: str, value: bytes) -> Tier:
        """Raises CorruptionError, FormatVersionError."""

        def build(record: dict[str, Any]) -> Tier:
            return Tier(
                text(record["location"]),
                text(record["table"]),
                {text(name): text(one) for name, one in record["catalog"].items()},
                integer(record["tier_after_s"], 0),
                integer(record["keep_on_bookies_s"], 0),
                _limit(record.get("tier_after_bytes")),
                _limit(record.get("keep_on_bookies_bytes")),
                tuple(map(text, items(record.get("partition", [])))),
            )

        return decode(what, value, build)


def _limit(value: object) -> int | None:
    return None if value is None else integer(value, 0)
