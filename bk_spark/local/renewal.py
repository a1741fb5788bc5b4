"""A copy of a cluster's directory becomes a cluster of its own: it gets another instance id.

The bookies of the copy have the ids, and hold the ledger ids, of the original. Written to apart, one ledger id means two
ledgers. A bookie's directory that is taken from one to the other would serve the other's entries, so it must be refused: a
bookie belongs to the cluster with the instance id of its cookie.

The new id is in ``cluster.json`` before the first step. Each step accepts what an interrupted renewal left:

1. The cookie file and the cookie's znode of each bookie: from the old id, or the new one, to the new one.
2. The znode of the instance id.
3. ``cluster.json`` has the directory's own mark, and no renewal any more (cluster.py).

No bookie runs meanwhile. A bookie whose cookie says something else stays as it is, and is refused at its start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.cookie import read_cookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE, encode_cookie, encode_stored, read_znode
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.registration import instance_id
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes


def renew(store: MetadataStore, znodes: Znodes, data_dirs: Sequence[Path], new: str) -> None:
    """Give the cluster the instance id ``new``. May be repeated. Raises MetadataUnavailableError, StorageError."""
    known = {instance_id(store, znodes), new}
    for data_dir in data_dirs:
        _renew_bookie(store, znodes, data_dir, known, new)
    found = store.get(znodes.instance_id)
    if found.value.decode() != new:
        store.set(znodes.instance_id, new.encode(), found.version)


def _renew_bookie(store: MetadataStore, znodes: Znodes, data_dir: Path, known: set[str], new: str) -> None:
    cookie = None
    with suppress(BookKeeperError):  # the bookie itself says at its start what is wrong
        cookie = read_cookie(data_dir)
    if cookie is None or cookie.instance_id not in known:
        return
    znode = read_znode(store, znodes, cookie.bookie_id)
    if znode is not None and znode.cookie is not None and znode.cookie.instance_id in known:
        stored = znode.cookie
        text = stored.apache_text.replace(f'"{stored.instance_id}"', f'"{new}"')
        value = encode_stored(dataclasses.replace(stored, instance_id=new, apache_text=text))
        store.set(znodes.cookie(cookie.bookie_id), value, znode.version)
    REAL_DISK.replace(data_dir / COOKIE_FILE, encode_cookie(dataclasses.replace(cookie, instance_id=new)))
