"""Settings in three frozen classes: of a ledger (stored with it), of a client process, and of a bookie process.

Nothing below ``cli.py`` and ``datasource/options.py`` reads an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from bk_spark.errors import ConfigError, State
from bk_spark.host_port import parse_host
from bk_spark.quorum import check_quorums

KIB = 1024
MIB = 1024 * KIB

MAX_ENTRY_BYTES = 16 * MIB
"""The largest payload of one entry. Each bookie holds several copies of an entry in memory at once."""

MAX_BATCH_BYTES = MAX_ENTRY_BYTES + MIB
"""The largest encoded batch: one entry of the maximum size with its columns. No message and no record is larger."""

MAX_BATCH_ENTRIES = 65_536
"""The most ids that a batch may span, so that a look-up by id visits a bounded part of the index (docs/formats.md)."""

APACHE_FRAME_BYTES = 5 * MIB
"""The largest frame that Apache's clients and bookies take by default (``nettyMaxFrameSizeBytes``)."""

_LEAST_FRAME_BYTES = 64 * KIB
"""Below it hardly a batch of small entries would fit, and rows would have to be cut into thousands of entries."""

DEFAULT_RACK = "/default-rack"
"""The rack of a bookie whose settings name none."""

MAX_RACK_CHARACTERS = 256

MAX_SETTING = 1 << 40
"""The largest number of a setting: a tebibyte, or thousands of years; not nan. Above it clocks and buffers overflow."""

MAX_PORT = 65_535

BASE_MEMORY_BYTES = 256 * MIB
"""Memory of a bookie's process beside its queue and caches: libraries, SQLite, messages under way."""

TLS_NAMES = {
    "tls_ca": "tls_ca (tlsCa, --tls-ca)",
    "tls_certificate": "tls_certificate (tlsCertificate, --tls-certificate)",
    "tls_key": "tls_key (tlsKey, --tls-key)",
}
"""Settings by field, as errors name them: in Python, in Spark, in commands."""

ZOOKEEPER_AUTH_NAME = "zookeeper_auth (zookeeperAuth, --zookeeper-auth-file)"

ZOOKEEPER_AUTH_VARIABLE = "BK_SPARK_ZOOKEEPER_AUTH"
"""The environment variable with the credential, for commands and the data source. An option takes precedence."""

BY_CERTIFICATE = "x509"
"""The identity for ZooKeeper that is the certificate of the connection."""

ZOOKEEPER_AUTH = rf"{BY_CERTIFICATE}|(?!(?:{BY_CERTIFICATE}|world|ip|auth):)[a-z0-9_-]+:[^\r\n]+"
"""The certificate, or a scheme that identifies a session, and a credential. Excluded schemes name everybody or a network."""

_WITH_USER = ("digest:", "sasl:")
"""Schemes whose credential is a user's name and a password."""


BOOKIE_AUTH_NAME = "bookie_auth (bookieAuth, --bookie-auth-file)"

BOOKIE_AUTH_VARIABLE = "BK_SPARK_BOOKIE_AUTH"
"""The environment variable with the credential for Apache's bookies. An option takes precedence."""

BOOKIE_AUTH = r"sasl:[!-9;-~]+:[^\r\n]+"
"""A user in ASCII, without spaces, and a password: what every implementation of DIGEST-MD5 hashes alike."""


class DigestType(Enum):
    """How an entry is protected on its way from writer to reader. The numbers are those of Apache BookKeeper's metadata."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4

    @staticmethod
    def of(given: DigestType | str) -> DigestType:
        """The digest type of a name, upper or lower case. Raises ConfigError."""
        if isinstance(given, DigestType):
            return given
        try:
            return DigestType[given.upper()]
        except (KeyError, AttributeError):
            raise ConfigError(
                "digest type (digestType)", given, f"it must be one of {', '.join(DigestType.__members__)}"
            ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerOptions:
    """Settings that all users of a ledger share, stored in its metadata.

    With the defaults no confirmed entry is lost with any one bookie, and writes go on with one bookie down.
    """

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = field(default=b"", repr=False)
    custom_metadata: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        if not isinstance(self.password, bytes):
            raise ConfigError("password", State("(not shown)"), f"it must be bytes, not {type(self.password).__name__}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig:
    """Settings of one client process. Times in seconds, sizes in bytes."""

    connect_timeout_s: float = 10.0
    """How long to wait for the metadata store at the start. It normally answers within tens of milliseconds."""

    session_timeout_s: float = 10.0
    """ZooKeeper session: after this long without contact the server forgets this client's ephemeral znodes."""

    add_timeout_s: float = 10.0
    """A bookie that has not answered an add for this long counts as failed for that ledger.

    If no ack quorum would be left, it may be overloaded like all others: it is given up only for one that takes its place."""

    add_quorum_timeout_s: float = 30.0
    """An entry that is not confirmed for this long fails its handle: its outcome is unknown."""

    delay_ensemble_change: bool = False
    """Replace a failed bookie only when a write set would fall below its ack quorum: fewer fragments, fewer copies."""

    max_ensemble_changes: int = 1_000
    """Ensemble changes of one writer; each adds a fragment of 100 to 300 bytes to metadata that may have 512 KiB."""

    replacement_retry_s: float = 5.0
    """How long to wait before looking again for a replacement of a failed bookie; about the time of a bookie's restart."""

    explicit_lac_s: float = 0.05
    """An idle writer tells its bookies after this long how far the ledger is confirmed, so that readers see its end.

    It is most of the delay from an append to a stream that follows the log. Each pause costs each bookie one small record; a
    writer that appends more often than this pays nothing. Bookies that did not take it are told again, at growing pauses."""

    read_timeout_s: float = 5.0
    """A replica that has sent nothing for this long is given up for the next one."""

    speculative_read_s: float = 1.0
    """When a replica has sent nothing for this long, another one is asked as well; the first answer counts."""

    recovery_timeout_s: float = 20.0
    """A recovery that makes no progress for this long gives up; the ledger stays IN_RECOVERY for the next try.

    A restarted bookie is back within seconds; to wait for a machine, repeat the recovery."""

    quarantine_errors: int = 3
    """A bookie with this many failed requests within ``quarantine_s`` is left out of new ensembles if others are available."""

    quarantine_s: float = 60.0
    """How long a bookie is left out; the time an operator needs to restart it."""

    min_racks_per_write_quorum: int = 1
    """Racks that hold copies of each entry, at least. With fewer no ledger is created, and no bookie is replaced by another.

    Copies go to as many racks as there are in any case; 1 asks for no more. A smaller write quorum needs that many racks."""

    add_window_bytes: int = 16 * MIB
    """Unacked bytes of one writer; appends wait above it. It bounds the writer's memory, and covers 100 ms at 160 MB/s."""

    append_wait_s: float = 120.0
    """An append that waits for room for so long fails: four times ``add_quorum_timeout_s``, which ends whatever takes the room.

    It is a bound for what nobody foresaw, such as hundreds of threads that append to one ledger on slow bookies."""

    add_batch_bytes: int = 1 * MIB
    """The most payload bytes in one add request. Larger requests gain nothing measurable."""

    read_batch_bytes: int = 4 * MIB
    """Bytes that one read request asks a bookie for; up to four times as many while the answers come quickly."""

    read_ahead_requests: int = 2
    """How many times ``read_batch_bytes`` may wait for the application before reading pauses."""

    apache_frame_bytes: int = APACHE_FRAME_BYTES
    """The largest frame of Apache's bookies, their ``nettyMaxFrameSizeBytes``: they are sent no entry that does not fit."""

    tls_ca: str = ""
    """A PEM file of the authorities that sign bookies' certificates; if set, connections to bookies use TLS."""

    tls_certificate: str = ""
    """A PEM file of this client's certificate and its chain, for bookies that ask for one."""

    tls_key: str = ""
    """A PEM file of the certificate's private key, without a passphrase."""

    zookeeper_auth: str = field(default="", repr=False)
    """This client's identity for ZooKeeper: ``digest:user:password``, ``sasl:user:password``, or ``x509`` for its certificate.

    It is never shown."""

    bookie_auth: str = field(default="", repr=False)
    """``sasl:user:password``: this client's identity for Apache's bookies, which must ask for it. Never shown."""

    def __post_init__(self) -> None:
        _check_positive(self)
        if self.add_batch_bytes > MAX_ENTRY_BYTES // 2:
            raise ConfigError("add_batch_bytes", self.add_batch_bytes, f"it must not exceed {MAX_ENTRY_BYTES // 2}")
        if self.add_batch_bytes > self.add_window_bytes:
            remedy = f"it must not exceed add_window_bytes ({self.add_window_bytes})"
            raise ConfigError("add_batch_bytes", self.add_batch_bytes, remedy)
        _check_frames(self)
        _check_security(self)
        if self.tls_certificate and not self.tls_ca:
            remedy = "a client's certificate is of no use without tls_ca (tlsCa, --tls-ca): give it, or none of the three"
            raise ConfigError(TLS_NAMES["tls_certificate"], self.tls_certificate, remedy)


@dataclass(frozen=True, kw_only=True, slots=True)
class BookieConfig:
    """Settings of one bookie process. Times in seconds, sizes in bytes."""

    direct_add_bytes: int = 64 * KIB
    """Adds of at least this size are written once, into the entry log; smaller ones pass through the journal."""

    journal_file_bytes: int = 256 * MIB
    """A journal file is rolled at this size."""

    entry_log_file_bytes: int = 1024 * MIB
    """An entry log file is rolled at this size: the unit in which space is reclaimed."""

    write_cache_bytes: int = 64 * MIB
    """Small adds kept in memory until a checkpoint writes them to the entry log. It bounds memory and replay time."""

    checkpoint_bytes: int = 256 * MIB
    """Bytes logged since the last checkpoint that start the next one. It bounds what a restart replays."""

    sync_queue_bytes: int = 64 * MIB
    """Adds received and not yet durable; above it the bookie stops reading from its connections."""

    waiting_add_bytes: int = 512 * MIB
    """Received adds of all streams that wait for a place in that queue; above it adds of more than 1 MiB are refused."""

    memory_limit_bytes: int = 2048 * MIB
    """Resident memory above which the calls end that have waited for their clients longest. Queue and caches stay below it."""

    max_connections: int = 4_096
    """Connections of clients; further ones are closed. Each takes some 100 KiB and an open file of the process."""

    read_threads: int = 4
    """Threads that serve reads. Reads wait for disks and decode without Python's lock; more gained nothing on 2 cores."""

    read_reply_bytes: int = 16 * MIB
    """The most bytes that answer one read request, in batches; the client asks again for the rest."""

    session_timeout_s: float = 10.0
    """ZooKeeper session of the registration: a dead bookie leaves the list of available ones after this long."""

    connect_timeout_s: float = 10.0
    """How long to wait for the metadata store at the start."""

    epoch_interval_s: float = 60.0
    """How often the bookie moves its boot epoch in ZooKeeper: a disk that is restored from an older copy is noticed."""

    epoch_timeout_s: float = 600.0
    """Without a new boot epoch for so long the bookie takes no changes and serves reads alone: ZooKeeper may be away for
    less."""

    rack: str = DEFAULT_RACK
    """The rack of this bookie, such as ``/zone-a/rack-1``: copies of an entry are spread over racks, which fail as a whole."""

    journal_dirs: str = ""
    """Directories for journals, separated by commas, best each on its own disk; empty: inside the data directory."""

    ledger_dirs: str = ""
    """Directories for entry logs, separated by commas; empty: inside the data directory."""

    journal_write_data: bool = True
    """False: adds are acked before they are durable, and a crash is repaired from the other replicas (BP-46)."""

    automatic_cookie_repair: bool = False
    """After the loss of a disk: start in limbo, repair from the other replicas, and stamp the cookie, without a command."""

    disk_usage_high: float = 0.95
    """A disk that is fuller than this takes no adds; if no disk takes any, the bookie is read-only."""

    disk_usage_low: float = 0.90
    """A full disk takes adds again below this. The gap keeps a bookie from switching its state at every entry."""

    disk_check_s: float = 1.0
    """How often disk usage is checked; at 1 GB/s a disk of 100 GB fills by a hundredth in that time."""

    gc_interval_s: float = 900.0
    """How often deleted ledgers are looked for."""

    minor_compaction_threshold: float = 0.2
    """A minor compaction compacts entry logs of which less than this fraction is live."""

    minor_compaction_interval_s: float = 3_600.0
    """How often a minor compaction runs."""

    major_compaction_threshold: float = 0.8
    """A major compaction compacts entry logs of which less than this fraction is live."""

    major_compaction_interval_s: float = 86_400.0
    """How often a major compaction runs."""

    compaction_bytes_per_s: int = 50 * MIB
    """The most that compaction copies per second, so that adds and reads keep most of the disk."""

    over_replication_interval_s: float = 86_400.0
    """How often the bookie looks for ledgers that it stores and no longer has to."""

    scrub_interval_s: float = 604_800.0
    """How often the scrub reads and verifies everything stored."""

    scrub_bytes_per_s: int = 10 * MIB
    """The most that the scrub reads per second; a terabyte takes about a day."""

    apache_port: int = 0
    """The port for Apache BookKeeper's clients, such as Pulsar's brokers: 0 takes a free port, -1 serves none."""

    apache_frame_bytes: int = APACHE_FRAME_BYTES
    """The largest frame that Apache's clients take, their ``nettyMaxFrameSizeBytes``: ``apache_port`` refuses larger adds."""

    apache_users: str = ""
    """A file of lines ``user:password``: clients of ``apache_port`` must authenticate by SASL's DIGEST-MD5. Empty: none."""

    apache_clear_clients: bool = False
    """True: with TLS files, ``apache_port`` also serves clients without TLS. Meant for the time in which clients move to it."""

    clear_port: int = -1
    """A second port, for clients without TLS: 0 takes a free one, -1 serves none. Meant for the time in which they move."""

    http_port: int = -1
    """The port for metrics, health and readiness: 0 takes a free port, -1 serves none. Anybody who reaches it can read them."""

    http_host: str = ""
    """The address for ``http_port``; empty: that of the bookie. 0.0.0.0 serves on all, and the bookie's is registered."""

    tls_ca: str = ""
    """A PEM file of authorities: clients and other bookies must show a certificate that one of them signed."""

    tls_certificate: str = ""
    """A PEM file of this bookie's certificate and its chain; its subjectAltName names the host of the bookie's address."""

    tls_key: str = ""
    """A PEM file of the certificate's private key, without a passphrase."""

    members: str = ""
    """A file of lines ``certificate:NAME`` and ``user:NAME``: others may read keyed ledgers with their keys, and nothing else.

    Empty: everybody is a member whom the bookie lets in."""

    audit_log: str = ""
    """A file for the audit log: fences, requests of operators, refusals. Empty: it goes to the log of the bookie."""

    zookeeper_auth: str = field(default="", repr=False)
    """This bookie's identity for ZooKeeper: ``digest:user:password``, ``sasl:user:password``, or ``x509`` for its certificate.

    It is never shown."""

    bookie_auth: str = field(default="", repr=False)
    """``sasl:user:password``: this bookie's identity for Apache's bookies, from which it repairs itself. Never shown."""

    def __post_init__(self) -> None:
        _check_positive(self)
        _check_rack(self.rack)
        _check_host("http_host", self.http_host)
        _check_extra_port("http_port", self.http_port)
        _check_extra_port("apache_port", self.apache_port)
        _check_extra_port("clear_port", self.clear_port)
        _check_memory(self)
        _check_fractions(self)
        _check_frames(self)
        _check_security(self)
        _check_epochs(self)
        if self.tls_ca and not self.tls_certificate:
            remedy = "a bookie without a certificate speaks no TLS: give tls_certificate and tls_key too"
            raise ConfigError(TLS_NAMES["tls_ca"], self.tls_ca, remedy)
        if self.clear_port >= 0 and not self.tls_certificate:
            remedy = "without tls_certificate the bookie's port serves clients without TLS already: leave it out"
            raise ConfigError("clear_port", self.clear_port, remedy)
        if self.members and not (self.tls_ca or self.apache_users):
            remedy = "without tls_ca and apache_users nobody shows who it is: give one of the two, or leave it out"
            raise ConfigError("members", self.members, remedy)
        if self.apache_users and self.apache_port < 0:
            remedy = "it is of no use without apache_port, which is -1: give a port, or 0 for a free one"
            raise ConfigError("apache_users", self.apache_users, remedy)

    def client_config(self) -> ClientConfig:
        """The settings of the client in a bookie's process, which repairs the bookie from other bookies.

        Without ``tls_ca`` the client cannot verify them, and shows no certificate.
        """
        certificate, key = (self.tls_certificate, self.tls_key) if self.tls_ca else ("", "")
        return ClientConfig(
            apache_frame_bytes=self.apache_frame_bytes,
            tls_ca=self.tls_ca,
            tls_certificate=certificate,
            tls_key=key,
            zookeeper_auth=self.zookeeper_auth,
            bookie_auth=self.bookie_auth,
        )


def _check_rack(rack: str) -> None:
    if not isinstance(rack, str) or not re.fullmatch(r"(/[^/\s]+)+", rack) or len(rack) > MAX_RACK_CHARACTERS:
        form = f"it must look like /zone/rack, without spaces, of at most {MAX_RACK_CHARACTERS} characters"
        raise ConfigError("rack", rack, form)


def _check_host(name: str, host: str) -> None:
    try:
        if host:
            parse_host(host)
    except (TypeError, ValueError, AttributeError) as problem:
        raise ConfigError(name, host, str(problem)) from None


def _check_extra_port(name: str, port: int) -> None:
    if isinstance(port, bool) or not isinstance(port, int) or not -1 <= port <= MAX_PORT:
        raise ConfigError(name, port, "it must be a port, 0 for a free one, or -1 for none")


def _check_memory(config: BookieConfig) -> None:
    if config.waiting_add_bytes < MAX_BATCH_BYTES + MIB:
        remedy = f"it must be {MAX_BATCH_BYTES + MIB} at least: a single add of the largest size would be refused otherwise"
        raise ConfigError("waiting_add_bytes", config.waiting_add_bytes, remedy)
    needed = config.sync_queue_bytes + 2 * config.write_cache_bytes + BASE_MEMORY_BYTES
    if config.memory_limit_bytes < needed:
        remedy = f"with this sync_queue_bytes and twice this write_cache_bytes a bookie needs {needed}"
        raise ConfigError("memory_limit_bytes", config.memory_limit_bytes, remedy)


def _check_fractions(config: BookieConfig) -> None:
    for name in ("disk_usage_high", "disk_usage_low", "minor_compaction_threshold", "major_compaction_threshold"):
        if getattr(config, name) > 1:
            raise ConfigError(name, getattr(config, name), "it must be a fraction, above 0 and at most 1")
    pairs = (("disk_usage_low", "disk_usage_high"), ("minor_compaction_threshold", "major_compaction_threshold"))
    for lower, upper in pairs:
        if getattr(config, lower) > getattr(config, upper):
            raise ConfigError(lower, getattr(config, lower), f"it must not exceed {upper} ({getattr(config, upper)})")


def _check_frames(config: ClientConfig | BookieConfig) -> None:
    if config.apache_frame_bytes < _LEAST_FRAME_BYTES:
        remedy = f"it must be {_LEAST_FRAME_BYTES} at least, and best the nettyMaxFrameSizeBytes of Apache's side"
        raise ConfigError("apache_frame_bytes", config.apache_frame_bytes, remedy)


def _check_epochs(config: BookieConfig) -> None:
    if config.epoch_timeout_s < 2 * config.epoch_interval_s:
        remedy = f"it must be twice epoch_interval_s ({config.epoch_interval_s:g}) at least: one move may fail"
        raise ConfigError("epoch_timeout_s", config.epoch_timeout_s, remedy)


def _check_security(config: ClientConfig | BookieConfig) -> None:
    for name, what in TLS_NAMES.items():
        value = getattr(config, name)
        if not isinstance(value, str):
            raise ConfigError(what, value, "it must be the path of a PEM file, as a text")
    if bool(config.tls_certificate) != bool(config.tls_key):
        given, lacking = ("tls_certificate", "tls_key") if config.tls_certificate else ("tls_key", "tls_certificate")
        raise ConfigError(TLS_NAMES[given], getattr(config, given), f"it is of no use without {TLS_NAMES[lacking]}: give both")
    check_zookeeper_auth(config.zookeeper_auth)
    check_bookie_auth(config.bookie_auth)


def check_bookie_auth(auth: str) -> None:
    """Raise ConfigError, without the credential in it, unless ``auth`` is empty or ``sasl:user:password``."""
    if not isinstance(auth, str) or (auth and re.fullmatch(BOOKIE_AUTH, auth) is None):
        remedy = "it must be sasl:user:password, the user in ASCII without spaces and colons, and all without a line break"
        raise ConfigError(BOOKIE_AUTH_NAME, State("(not shown)"), remedy)


def check_zookeeper_auth(auth: str) -> None:
    """Raise ConfigError, without the credential in it, unless ``auth`` is empty or ``scheme:credential``."""
    is_good = isinstance(auth, str) and (auth == "" or re.fullmatch(ZOOKEEPER_AUTH, auth) is not None)
    if not is_good or (auth.startswith(_WITH_USER) and auth.count(":") < 2):
        remedy = "it must be scheme:credential, such as digest:user:password, without a line break, or x509"
        raise ConfigError(ZOOKEEPER_AUTH_NAME, State("(not shown)"), remedy)


def _check_positive(config: Any) -> None:
    """Check that numbers are above 0 and flags are booleans. Texts have checks of their own."""
    for name, declared in config.__dataclass_fields__.items():
        value = getattr(config, name)
        if declared.type == "str" or name in ("http_port", "apache_port", "clear_port"):
            continue
        if declared.type == "bool":
            if not isinstance(value, bool):
                raise ConfigError(name, value, "it must be true or false")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_SETTING:
            raise ConfigError(name, value, f"it must be a number above 0, at most {MAX_SETTING:,}")
        elif declared.type == "int" and not isinstance(value, int):
            raise ConfigError(name, value, "it must be a whole number")


def check_numbers(settings: Any, may_be_zero: Collection[str]) -> None:
    """Check settings that are all numbers: above 0, but for ``http_port`` and those named. Raises ConfigError."""
    for one in fields(settings):
        _check_number(one.name, getattr(settings, one.name), one.name in may_be_zero, is_whole=one.type == "int")


def _check_number(name: str, value: object, may_be_zero: bool, *, is_whole: bool) -> None:
    kind = "a whole number" if is_whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int if is_whole else (int, float)):
        raise ConfigError(name, value, f"it must be {kind}")
    if name == "http_port":
        if not 0 <= value <= MAX_PORT:
            raise ConfigError(name, value, f"it must be a port, or 0 for none, at most {MAX_PORT}")
    elif may_be_zero:
        if not 0 <= value <= MAX_SETTING:
            raise ConfigError(name, value, f"it must be {kind} from 0 to {MAX_SETTING:,}")
    elif not 0 < value <= MAX_SETTING:
        raise ConfigError(name, value, f"it must be {kind} above 0, at most {MAX_SETTING:,}")
