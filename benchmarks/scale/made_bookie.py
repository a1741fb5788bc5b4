"""A bookie that holds many ledgers, one entry each: added to its own storage while it is stopped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from benchmarks.scale.made_ledgers import made_ledger
from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.directories import Directories
from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.local.cluster import LocalBookie
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import AddRequest

_SYNC_EACH = 1_000
_PAYLOAD = bytes(100)


def fill_bookie(bookie: LocalBookie, bookies: Sequence[str], ledger_ids: Iterable[int]) -> None:
    """``bookies`` are those that the ledgers name, and say which ledgers are closed where."""
    bookie.stop()
    directories = Directories.of(bookie.data_dir, bookie.config)
    stored = Bookie.open(directories, bookie.bookie_id, bookie.config)
    try:
        for number, ledger_id in enumerate(ledger_ids):
            key = made_ledger(bookies, ledger_id, {}).master_key
            stored.stage(AddRequest(number, bookie.bookie_id, key, _entry(ledger_id)), None)
            if number % _SYNC_EACH == 0:
                stored.sync()
        stored.sync()
    finally:
        stored.close()
    bookie.start()


def _entry(ledger_id: int) -> EncodedBatch:
    payloads = pa.array([_PAYLOAD], pa.binary())
    sealed = seal(Digester(DigestType.CRC32C, b""), ledger_id, 0, payloads, length_before=0, last_add_confirmed=-1)
    batch = encode(sealed, DigestType.CRC32C, DENSE)
    assert batch is not None
    return batch
