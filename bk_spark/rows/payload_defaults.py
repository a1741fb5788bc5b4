"""What writers of rows take where nothing is asked for, with Spark and without. Imports no Arrow: Spark's look-up reads it."""

from __future__ import annotations

from bk_spark.config import MIB

COMPRESSIONS = ("none", "lz4", "zstd")

COMPRESSION = "zstd"
MAX_ROWS_PER_ENTRY = 65_536
MAX_BYTES_PER_ENTRY = MIB
