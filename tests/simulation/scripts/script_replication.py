"""The steps of scripts that are about re-replication, as functions of the script and of the step's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bk_spark.bookie.space.garbage_collection import METADATA_EXISTS
from bk_spark.wire.messages import DeleteLedgerRequest
from tests.simulation.engines.schedule import LEDGER_ID
from tests.simulation.scripts.hand_replicator import Replicator
from tests.simulation.scripts.script_names import ScriptError

if TYPE_CHECKING:
    from tests.simulation.scripts.script_engine import Script


def replicates(script: Script, name: str, leaving: str, fences: str | None) -> None:
    fence = script.world.invariants.history.current.last_fragment if fences else None
    script.clients[name] = Replicator(name, script.world, script.store.lock, frozenset(leaving.split(",")), fence)
    script.world.settle()


def racks(script: Script, names: str) -> None:
    script.world.racks.update(name.split("=") for name in names.split())  # type: ignore[misc]


def moves(script: Script, name: str) -> None:
    script.clients[name] = Replicator(name, script.world, script.store.lock, frozenset(), None)
    script.world.settle()


def expire(script: Script, name: str) -> None:
    script.store.lock.expire(name)


def decide(script: Script, name: str) -> None:
    current = script.world.invariants.history.current
    if not current.is_closed or script.store.lock.guards or any(name in one.ensemble for one in current.fragments):
        raise ScriptError("the ledger is open, locked, or names this bookie")
    flush(script, name)
    script.decided[name] = script.bookies[name].next_sequence


def collect(script: Script, name: str) -> None:
    if name not in script.decided:
        decide(script, name)
    request = DeleteLedgerRequest(LEDGER_ID, METADATA_EXISTS, script.decided.pop(name))
    script.bookies[name].delete_ledger(request, lambda reply: None)
    script.world.settle()


def flush(script: Script, name: str) -> None:
    script.bookies[name].request_checkpoint()
    script.world.settle()
