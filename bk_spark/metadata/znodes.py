"""Every path in the metadata store, in Apache BookKeeper's layout.

::

    <root>/LAYOUT                         which ledger manager lays out the ledgers
    <root>/INSTANCEID                     a random id of this cluster
    <root>/idgen/ID-<sequence>            ephemeral, source of ledger ids (flat: <root>/ID-<sequence>)
    <root>/idgen-long/HOB-<high>/ID-<…>   the same, once the numbers below 2**31 - 1 are used up (ledger_ids.py)
    <root>/00/0000/L0000                  metadata of ledger 0 (hierarchical; the other layouts: ledger_layout.py)
    <root>/available/<bookie id>          ephemeral registration of a writable bookie
    <root>/available/readonly/<bookie id> the same of a read-only bookie
    <root>/cookies/<bookie id>            identity of a bookie's disks
    <root>/underreplication/ledgers/…     marks of ledgers that lack copies: four times four hex digits, then urL<id>
    <root>/underreplication/locks/urL<id> ephemeral, the lock of the process that re-replicates a ledger
    <root>/underreplication/disable       exists while AutoRecovery is switched off
    <root>/underreplication/auditorelection/V_<sequence>   ephemeral, the lowest is the auditor's
    <root>/underreplication/checkallledgersctime   when all ledgers were last checked
    <root>/underreplication/changes       written when marks were added
    <root>/underreplication/audit         written to request an audit
    <root>/underreplication/auditor       ephemeral, the auditor's report
    <root>/bk_spark/replicators/<random>  ephemeral, exists as long as a replicator's session, and so its locks
    <root>/bk_spark/balance               ephemeral, of the balance that runs
    <root>/bk_spark/ids_above/<bookie id> the highest ledger id of a bookie that found the source of ledger ids below it
    <root>/bk_spark/logs/names/<name>     the uid of a log
    <root>/bk_spark/logs/data/<uid>/…     the log itself
    <root>/bk_spark/logs/transactions/<2 hex>/<sha256>   the last transaction of one application id
    <root>/bk_spark/logs/clock            written to learn the store's own time
    <root>/bk_spark/access/head           the last change of tokens and grants: each change is a compare-and-set here
    <root>/bk_spark/access/tokens/<id>    one token; access/grants/<32 hex> one grant; access/changes/<n> one change

Ref: Apache BookKeeper's ledger managers and id generators; docs/formats.md for the values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bk_spark.metadata.ledger_layout import LedgerLayout

_BOOKIE_ID = re.compile(r"[A-Za-z0-9:._-]{1,250}")
"""The characters of Apache BookKeeper's BookieId."""


def is_bookie_id(text: str) -> bool:
    """Whether a text may be the id of a bookie. No other text may become a part of a path."""
    return _BOOKIE_ID.fullmatch(text) is not None and text not in (".", "..")


class _Path:
    """An attribute of ``Znodes``: a path below the root that does not depend on the layout."""

    def __init__(self, below_root: str) -> None:
        self._below_root = below_root

    def __get__(self, znodes: Znodes, owner: type[Znodes]) -> str:
        return znodes.root + self._below_root


@dataclass(frozen=True, slots=True)
class Znodes:
    """The paths below one root, such as ``/ledgers``. ``registration.open_root`` makes those of an existing cluster."""

    root: str
    layout: LedgerLayout = LedgerLayout.HIERARCHICAL

    layout_path = _Path("/LAYOUT")
    instance_id = _Path("/INSTANCEID")
    long_id_generator = _Path("/idgen-long")
    """Exists once ids are taken from its buckets."""
    available = _Path("/available")
    read_only = _Path("/available/readonly")
    cookies = _Path("/cookies")

    under_replication = _Path("/underreplication")
    under_replication_layout = _Path("/underreplication/LAYOUT")
    under_replication_disabled = _Path("/underreplication/disable")
    under_replication_changes = _Path("/underreplication/changes")
    """Watched by workers that wait for marks."""
    under_replicated_ledgers = _Path("/underreplication/ledgers")
    under_replicated_locks = _Path("/underreplication/locks")
    lost_bookie_delay = _Path("/underreplication/lostBookieRecoveryDelay")
    """Of Apache's auditors; rewritten by Apache's tools to ask for an audit."""
    ledger_check_time = _Path("/underreplication/checkallledgersctime")
    audit_request = _Path("/underreplication/audit")
    auditor_report = _Path("/underreplication/auditor")
    """JSON, for people."""
    auditor_election = _Path("/underreplication/auditorelection")
    auditor_vote_prefix = _Path("/underreplication/auditorelection/V_")

    balance = _Path("/bk_spark/balance")
    ids_above = _Path("/bk_spark/ids_above")

    log_names = _Path("/bk_spark/logs/names")
    log_data = _Path("/bk_spark/logs/data")
    log_transactions = _Path("/bk_spark/logs/transactions")
    log_clock = _Path("/bk_spark/logs/clock")

    access_head = _Path("/bk_spark/access/head")
    access_tokens = _Path("/bk_spark/access/tokens")
    access_grants = _Path("/bk_spark/access/grants")
    access_changes = _Path("/bk_spark/access/changes")

    @property
    def layout_value(self) -> bytes:
        return self.layout.stored

    @property
    def id_generator(self) -> str:
        return self.root if self.layout is LedgerLayout.FLAT else f"{self.root}/idgen"

    @property
    def id_prefix(self) -> str:
        return f"{self.id_generator}/ID-"

    def id_bucket(self, high_bits: int) -> str:
        """Source of the lower 31 bits of the ids whose upper 32 bits are ``high_bits``."""
        return f"{self.long_id_generator}/HOB-{high_bits:010d}"

    def registration(self, bookie_id: str, *, read_only: bool = False) -> str:
        return f"{self.read_only if read_only else self.available}/{bookie_id}"

    def cookie(self, bookie_id: str) -> str:
        return f"{self.cookies}/{bookie_id}"

    def ledger(self, ledger_id: int) -> str:
        return f"{self.root}/{self.layout.path(ledger_id)}"

    def under_replicated(self, ledger_id: int) -> str:
        """The ledger's mark: exists while copies of the ledger are missing."""
        digits = f"{ledger_id:016x}"
        parts = "/".join(digits[start : start + 4] for start in range(0, 16, 4))
        return f"{self.under_replicated_ledgers}/{parts}/urL{ledger_id:010d}"

    def under_replicated_lock(self, ledger_id: int) -> str:
        return f"{self.under_replicated_locks}/urL{ledger_id:010d}"

    def replicator(self, token: str) -> str:
        return f"{self.root}/bk_spark/replicators/{token}"

    def ids_above_of(self, bookie_id: str) -> str:
        return f"{self.ids_above}/{bookie_id}"

    def log_name(self, name: str) -> str:
        return f"{self.log_names}/{name}"

    def log(self, uid: str) -> str:
        return f"{self.log_data}/{uid}"
