"""The columns that a tier's table has beside those of the log: where each row lies in the log."""

from __future__ import annotations

LEDGER, ENTRY, ROW = "_ledger_id", "_entry_id", "_row"
"""The ledger and the entry of a row, and its number among the rows of the entry, from 0 on. All int64."""

PLACE = (LEDGER, ENTRY, ROW)
PAYLOAD, LENGTH, CONFIRMED = "payload", "_length", "_last_add_confirmed"
"""Of a log of entries: what an entry holds; the payload bytes of its ledger up to it, inclusive; and its last add confirmed."""
