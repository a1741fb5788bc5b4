"""Finds the rows of a log again in a table whose files others have rewritten.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Mapping

from bk_spark.errors import CorruptionError
from bk_spark.lake.ports import TableState, TierFiles
from bk_spark.log.stored.tier_records import DataFile, LedgerContent


def located(log: str, wanted: Mapping[int, LedgerContent], state: TableState, files: TierFiles) -> tuple[DataFile, ...]:
    """The files of the table that have the rows of these ledgers, all of them and no others. One without rows is in none.

    Raises CorruptionError that names a ledger whose rows are not there as they were.
    """
    ids = tuple(ledger_id for ledger_id, expected in wanted.items() if expected.rows)
    candidates = [DataFile(one.path, one.size, ids) for one in state.files if one.has_log_rows]
    holding = []
    for one in candidates:
        held = tuple(ledger_id for ledger_id, content in files.read_back([one]).items() if content.rows)
        if held:
            holding.append(DataFile(one.path, one.size, held))
    found = files.read_back(holding)
    for ledger_id in ids:
        if found.get(ledger_id) != wanted[ledger_id]:
            problem = f"somebody changed its rows: {found.get(ledger_id, 'none')} in place of {wanted[ledger_id]}"
            raise CorruptionError(f"ledger {ledger_id} in the table of log '{log}'", problem)
    return tuple(holding)
