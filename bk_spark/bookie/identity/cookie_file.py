"""The cookie in its two forms: the file in each root directory, and the znode in the metadata store.

A **root directory** holds files of a bookie: the data directory, and the directories that ``journal_dirs`` and ``ledger_dirs``
name. Each has a random **directory id**, drawn when it was formatted, and **uses**: ``data``, ``journal-0``, ``entry_log-1``,
where the number is its place in the setting's list. The file ``cookie`` of a root::

    bk_spark cookie
    version: 1
    bookie_id: 127.0.0.1:3181-9f86d081
    instance_id: 0f0e3a52-…             the cluster's INSTANCEID
    directory_id: 16 hexadecimal digits
    uses: data journal-0 entry_log-0
    directory: journal-0 0123456789abcdef     for each use of each root; in the data directory only
    crc32c: …

The znode holds Apache BookKeeper's cookie text, format 4. Our own fields are comments, which Apache's tools skip::

    4
    bookieHost: "127.0.0.1:3181-9f86d081"
    journalDir: "/data"
    ledgerDirs: "1\t/data"
    instanceId: "0f0e3a52-…"
    # bk_spark version: 1
    # bk_spark boot: 7 0123456789abcdef 42    number and token of the last boot (boot.py), and its epoch (boot_epoch.py)
    # bk_spark directory: data 0123456789abcdef

Paths are for people: a directory that was moved is still the same.

The znode is read after a ``sync`` and changed by compare-and-set. Every change brings a new boot number with a random token, or
the next epoch of a boot, which only the process that took the boot writes. So after a lost reply or a lost race, a process
reads the znode again and sees by token and epoch whether its own change took effect.

Ref: Apache BookKeeper's Cookie; docs/formats.md, "Cookie"; docs/rules.md, protocol rule 48, storage rules 8 and 9.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.checked_text import Fields, check_version, decode_fields, decode_number, encode_fields
from bk_spark.errors import CorruptionError, MetadataConflictError, MetadataUnavailableError
from bk_spark.metadata.store import BadVersionError, MetadataStore, NodeExistsError, NoNodeError
from bk_spark.metadata.znodes import Znodes

COOKIE_FILE = "cookie"
COOKIE_VERSION = 1
DATA = "data"
"""The use that the data directory always has, beside those that the settings give it."""

ID_BYTES = 8
"""Random bytes of a directory id and of a boot's token: two of one cluster are equal with a chance of 1 in 10^19."""

_MAGIC = "bk_spark cookie"
_APACHE_FORMAT = 4
_OURS = "# bk_spark "
_APACHE_FIELD = re.compile(r'^(\w+): ?"?(.*?)"?$', re.MULTILINE)
_BOOT_NUMBER = re.compile(r"([^ ]+) ([^ ]+)(?: ([^ ]+))?")
_OUR_FIELD = re.compile(rf"^{_OURS}(\w+): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """Which directory serves a use. The data directory and the metadata store both list all of these."""

    use: str
    directory_id: str


@dataclass(frozen=True, slots=True)
class Cookie:
    """The cookie of a root directory."""

    bookie_id: str
    instance_id: str
    directory_id: str
    uses: tuple[str, ...]
    places: tuple[DirectoryPlace, ...] = ()
    """Of all roots, in the order of their uses; only in the data directory."""


@dataclass(frozen=True, slots=True)
class BootNumber:
    """One boot of a bookie, at one epoch. The random token tells it from a boot of a copy of the same disks with its number."""

    number: int
    token: str
    epoch: int = 0
    """Moves while the bookie runs (boot_epoch.py). The process that took the boot moves it, and nobody else."""

    def __str__(self) -> str:
        return f"{self.number} {self.token} {self.epoch}"

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.number}, epoch {self.epoch}"

    @property
    def next_epoch(self) -> BootNumber:
        return replace(self, epoch=self.epoch + 1)

    def is_before(self, other: BootNumber) -> bool:
        return (self.number, self.epoch) < (other.number, other.epoch)

    def is_same_boot(self, other: BootNumber) -> bool:
        """Whether one process took both, whatever their epochs."""
        return (self.number, self.token) == (other.number, other.token)


@dataclass(frozen=True, slots=True)
class StoredCookie:
    """The cookie of a bookie in the metadata store."""

    bookie_id: str
    instance_id: str
    places: tuple[DirectoryPlace, ...]
    boot: BootNumber
    apache_text: str
    """Apache's lines, kept as they were found."""


def make_cookies(bookie_id: str, instance_id: str, directories: Directories, ids: Mapping[Path, str]) -> dict[Path, Cookie]:
    """The cookie of each root, the data directory's first, from the directory ids."""
    uses = root_uses(directories)
    places = tuple(DirectoryPlace(use, ids[root]) for root, names in uses.items() for use in names)
    return {
        root: Cookie(bookie_id, instance_id, ids[root], names, places if DATA in names else ()) for root, names in uses.items()
    }


def make_stored(data_cookie: Cookie, directories: Directories, boot: BootNumber) -> StoredCookie:
    """The cookie for the metadata store that fits the data directory's."""
    text = apache_text(data_cookie.bookie_id, data_cookie.instance_id, directories)
    return StoredCookie(data_cookie.bookie_id, data_cookie.instance_id, data_cookie.places, boot, text)


def root_uses(directories: Directories) -> dict[Path, tuple[str, ...]]:
    """What the settings use each root for, the data directory first."""
    uses: dict[Path, list[str]] = {root: [] for root in directories.roots}
    uses[directories.data_dir].append(DATA)
    for name, places in (("journal", directories.journals), ("entry_log", directories.entry_logs)):
        for ordinal, place in enumerate(places):
            uses[place.parent].append(f"{name}-{ordinal}")
    return {root: tuple(found) for root, found in uses.items()}


def encode_cookie(cookie: Cookie) -> bytes:
    """The content of the cookie file."""
    pairs = [(name, getattr(cookie, name)) for name in ("bookie_id", "instance_id", "directory_id")]
    return encode_fields(_MAGIC, COOKIE_VERSION, [*pairs, ("uses", " ".join(cookie.uses)), *_place_pairs(cookie.places)])


def decode_cookie(data: bytes, what: str) -> Cookie:
    """``what`` names the file in errors. Raises CorruptionError, FormatVersionError."""
    fields = decode_fields(data, _MAGIC, COOKIE_VERSION, what)
    uses = tuple(fields.one("uses").split())
    return Cookie(fields.one("bookie_id"), fields.one("instance_id"), fields.one("directory_id"), uses, _places(fields))


def encode_stored(cookie: StoredCookie) -> bytes:
    """The value of the cookie's znode."""
    pairs = [("version", str(COOKIE_VERSION)), ("boot", str(cookie.boot)), *_place_pairs(cookie.places)]
    return (cookie.apache_text + "".join(f"{_OURS}{name}: {value}\n" for name, value in pairs)).encode()


def decode_stored(value: bytes, path: str) -> StoredCookie:
    """Raises CorruptionError, FormatVersionError."""
    what = f"the cookie {path}"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise CorruptionError(what, "it is not UTF-8 text") from None
    apache = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(_OURS))
    version, _, body = apache.partition("\n")
    check_version(what, version, _APACHE_FORMAT, "it does not begin with a format number")
    theirs = Fields(what, tuple(_APACHE_FIELD.findall(body)))
    ours = Fields(what, tuple(_OUR_FIELD.findall(text)))
    if not ours.pairs:
        raise CorruptionError(what, "bk_spark's lines are missing, another tool has rewritten it")
    check_version(what, ours.one("version"), COOKIE_VERSION, "it does not begin with a format number")
    return StoredCookie(
        theirs.one("bookieHost"), theirs.one("instanceId"), _places(ours), decode_boot_number(ours.one("boot"), what), apache
    )


def apache_text(bookie_id: str, instance_id: str, directories: Directories) -> str:
    """Apache's lines of the znode's value."""
    ledger_dirs = [str(place.parent) for place in directories.entry_logs]
    fields = {
        "bookieHost": bookie_id,
        "journalDir": ",".join(str(place.parent) for place in directories.journals),
        "ledgerDirs": "\t".join([str(len(ledger_dirs)), *ledger_dirs]),
        "instanceId": instance_id,
    }
    # protobuf's text format escapes as JSON does
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items()]
    return "".join([f"{_APACHE_FORMAT}\n", *lines])


def decode_boot_number(text: str, what: str) -> BootNumber:
    """The inverse of ``str(boot_number)``; without an epoch it is 0. Raises CorruptionError."""
    match = _BOOT_NUMBER.fullmatch(text)
    number, epoch = (decode_number(match[1]), decode_number(match[3] or "0")) if match is not None else (None, None)
    if match is None or number is None or epoch is None:
        raise CorruptionError(what, f"{text[:100]!r} is no boot number")
    return BootNumber(number, match[2], epoch)


def _place_pairs(places: Iterable[DirectoryPlace]) -> list[tuple[str, str]]:
    return [("directory", f"{place.use} {place.directory_id}") for place in places]


def _places(fields: Fields) -> tuple[DirectoryPlace, ...]:
    pairs = [value.split() for value in fields.all("directory")]
    if any(len(pair) != 2 for pair in pairs):
        raise CorruptionError(fields.what, "it names a directory without a use or an id")
    return tuple(DirectoryPlace(use, directory_id) for use, directory_id in pairs)


@dataclass(frozen=True, slots=True)
class CookieZnode:
    """The stored cookie as it was read; if it is unreadable, ``damage`` is set instead."""

    cookie: StoredCookie | None
    version: int
    damage: CorruptionError | None = None


def read_znode(store: MetadataStore, znodes: Znodes, bookie_id: str) -> CookieZnode | None:
    """None if there certainly is none. Raises FormatVersionError, MetadataUnavailableError."""
    path = znodes.cookie(bookie_id)
    store.sync(path)  # the caller acts on an absence, so a server that lags behind must not report one
    try:
        found = store.get(path)
    except NoNodeError:
        return None
    try:
        return CookieZnode(decode_stored(found.value, path), found.version)
    except CorruptionError as damage:
        return CookieZnode(None, found.version, damage)


def write_znode(store: MetadataStore, znodes: Znodes, cookie: StoredCookie, found: CookieZnode | None) -> None:
    """Replace ``found`` by ``cookie``, or create it if nothing was found.

    Raises MetadataConflictError if another process was faster, MetadataUnavailableError if the change may still take effect.
    """
    path, value = znodes.cookie(cookie.bookie_id), encode_stored(cookie)
    try:
        if found is None:
            store.create(path, value, make_parents=True)
        else:
            store.set(path, value, found.version)
    except (BadVersionError, NodeExistsError, NoNodeError):
        if not _is_stored(store, znodes, cookie):
            problem = "another process starts or repairs the same bookie, or its cookie was deleted"
            remedy = "run only one with these directories or copies of them"
            raise MetadataConflictError(f"the cookie of bookie {cookie.bookie_id}", f"{problem}: {remedy}") from None
    except MetadataUnavailableError:
        if not _is_stored(store, znodes, cookie):
            raise


def _is_stored(store: MetadataStore, znodes: Znodes, cookie: StoredCookie) -> bool:
    """Whether the change took effect: then the stored value carries its token."""
    stored = read_znode(store, znodes, cookie.bookie_id)
    return stored is not None and stored.cookie is not None and stored.cookie.boot == cookie.boot
