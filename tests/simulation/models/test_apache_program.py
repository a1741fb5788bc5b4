"""Random programs over Apache's wire beside a model: what was acked is there byte for byte, whatever ended the bookie.

Ref: docs/rules.md, protocol rules 32 to 37 and 65.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.budget import IS_SOAK
from tests.cluster.bookie.apache_client import (
    LAST,
    OTHER_PROOF,
    PROOF,
    ApacheServed,
    Version2,
    Version3,
    add_2,
    entry,
    unpack_2,
)
from tests.unit.bookie.harness import Harness

LEDGERS = (1, 2, 3)
STEPS = 120
HIGHEST = 40
SIZES = (0, 1, 7, 300, 5_000)


@dataclass
class Ledger:
    """What a bookie must hold."""

    entries: dict[int, bytes] = field(default_factory=dict)
    is_fenced: bool = False
    is_known: bool = False

    @property
    def missing(self) -> str:
        return "NOENTRY" if self.is_known else "NOLEDGER"

    def from_(self, first: int) -> list[bytes]:
        found = []
        while first in self.entries:
            found.append(self.entries[first])
            first += 1
        return found


class Program:
    def __init__(self, harness: Harness, seed: int) -> None:
        self.chance = random.Random(seed)
        self.apache = ApacheServed(harness)
        self.model = {ledger_id: Ledger() for ledger_id in LEDGERS}
        self.connect()

    def connect(self) -> None:
        self.clients: list[Version2 | Version3] = [self.apache.version_2(), self.apache.version_3()]

    def run(self) -> None:
        steps = [
            *[self.add] * 6,
            *[self.add_many] * 2,
            *[self.read] * 4,
            *[self.batch_read] * 2,
            self.read_last,
            self.list_entries,
            self.fence,
            self.checkpoint,
            self.restart,
        ]
        for _ in range(STEPS):
            ledger_id = self.chance.choice(LEDGERS)
            self.chance.choice(steps)(ledger_id, self.model[ledger_id])
        self.restart(0, Ledger())
        for ledger_id, held in self.model.items():
            for entry_id in range(HIGHEST + 2):
                found = self.clients[0].read(ledger_id, entry_id)
                assert found == (("OK", held.entries[entry_id]) if entry_id in held.entries else (held.missing, b""))

    def some_client(self) -> Version2 | Version3:
        return self.chance.choice(self.clients)

    def some_entry(self, ledger_id: int) -> bytes:
        """Of one payload for each id, except one in twenty; with any last add confirmed."""
        entry_id = self.chance.randrange(HIGHEST)
        payload = b"%d" % entry_id * SIZES[(entry_id + ledger_id) % len(SIZES)]
        if self.chance.random() < 0.05:
            payload += b"another"
        confirmed = self.chance.randrange(-1, entry_id)
        return entry(ledger_id, entry_id, payload, confirmed=confirmed, length=entry_id * 10 + len(payload))

    def add(self, ledger_id: int, held: Ledger) -> None:
        recovery, wrong = self.chance.random() < 0.3, held.is_known and self.chance.random() < 0.05
        data = self.some_entry(ledger_id)
        status = self.some_client().add(data, recovery=recovery, key=OTHER_PROOF if wrong else PROOF)
        if wrong:
            assert status == "UA"
        else:
            self._judge(held, data, recovery, status)

    def add_many(self, ledger_id: int, held: Ledger) -> None:
        """With one sync for several. None is of a stored id: what is refused beside others has tests of its own."""
        client = self.clients[0]
        entries = {int.from_bytes(one[8:16]): one for one in (self.some_entry(ledger_id) for _ in range(8))}
        entries = {entry_id: data for entry_id, data in entries.items() if entry_id not in held.entries}
        if held.is_fenced or not entries:
            return
        client.send(*(add_2(one) for one in entries.values()))
        answers = {entry_id: rc for rc, _, entry_id in (unpack_2(client.receive(), 1) for _ in entries)}
        for entry_id, data in entries.items():
            self._judge(held, data, False, "OK" if answers[entry_id] == 0 else "REFUSED")

    def _judge(self, held: Ledger, data: bytes, recovery: bool, status: str) -> None:
        entry_id = int.from_bytes(data[8:16])
        stored = held.entries.get(entry_id)
        if held.is_fenced and not recovery:
            assert status == "FENCED"
        elif stored is not None and stored[36:] != data[36:]:
            assert status not in ("OK", "NOENTRY", "NOLEDGER", "FENCED")
        elif stored is not None and stored != data and not recovery:
            # the writer's own entry is one: a bookie may keep the first or take the second, and says which by its answer
            if status == "OK":
                found = self.clients[1].read(*_ids(data))
                assert found in (("OK", data), ("OK", stored))
                held.entries[entry_id] = found[1]
        else:
            assert status == "OK"
            held.entries[entry_id] = data
            held.is_known = True

    def read(self, ledger_id: int, held: Ledger) -> None:
        entry_id = self.chance.randrange(HIGHEST + 2)
        wanted = ("OK", held.entries[entry_id]) if entry_id in held.entries else (held.missing, b"")
        assert self.some_client().read(ledger_id, entry_id) == wanted

    def batch_read(self, ledger_id: int, held: Ledger) -> None:
        first, count = self.chance.randrange(HIGHEST), self.chance.choice((0, 1, 3, 100))
        client = self.clients[0]
        assert isinstance(client, Version2)
        wanted = held.from_(first)
        found = client.batch_read(ledger_id, first, count=count)
        assert found == (("OK", wanted[:count] if count else wanted) if wanted else (held.missing, []))

    def read_last(self, ledger_id: int, held: Ledger) -> None:
        wanted = ("OK", held.entries[max(held.entries)]) if held.entries else (held.missing, b"")
        assert self.some_client().read(ledger_id, LAST) == wanted

    def list_entries(self, ledger_id: int, held: Ledger) -> None:
        client = self.clients[1]
        assert isinstance(client, Version3)
        status, found = client.listed(ledger_id)
        assert found == sorted(held.entries)
        assert status in ("OK", held.missing)

    def fence(self, ledger_id: int, held: Ledger) -> None:
        if self.chance.random() < 0.7:
            return
        entry_id = self.chance.choice((LAST, self.chance.randrange(HIGHEST)))
        wanted = held.entries.get(max(held.entries, default=-1) if entry_id == LAST else entry_id)
        status, found = self.some_client().read(ledger_id, entry_id, fence=PROOF)
        assert (status, found) == ("OK", wanted) if wanted is not None else status in ("NOENTRY", "NOLEDGER")
        held.is_fenced = held.is_known = True

    def checkpoint(self, ledger_id: int, held: Ledger) -> None:
        self.apache.checkpoint()

    def restart(self, ledger_id: int, held: Ledger) -> None:
        self.apache.restart(self.chance.choice(("stop", "kill", "power_off")))
        self.connect()


def _ids(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:8]), int.from_bytes(data[8:16])


@pytest.mark.parametrize("seed", range(120 if IS_SOAK else 3))
def test_a_random_program_finds_what_its_model_holds(tmp_path: Path, seed: int) -> None:
    harness = Harness(tmp_path)
    program = Program(harness, seed)
    try:
        program.run()
    finally:
        program.apache.close()
        harness.stop()
