"""What happened in a round, told by those to whom it happened: one file of JSON lines for each process that took part.

An event is written with one write call before its process does anything else, so SIGKILL loses at most what the application
was about to be told: whoever was killed has left every confirmation that it acted on. Times are CLOCK_MONOTONIC in ns, which
all processes of a machine share. Payloads stand as digests: equal digests are taken for equal payloads.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLAN, CREATED, APPENDED, CONFIRMED = "plan", "created", "appended", "confirmed"
WRITER_FAILED, WRITER_CLOSED, WRITER_ENDED = "writer failed", "writer closed", "writer ended"
OPENING, OPEN_FAILED, OPENED = "opening", "open failed", "opened"
SHOWN, READ, READ_FAILED, DENIED = "shown", "read", "read failed", "denied"
FAULT, FAULTS_ENDED, DONE = "fault", "faults ended", "done"

DIGEST_BYTES = 8
"""Of SHA-256, which Java has, too: two different payloads of a run are taken for equal with a probability below 1e-9."""


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).digest()[:DIGEST_BYTES].hex()


@dataclass(frozen=True, slots=True)
class Event:
    """``who`` is the name of a process or of one of its tasks; ``facts`` depends on the kind, see workload.py and rounds.py."""

    at_ns: int
    who: str
    kind: str
    facts: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


class Recorder:
    """Appends events to one file. Threads may share it."""

    def __init__(self, path: Path, who: str) -> None:
        self.who = who
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def record(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"at_ns": time.monotonic_ns(), "who": self.who, "kind": kind, "facts": facts})
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def load(directory: Path) -> list[Event]:
    """All events of a round, in the order of their times."""
    return in_order(event for path in sorted(directory.glob("*.jsonl")) for event in read_events(path))


def in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.at_ns)


def read_events(path: Path) -> list[Event]:
    """The whole lines of one file: a killed process may have left the last one torn."""
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [Event(**json.loads(line)) for line in whole.splitlines()]


def last_confirmed(events: Sequence[Event]) -> int:
    """The highest entry that the application was told to be confirmed, -1 for none."""
    return max((event["last"] for event in events if event.kind == CONFIRMED), default=-1)
