"""The options of a Spark job that rewrites ledgers of one log: how it reads the old ones, and writes the new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions, parse_options
from bk_spark.errors import UnauthorizedAccessError
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.values import Content, Head

_READ_KEYS = ("metadata", "path", "password", "client.", "tls", "zookeeperauth")
"""How the options of a write begin, in lower case, that apply to reading too."""


@dataclass(frozen=True)
class JobOptions:
    """What the user gave: options of a write."""

    name: str
    given: Mapping[str, str]
    settings: SourceOptions

    @staticmethod
    def of(metadata_uri: str, name: str, options: Mapping[str, str]) -> JobOptions:
        """Raises ConfigError."""
        given = {"metadata": metadata_uri, "path": name, **options}
        settings = parse_options(given)
        settings.check_use("batch write")
        return JobOptions(name, given, settings)

    @property
    def bookkeeper(self) -> BookKeeper:
        return connect(self.settings.metadata, self.settings.client)

    @property
    def head(self) -> Head:
        """Of the log. Raises NoSuchLogError."""
        names = self.bookkeeper.logs.names
        return names.head(self.name, names.uid(self.name))

    def reading(self, snapshot: LogSnapshot) -> SourceOptions:
        """Without the options of a write: old ledgers may have any digest type and ensemble."""
        keys = [key for key in self.given if key.lower().startswith(_READ_KEYS)]
        return parse_options({**{key: self.given[key] for key in keys}, **_content(snapshot)})

    def writing(self, snapshot: LogSnapshot) -> SourceOptions:
        """With the quorums and digest type of the log's newest ledger, unless given. Raises UnauthorizedAccessError."""
        [newest] = self.bookkeeper.ledger_metadata_many([snapshot.ledgers[-1].ledger_id])
        if not newest.is_opened_by(self.settings.password):
            raise UnauthorizedAccessError(newest.ledger_id)
        sizes = {
            "ensembleSize": str(newest.ensemble_size),
            "writeQuorum": str(newest.write_quorum),
            "ackQuorum": str(newest.ack_quorum),
            "digestType": newest.digest_type.name,
        }
        given = {key.lower() for key in self.given}
        defaults = {key: value for key, value in sizes.items() if key.lower() not in given}
        return parse_options({**self.given, **defaults, **_content(snapshot)})


def _content(snapshot: LogSnapshot) -> dict[str, str]:
    return {"content": "rows" if snapshot.content is Content.ROWS else "entries"}
