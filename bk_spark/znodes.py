"""Every path in the metadata store, and the fixed values that Apache BookKeeper's tools expect there.

::

    <root>/LAYOUT                         which ledger manager lays out the ledgers
    <root>/INSTANCEID                     a random id of this cluster
    <root>/idgen/ID-<sequence>            ephemeral, source of ledger ids
    <root>/00/0000/L0000                  metadata of ledger 0: ten digits cut 2-4-4 (hierarchical)
    <root>/available/<bookie id>          ephemeral registration of a writable bookie
    <root>/available/readonly/<bookie id> the same of a read-only one
    <root>/cookies/<bookie id>            identity of a bookie's disks
    <root>/underreplication/ledgers/…     marks of ledgers that lack copies: four times four hex digits, then urL<id>
    <root>/underreplication/locks/urL<id> ephemeral, held by who works on the copies of a ledger
    <root>/bk_spark/logs/names/<name>     → uid of the log
    <root>/bk_spark/logs/data/<uid>/…     the log itself

Ref: Apache BookKeeper's hierarchical ledger manager; docs/formats.md for the values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LAYOUT_VALUE = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
"""Layout format version 2, the hierarchical ledger manager, its version 1."""

_LEDGER_DIRECTORY = re.compile(r"\d{2}")
_LEDGER_SUBDIRECTORY = re.compile(r"\d{4}")
_LEDGER_NODE = re.compile(r"L\d{4}")

MAX_LEDGER_ID = 9_999_999_999
"""The largest id that ten digits hold."""


@dataclass(frozen=True, slots=True)
class Znodes:
    """The paths below one root, such as ``/ledgers``."""

    root: str

    @property
    def layout(self) -> str:
        return f"{self.root}/LAYOUT"

    @property
    def instance_id(self) -> str:
        return f"{self.root}/INSTANCEID"

    @property
    def id_generator(self) -> str:
        return f"{self.root}/idgen"

    @property
    def id_prefix(self) -> str:
        return f"{self.id_generator}/ID-"

    @property
    def available(self) -> str:
        return f"{self.root}/available"

    @property
    def read_only(self) -> str:
        return f"{self.available}/readonly"

    @property
    def cookies(self) -> str:
        return f"{self.root}/cookies"

    @property
    def log_names(self) -> str:
        return f"{self.root}/bk_spark/logs/names"

    @property
    def log_data(self) -> str:
        return f"{self.root}/bk_spark/logs/data"

    @property
    def log_clock(self) -> str:
        """Written to learn the store's own time."""
        return f"{self.root}/bk_spark/logs/clock"

    def registration(self, bookie_id: str, *, read_only: bool = False) -> str:
        return f"{self.read_only if read_only else self.available}/{bookie_id}"

    def cookie(self, bookie_id: str) -> str:
        return f"{self.cookies}/{bookie_id}"

    def ledger(self, ledger_id: int) -> str:
        digits = f"{ledger_id:010d}"
        return f"{self.root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"

    @property
    def under_replicated_locks(self) -> str:
        return f"{self.root}/underreplication/locks"

    def under_replicated(self, ledger_id: int) -> str:
        """Exists while copies of the ledger are missing."""
        digits = f"{ledger_id:016x}"
        parts = "/".join(digits[start : start + 4] for start in range(0, 16, 4))
        return f"{self.root}/underreplication/ledgers/{parts}/urL{ledger_id:010d}"

    def under_replicated_lock(self, ledger_id: int) -> str:
        return f"{self.under_replicated_locks}/urL{ledger_id:010d}"

    def log_name(self, name: str) -> str:
        return f"{self.log_names}/{name}"

    def log(self, uid: str) -> str:
        return f"{self.log_data}/{uid}"


def is_ledger_directory(name: str) -> bool:
    """Whether a name right below the root is the first level of ledger ids."""
    return _LEDGER_DIRECTORY.fullmatch(name) is not None


def is_ledger_subdirectory(name: str) -> bool:
    return _LEDGER_SUBDIRECTORY.fullmatch(name) is not None


def ledger_id_of(directory: str, subdirectory: str, name: str) -> int | None:
    """The ledger id that three path elements spell, None if the last is not a ledger's."""
    return int(directory + subdirectory + name[1:]) if _LEDGER_NODE.fullmatch(name) else None


def sequence_of(path: str) -> int:
    """The number that a sequential znode got: its last ten digits."""
    return int(path[-10:])
