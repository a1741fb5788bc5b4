"""The cookie: which bookie a data directory belongs to.

Formatting draws a bookie id and writes it twice: into the directory and under ``/cookies/<bookie id>``. A bookie starts
only where the two agree and name the cluster that it finds, so that an empty, exchanged or foreign directory never
answers "no such entry" under a name that clients trust.

The file ``cookie`` in the data directory::

    bk_spark cookie                     magic
    version: 1
    bookie_id: 127.0.0.1:3181-9f86d081
    instance_id: 0f0e3a52-…             the cluster's INSTANCEID
    crc32c: 8 hexadecimal digits        of everything before this line

Successors of version 1 keep the first two lines and the last one; they may have other lines between. The znode holds
Apache BookKeeper's cookie text, format 4.

Ref: Apache BookKeeper's Cookie; docs/formats.md, "Cookie"; docs/rules.md, protocol rules 48 and 49.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import REAL_DISK, TEMPORARY_SUFFIX, Disk
from bk_spark.checksum import crc32c
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.metadata_store import MetadataStore, NoNodeError
from bk_spark.registration import check_layout, instance_id
from bk_spark.znodes import Znodes

COOKIE_FILE = "cookie"
COOKIE_VERSION = 1
_MAGIC = "bk_spark cookie"
_APACHE_FORMAT = 4
_SUFFIX_BYTES = 4
"""Random bytes of a bookie id: two formattings of one host and port meet with a chance of 1 in 4 billion."""

_ID_PREFIX = re.compile(r"[A-Za-z0-9:._-]{1,200}")
"""The characters of Apache BookKeeper's BookieId."""

_FIELD = re.compile(r'^(\w+): ?"?(.*?)"?$', re.MULTILINE)
_FORMAT_FIRST = "'bk-spark bookie format' makes a bookie of an empty directory"


@dataclass(frozen=True, slots=True)
class Cookie:
    """The identity of one formatting: the bookie, and the cluster that it belongs to."""

    bookie_id: str
    instance_id: str


def format_bookie(
    data_dir: Path,
    store: MetadataStore,
    znodes: Znodes,
    host: str,
    port: int,
    *,
    id_prefix: str | None = None,
    disk: Disk = REAL_DISK,
) -> str:
    """Make a bookie of an empty or missing directory; gives back its id: ``host:port`` (or ``id_prefix``), a random suffix.

    The znode is durable before the file: a crash between leaves a cookie that no directory has and nothing refers to.
    Raises ConfigError if the directory holds anything, is in use, or the cluster is not initialised.
    """
    prefix = _check_prefix(id_prefix or f"{host}:{port}")
    check_layout(store, znodes)
    disk.make_directory(data_dir)
    lock = disk.lock(data_dir)
    try:
        _check_empty(data_dir, disk)
        cookie = Cookie(f"{prefix}-{disk.random_bytes(_SUFFIX_BYTES).hex()}", instance_id(store, znodes))
        store.create(znodes.cookie(cookie.bookie_id), _apache_text(cookie, data_dir), make_parents=True)
        disk.replace(data_dir / COOKIE_FILE, encode_cookie(cookie))
    finally:
        lock.release()
    return cookie.bookie_id


def check_cookie(data_dir: Path, store: MetadataStore, znodes: Znodes, *, disk: Disk = REAL_DISK) -> str:
    """The id of the bookie that a data directory belongs to, if the directory and the cluster agree on it.

    Raises ConfigError (not formatted, formatted for another cluster, no or another cookie in the metadata store),
    FormatVersionError, CorruptionError. The caller holds the directory's lock.
    """
    cookie = read_cookie(data_dir, disk=disk)
    check_layout(store, znodes)
    _check_instance(data_dir, cookie, instance_id(store, znodes), store.uri)
    stored = _stored_cookie(data_dir, cookie, store, znodes)
    if stored != cookie:
        raise ConfigError(
            f"the cookie of bookie {cookie.bookie_id} in {store.uri}",
            f"bookie {stored.bookie_id} of instance {stored.instance_id}",
            f"{data_dir} belongs to bookie {cookie.bookie_id} of instance {cookie.instance_id}: "
            "give each bookie its own directory",
        )
    return cookie.bookie_id


def read_cookie(data_dir: Path, *, disk: Disk = REAL_DISK) -> Cookie:
    """What a data directory says of itself. Raises ConfigError, FormatVersionError, CorruptionError."""
    path = data_dir / COOKIE_FILE
    data = disk.read_small(path) if disk.exists(data_dir) else None
    if data is None:
        raise ConfigError("the data directory", str(data_dir), f"it is not formatted: {_FORMAT_FIRST}")
    return decode_cookie(data, str(path))


def encode_cookie(cookie: Cookie) -> bytes:
    """The content of the cookie file."""
    text = f"{_MAGIC}\nversion: {COOKIE_VERSION}\nbookie_id: {cookie.bookie_id}\ninstance_id: {cookie.instance_id}\n"
    return text.encode() + b"crc32c: %08x\n" % crc32c(text.encode())


def decode_cookie(data: bytes, what: str) -> Cookie:
    """The cookie in a file's content; ``what`` names the file in errors."""
    body, checksum_at, checksum = data.rpartition(b"crc32c: ")
    if not checksum_at or checksum.strip() != b"%08x" % crc32c(body):
        raise CorruptionError(what, "its checksum does not match")
    fields = _fields(body, what)
    if not body.startswith(_MAGIC.encode() + b"\nversion: ") or not fields["version"].isdigit():
        raise CorruptionError(what, "it does not begin as a cookie file does")
    if int(fields["version"]) > COOKIE_VERSION:
        raise FormatVersionError(what, int(fields["version"]), COOKIE_VERSION)
    return Cookie(_field(fields, "bookie_id", what), _field(fields, "instance_id", what))


def _check_prefix(prefix: str) -> str:
    if not _ID_PREFIX.fullmatch(prefix):
        raise ConfigError("the bookie id prefix", prefix, "use letters, digits and : . _ - only, at most 200 of them")
    return prefix


def _check_empty(data_dir: Path, disk: Disk) -> None:
    if disk.exists(data_dir / COOKIE_FILE):
        owner = read_cookie(data_dir, disk=disk).bookie_id
        raise ConfigError(
            "the data directory", str(data_dir), f"it is formatted already, for bookie {owner}: start it, or choose another one"
        )
    names = [name for name in disk.list(data_dir) if not name.endswith(TEMPORARY_SUFFIX)]
    if names:
        raise ConfigError("the data directory", str(data_dir), f"it is not empty, it holds {names[0]!r}: choose another one")


def _check_instance(data_dir: Path, cookie: Cookie, instance: str, uri: str) -> None:
    if cookie.instance_id != instance:
        raise ConfigError(
            "the data directory",
            str(data_dir),
            f"it was formatted for the cluster with instance id {cookie.instance_id}, and {uri} is {instance}: "
            "check the metadata URI",
        )


def _stored_cookie(data_dir: Path, cookie: Cookie, store: MetadataStore, znodes: Znodes) -> Cookie:
    path = znodes.cookie(cookie.bookie_id)
    store.sync(path)  # an absence is acted on: a follower that lags must not invent it
    try:
        value = store.get(path).value
    except NoNodeError:
        raise ConfigError(
            "the data directory",
            str(data_dir),
            f"bookie {cookie.bookie_id} has no cookie in {store.uri}, it was removed from the cluster: "
            "format an empty directory instead",
        ) from None
    return _decode_apache_text(value, path)


def _apache_text(cookie: Cookie, data_dir: Path) -> bytes:
    directory = str(data_dir)
    return (
        f"{_APACHE_FORMAT}\n"
        f"bookieHost: {_quoted(cookie.bookie_id)}\n"
        f"journalDir: {_quoted(directory)}\n"
        f"ledgerDirs: {_quoted('1' + chr(9) + directory)}\n"
        f"instanceId: {_quoted(cookie.instance_id)}\n"
    ).encode()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # protobuf's text format escapes as JSON does


def _decode_apache_text(value: bytes, path: str) -> Cookie:
    version, _, body = value.partition(b"\n")
    if not version.isdigit():
        raise CorruptionError(f"the cookie {path}", "it does not begin with a format number")
    if int(version) > _APACHE_FORMAT:
        raise FormatVersionError(f"the cookie {path}", int(version), _APACHE_FORMAT)
    fields = _fields(body, path)
    return Cookie(_field(fields, "bookieHost", path), _field(fields, "instanceId", path))


def _fields(body: bytes, what: str) -> dict[str, str]:
    try:
        return dict(_FIELD.findall(body.decode()))
    except UnicodeDecodeError:
        raise CorruptionError(what, "it is not UTF-8 text") from None


def _field(fields: dict[str, str], name: str, what: str) -> str:
    if not fields.get(name):
        raise CorruptionError(what, f"it has no {name}")
    return fields[name]
