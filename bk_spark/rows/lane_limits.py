"""How many lanes a log may have, and how many key columns. Imports no Arrow: Spark's look-up reads it."""

from __future__ import annotations

MAX_LANES = 256
"""A task of a write has a ledger for each lane open, and each of them costs the metadata store two writes."""

DEFAULT_LANES = 8
"""As many streams or machines can share a log, and a write of some tasks still makes few ledgers."""

MAX_KEY_COLUMNS = 16
"""They stand in every version of the log, and each is hashed for every row."""
