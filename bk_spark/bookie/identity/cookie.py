"""Formatting: how empty directories become a bookie. And whose a directory is.

Formatting draws a bookie id, and for each root directory an id of its own, and writes them into the metadata store and into the
directories. A bookie starts only where all of them agree (identity.py), so that an empty, exchanged or foreign directory never
answers "no such entry" under a name that clients trust.

Ref: Apache BookKeeper's Cookie; docs/formats.md, "Cookie"; docs/rules.md, protocol rules 48 and 49, storage rule 9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK, DirectoryLock, Disk
from bk_spark.bookie.identity.boot_file import BootRecord, write_boot
from bk_spark.bookie.identity.cookie_file import (
    COOKIE_FILE,
    DATA,
    ID_BYTES,
    BootNumber,
    Cookie,
    DirectoryPlace,
    StoredCookie,
    apache_text,
    decode_cookie,
    encode_cookie,
    encode_stored,
    read_znode,
    root_uses,
)
from bk_spark.bookie.identity.identity import FORMAT_FIRST, content_of
from bk_spark.errors import ConfigError
from bk_spark.metadata.registration import check_layout, instance_id
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

_SUFFIX_BYTES = 4
"""Random bytes of a bookie id: two formattings of one host and port meet with a chance of 1 in 4 billion."""

_ID_PREFIX = re.compile(r"[A-Za-z0-9:._-]{1,200}")
"""The characters of Apache BookKeeper's BookieId."""


def format_bookie(
    directories: Directories, store: MetadataStore, znodes: Znodes, prefix: str, *, disk: Disk = REAL_DISK
) -> str:
    """Make a bookie of empty or missing directories; gives back its id: ``prefix`` (``host:port``, say), a random suffix.

    The znode is durable before the files, the data directory's cookie comes last: a crash between leaves a cookie that no data
    directory has and nothing refers to. Raises ConfigError if a directory holds anything, is in use, or the cluster is not
    initialised.
    """
    _check_prefix(prefix)
    check_layout(store, znodes)
    for root in directories.roots:
        _check_empty(root, disk)
        disk.make_directory(root)
    with locked(directories.roots, disk):
        for root in directories.roots:
            _check_empty(root, disk)
        cookies = _new_cookies(directories, _new_id(prefix, disk), instance_id(store, znodes), disk)
        data_cookie = cookies[directories.data_dir]
        boot = BootNumber(0, disk.random_bytes(ID_BYTES).hex())
        text = apache_text(data_cookie.bookie_id, data_cookie.instance_id, directories)
        stored = StoredCookie(data_cookie.bookie_id, data_cookie.instance_id, data_cookie.places, boot, text)
        store.create(znodes.cookie(stored.bookie_id), encode_stored(stored), make_parents=True)
        for root, cookie in reversed(cookies.items()):
            write_boot(disk, root, BootRecord(boot))
            disk.replace(root / COOKIE_FILE, encode_cookie(cookie))
    return data_cookie.bookie_id


def bookie_id_of(data_dir: Path, store: MetadataStore, znodes: Znodes, *, disk: Disk = REAL_DISK) -> str:
    """The id of the bookie that a data directory belongs to, running or not, if it is one of this cluster.

    Raises ConfigError (not formatted, of another cluster, removed from the cluster), FormatVersionError, CorruptionError.
    """
    cookie = read_cookie(data_dir, disk=disk)
    check_layout(store, znodes)
    if cookie.instance_id != instance_id(store, znodes) or read_znode(store, znodes, cookie.bookie_id) is None:
        raise ConfigError(
            "the data directory",
            str(data_dir),
            f"it belongs to bookie {cookie.bookie_id}, which has no cookie in {store.uri}: check the metadata URI",
        )
    return cookie.bookie_id


def read_cookie(data_dir: Path, *, disk: Disk = REAL_DISK) -> Cookie:
    """What a data directory says of itself. Raises ConfigError, FormatVersionError, CorruptionError."""
    path = data_dir / COOKIE_FILE
    data = disk.read_small(path) if disk.exists(data_dir) else None
    if data is None:
        raise ConfigError("the data directory", str(data_dir), f"it is not formatted: {FORMAT_FIRST}")
    return decode_cookie(data, str(path))


@contextmanager
def locked(roots: Sequence[Path], disk: Disk) -> Iterator[dict[Path, DirectoryLock]]:
    """Have all roots for this process alone. Raises ConfigError if another process has one of them, or one is not there."""
    locks = {}
    with ExitStack() as stack:
        for root in roots:
            if not disk.exists(root):
                remedy = "it is not there: mount its disk, or put an empty directory in its place; to make a new bookie, "
                raise ConfigError("a directory of the bookie", str(root), f"{remedy}{FORMAT_FIRST}")
            locks[root] = disk.lock(root)
            stack.callback(locks[root].release)
        yield locks


def _check_prefix(prefix: str) -> None:
    if not _ID_PREFIX.fullmatch(prefix):
        raise ConfigError("the bookie id prefix", prefix, "use letters, digits and : . _ - only, at most 200 of them")


def _check_empty(root: Path, disk: Disk) -> None:
    if not disk.exists(root):
        return
    if disk.exists(root / COOKIE_FILE):
        owner = read_cookie(root, disk=disk).bookie_id
        raise ConfigError(
            "the directory to format",
            str(root),
            f"it is formatted already, for bookie {owner}: start it, or choose another one",
        )
    content = content_of(root, disk)
    if content:
        raise ConfigError("the directory to format", str(root), f"it is not empty, it holds {content!r}: choose another one")


def _new_id(prefix: str, disk: Disk) -> str:
    return f"{prefix}-{disk.random_bytes(_SUFFIX_BYTES).hex()}"


def _new_cookies(directories: Directories, bookie_id: str, instance: str, disk: Disk) -> dict[Path, Cookie]:
    uses = root_uses(directories)
    ids = {root: disk.random_bytes(ID_BYTES).hex() for root in uses}
    places = tuple(DirectoryPlace(use, ids[root]) for root, names in uses.items() for use in names)
    return {
        root: Cookie(bookie_id, instance, ids[root], names, places if DATA in names else ()) for root, names in uses.items()
    }
