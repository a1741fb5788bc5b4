"""What a script may expect: each step that begins with ``expect``, as a function of the script and of the step's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bk_spark.wire.messages import LastAddConfirmedRequest
from tests.simulation.engines.schedule import LEDGER_ID
from tests.simulation.scripts.hand_clients import Reader
from tests.simulation.scripts.hand_replicator import Replicator
from tests.simulation.scripts.script_names import ScriptError, entry_of
from tests.simulation.world.messages import ReadAnswer

if TYPE_CHECKING:
    from tests.simulation.scripts.script_engine import Script


def acked(script: Script, name: str, up_to: str) -> None:
    _equal(f"{name} acked", script.writer(name).machine.last_add_confirmed, entry_of(up_to))
    _equal("the highest acked entry", script.world.invariants.history.acked, entry_of(up_to))


def failed(script: Script, name: str, error: str) -> None:
    _equal(f"the error of {name}", type(script.client_of(name).error).__name__, error)


def done(script: Script, name: str) -> None:
    client = script.client_of(name)
    _equal(f"{name}", "done" if client.finish is not None and client.error is None else repr(client.error), "done")


def whole(script: Script, name: str, negation: str | None) -> None:
    client = script.client_of(name)
    assert isinstance(client, Replicator), f"{name} replicates nothing"
    is_whole = client.done is not None and client.done.is_whole
    _equal(f"{name} whole", is_whole, negation is None)


def running(script: Script, name: str) -> None:
    _equal(f"the end of {name}", script.client_of(name).finish or script.client_of(name).error, None)


def ledger(script: Script, state: str, end: str | None) -> None:
    current = script.world.invariants.history.current
    _equal("the ledger", (current.state.name, current.last_entry_id), (state, None if end is None else entry_of(end)))


def fragments(script: Script, text: str) -> None:
    fragments = script.world.invariants.history.current.fragments
    found = "; ".join(f"{one.first_entry_id} {' '.join(one.ensemble)}" for one in fragments)
    _equal("the fragments", found, text)


def fenced(script: Script, name: str, negation: str | None) -> None:
    request = LastAddConfirmedRequest(name, LEDGER_ID, script.world.master_key)
    _equal(f"{name} fenced", script.bookie(name).read_last_add_confirmed(request).is_fenced, negation is None)


def last_add_confirmed(script: Script, name: str, entry: str) -> None:
    request = LastAddConfirmedRequest(name, LEDGER_ID, script.world.master_key)
    _equal(f"the LAC of {name}", script.bookie(name).read_last_add_confirmed(request).last_add_confirmed, entry_of(entry))


def in_flight(script: Script, pattern: str) -> None:
    script.in_flight(pattern)


def read(script: Script, name: str, up_to: str) -> None:
    client = script.client_of(name)
    assert isinstance(client, Reader), f"{name} is no reader"
    _equal(f"{name} read", client.read_up_to, entry_of(up_to))


def says(script: Script, pattern: str, status: str) -> None:
    for envelope in script.in_flight(pattern):
        body = envelope.body.replies[-1] if isinstance(envelope.body, ReadAnswer) else envelope.body
        _equal(script.world.name(envelope), body.status.name, status)  # type: ignore[attr-defined]


def marked(script: Script, names: str) -> None:
    found = " ".join(sorted(script.world.invariants.history.marked)) or "for nobody"
    _equal("the ledger is marked", found, names)


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ScriptError(f"{what}: {found}, expected {expected}")
