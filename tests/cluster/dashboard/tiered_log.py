"""A log with a tier in a directory, for as long as a test looks at it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.log.stored.tier_settings import Tier

SETTING = "of-the-catalog-alone"
"""A value in the settings that nobody is to see."""


@contextlib.contextmanager
def tiered_log(client: BookKeeper, name: str, waiting: int = 0, **settings: int) -> Iterator[Tier]:
    """Three ledgers of ten rows in the table and not on bookies, and some more that wait."""
    with tempfile.TemporaryDirectory() as folder:
        log = client.open_log(name, create=True)
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/{SETTING}.db"}
        tier = replace(Tier(f"file://{folder}", f"shop.{name}", catalog, keep_on_bookies_s=0), **settings)
        try:
            for number in range(3 + waiting):
                log.append_rows(pa.table({"id": range(10)}))
                if number == 2:
                    log.set_tier(tier)
                    client.tier_log(name)
            yield tier
        finally:
            client.open_log(name).delete()
