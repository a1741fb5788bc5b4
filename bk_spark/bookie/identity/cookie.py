"""Formatting, which makes a bookie of empty directories; and the look-up of the bookie that a directory belongs to.

Formatting draws ids of the bookie and of each root directory, and writes them into the metadata store and the directories. A
bookie starts only if they agree (identity.py), so no empty, exchanged or foreign directory denies entries under a trusted name.

Ref: Apache BookKeeper's Cookie; docs/formats.md, "Cookie"; docs/rules.md, protocol rules 48 and 49, storage rule 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK, DirectoryLock, Disk
from bk_spark.bookie.identity import cookie_file
from bk_spark.bookie.identity.boot_file import BootRecord, write_boot
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE, BootNumber, Cookie
from bk_spark.bookie.identity.identity import FORMAT_FIRST, check_store, content_of
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError
from bk_spark.metadata.registration import check_layout, instance_id
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes, is_bookie_id

_SUFFIX_BYTES = 4
"""Random bytes of a bookie id: two formattings of one host and port get the same id with a chance of 1 in 4 billion."""

_PREFIX_CHARACTERS = 200
"""Room for the suffix is left."""


def format_bookie(
    directories: Directories, store: MetadataStore, znodes: Znodes, prefix: str, *, disk: Disk = REAL_DISK
) -> str:
    """Make a bookie of empty or missing directories. Returns its id: ``prefix``, such as ``host:port``, and a random suffix.

    The znode is durable before the files, and the data directory's cookie is written last: a crash in between leaves a znode
    that nothing refers to. Raises ConfigError if a directory is in use or not empty, or the cluster is not initialised.
    """
    if not is_bookie_id(prefix) or len(prefix) > _PREFIX_CHARACTERS:
        remedy = f"use letters, digits and : . _ - only, at most {_PREFIX_CHARACTERS} of them"
        raise ConfigError("the bookie id prefix", prefix, remedy)
    check_store(directories, store, znodes.root, disk)
    check_layout(store, znodes)
    for root in directories.roots:
        _check_empty(root, disk)
        disk.make_directory(root)
    with locked(directories.roots, disk):
        for root in directories.roots:
            _check_empty(root, disk)
        bookie_id = _new_id(prefix, disk)
        ids = {root: disk.random_bytes(cookie_file.ID_BYTES).hex() for root in directories.roots}
        cookies = cookie_file.make_cookies(bookie_id, instance_id(store, znodes), directories, ids)
        boot = BootNumber(0, disk.random_bytes(cookie_file.ID_BYTES).hex())
        stored = cookie_file.make_stored(cookies[directories.data_dir], directories, boot)
        store.create(znodes.cookie(bookie_id), cookie_file.encode_stored(stored), make_parents=True)
        for root, cookie in reversed(cookies.items()):
            write_boot(disk, root, BootRecord(boot))
            disk.replace(root / COOKIE_FILE, cookie_file.encode_cookie(cookie))
    return bookie_id


def bookie_id_of(data_dir: Path, store: MetadataStore, znodes: Znodes, *, disk: Disk = REAL_DISK) -> str:
    """The id of the bookie that a data directory belongs to. The bookie must be one of this cluster; it may be stopped.

    Raises ConfigError (not formatted, of another cluster, removed from the cluster), FormatVersionError, CorruptionError.
    """
    cookie = read_cookie(data_dir, disk=disk)
    check_store(Directories.of(data_dir, BookieConfig()), store, znodes.root, disk)
    check_layout(store, znodes)
    if cookie.instance_id != instance_id(store, znodes) or cookie_file.read_znode(store, znodes, cookie.bookie_id) is None:
        remedy = f"it belongs to bookie {cookie.bookie_id}, which has no cookie in {store.uri}: check the metadata URI"
        raise ConfigError("the data directory", str(data_dir), remedy)
    return cookie.bookie_id


def read_cookie(data_dir: Path, *, disk: Disk = REAL_DISK) -> Cookie:
    """Raises ConfigError, FormatVersionError, CorruptionError."""
    path = data_dir / COOKIE_FILE
    is_there = disk.is_directory(data_dir)
    data = disk.read_small(path) if is_there else None
    if data is None:
        problem = "it is not formatted" if is_there else "there is no such directory"
        raise ConfigError("the data directory", str(data_dir), f"{problem}: {FORMAT_FIRST}")
    return cookie_file.decode_cookie(data, str(path))


@contextmanager
def locked(roots: Sequence[Path], disk: Disk) -> Iterator[dict[Path, DirectoryLock]]:
    """Lock all roots for this process. Raises ConfigError if another process has locked one, or one does not exist."""
    locks = {}
    with ExitStack() as stack:
        for root in roots:
            if not disk.is_directory(root):
                remedy = "it is not there: mount its disk, or put an empty directory in its place; to make a new bookie, "
                raise ConfigError("a directory of the bookie", str(root), f"{remedy}{FORMAT_FIRST}")
            locks[root] = disk.lock(root)
            stack.callback(locks[root].release)
        yield locks


def _check_empty(root: Path, disk: Disk) -> None:
    if not disk.is_directory(root):
        return
    remedy = ""
    if disk.exists(root / COOKIE_FILE):
        owner = read_cookie(root, disk=disk).bookie_id
        remedy = f"it is formatted already, for bookie {owner}: start it, or choose another one"
    elif content := content_of(root, disk):
        remedy = f"it is not empty, it holds {content!r}: choose another one"
    if remedy:
        raise ConfigError("the directory to format", str(root), remedy)


def _new_id(prefix: str, disk: Disk) -> str:
    return f"{prefix}-{disk.random_bytes(_SUFFIX_BYTES).hex()}"
