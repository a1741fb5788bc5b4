"""Which branches of the client a campaign went through, by the simulator alone: state machines, or the drivers around them."""

from __future__ import annotations

import io
import json
import tempfile

import coverage

from tests.checkout import ROOT

STATE_MACHINES = (
    "add_entries",
    "writer/append_batches",
    "asking",
    "force_adds",
    "last_add_confirmed",
    "pending_adds",
    "read_entries",
    "stripe_reads",
    "recover_ledger",
    "recovery_fencing",
    "recovery_reads",
    "recovery_writes",
    "replace_bookies",
    "rereplicate_fragment",
    "update_metadata",
    "writer/writer_close",
    "writer/writer_ensemble",
    "writer/writer_states",
)


DRIVERS = (
    "driver/bookies",
    "driver/client_context",
    "driver/connections",
    "driver/framed_adds",
    "driver/apache/framed_connection",
    "driver/queued_add",
    "driver/runner",
    "ledger/append_future",
    "ledger/write_handle",
    "ledger/write_items",
    "ledger/write_queue",
)


class Coverage:
    """Counts from now on."""

    def __init__(self, *, of_drivers: bool = False) -> None:
        machines = [*(f"client/protocol/{name}" for name in STATE_MACHINES), "replication/ledger_rereplication"]
        drivers = [f"client/{name}" for name in DRIVERS]
        files = [str(ROOT / "bk_spark" / f"{name}.py") for name in (drivers if of_drivers else machines)]
        self._coverage = coverage.Coverage(branch=True, include=files, data_file=None, config_file=False)
        self._coverage.start()

    def report(self) -> str:
        """A table: statements, branches, what was missed; and what share of all branches was taken."""
        self._coverage.stop()
        out = io.StringIO()
        self._coverage.report(file=out, show_missing=True)
        with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
            self._coverage.json_report(outfile=file.name)
            totals = json.load(file)["totals"]
        taken, branches = totals["covered_branches"], totals["num_branches"]
        return f"{out.getvalue()}\nbranches taken: {taken} of {branches}, {100 * taken / branches:.1f} %"
