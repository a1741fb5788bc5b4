"""Every path in the metadata store, and the fixed values that Apache BookKeeper's tools expect there.

::

    <root>/LAYOUT                         which ledger manager lays out the ledgers
    <root>/INSTANCEID                     a random id of this cluster
    <root>/idgen/ID-<sequence>            ephemeral, source of ledger ids (flat: <root>/ID-<sequence>)
    <root>/idgen-long/HOB-<high>/ID-<…>   the same, once the numbers below 2**31 - 1 are used up (ledger_ids.py)
    <root>/00/0000/L0000                  metadata of ledger 0 (hierarchical; the other layouts: ledger_layout.py)
    <root>/available/<bookie id>          ephemeral registration of a writable bookie
    <root>/available/readonly/<bookie id> the same of a read-only one
    <root>/cookies/<bookie id>            identity of a bookie's disks
    <root>/underreplication/ledgers/…     marks of ledgers that lack copies: four times four hex digits, then urL<id>
    <root>/underreplication/locks/urL<id> ephemeral, held by who works on the copies of a ledger
    <root>/underreplication/disable       exists while AutoRecovery is switched off
    <root>/underreplication/auditorelection/V_<sequence>   ephemeral, the lowest one is the auditor's
    <root>/underreplication/checkallledgersctime   when all ledgers were last checked
    <root>/underreplication/changes       written when marks came; /audit: when an audit is asked for; /auditor: what it sees
    <root>/bk_spark/replicators/<random>  ephemeral, proof that a copier's session, and so its locks, lasted
    <root>/bk_spark/logs/names/<name>     → uid of the log
    <root>/bk_spark/logs/data/<uid>/…     the log itself

Ref: Apache BookKeeper's ledger managers and id generators; docs/formats.md for the values.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.metadata.ledger_layout import LedgerLayout


@dataclass(frozen=True, slots=True)
class Znodes:
    """The paths below one root, such as ``/ledgers``. Of a cluster that is there: ``registration.open_root``."""

    root: str
    layout: LedgerLayout = LedgerLayout.HIERARCHICAL

    @property
    def layout_path(self) -> str:
        return f"{self.root}/LAYOUT"

    @property
    def layout_value(self) -> bytes:
        return self.layout.stored

    @property
    def instance_id(self) -> str:
        return f"{self.root}/INSTANCEID"

    @property
    def id_generator(self) -> str:
        return self.root if self.layout is LedgerLayout.FLAT else f"{self.root}/idgen"

    @property
    def id_prefix(self) -> str:
        return f"{self.id_generator}/ID-"

    @property
    def long_id_generator(self) -> str:
        """There once ids are taken from its buckets."""
        return f"{self.root}/idgen-long"

    def id_bucket(self, high_bits: int) -> str:
        """Source of the lower 31 bits of the ids whose upper 32 bits are ``high_bits``."""
        return f"{self.long_id_generator}/HOB-{high_bits:010d}"

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
        return f"{self.root}/{self.layout.path(ledger_id)}"

    @property
    def under_replication(self) -> str:
        return f"{self.root}/underreplication"

    @property
    def under_replication_layout(self) -> str:
        return f"{self.under_replication}/LAYOUT"

    @property
    def under_replication_disabled(self) -> str:
        """Exists while AutoRecovery is switched off."""
        return f"{self.under_replication}/disable"

    @property
    def under_replication_changes(self) -> str:
        """Written whenever marks came, for those who wait for work."""
        return f"{self.under_replication}/changes"

    @property
    def under_replicated_ledgers(self) -> str:
        return f"{self.under_replication}/ledgers"

    @property
    def ledger_check_time(self) -> str:
        """When all ledgers were last checked."""
        return f"{self.under_replication}/checkallledgersctime"

    @property
    def audit_request(self) -> str:
        """Written by who wants an audit now; the auditor watches it."""
        return f"{self.under_replication}/audit"

    @property
    def auditor_report(self) -> str:
        """Ephemeral: what the auditor sees, as JSON, for people."""
        return f"{self.under_replication}/auditor"

    @property
    def auditor_election(self) -> str:
        return f"{self.under_replication}/auditorelection"

    @property
    def auditor_vote_prefix(self) -> str:
        return f"{self.auditor_election}/V_"

    @property
    def under_replicated_locks(self) -> str:
        return f"{self.under_replication}/locks"

    def under_replicated(self, ledger_id: int) -> str:
        """Exists while copies of the ledger are missing."""
        digits = f"{ledger_id:016x}"
        parts = "/".join(digits[start : start + 4] for start in range(0, 16, 4))
        return f"{self.under_replicated_ledgers}/{parts}/urL{ledger_id:010d}"

    def under_replicated_lock(self, ledger_id: int) -> str:
        return f"{self.under_replicated_locks}/urL{ledger_id:010d}"

    def replicator(self, token: str) -> str:
        """Ephemeral: exists as long as the session of a process that copies ledgers."""
        return f"{self.root}/bk_spark/replicators/{token}"

    def log_name(self, name: str) -> str:
        return f"{self.log_names}/{name}"

    def log(self, uid: str) -> str:
        return f"{self.log_data}/{uid}"
