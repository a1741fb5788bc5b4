"""What processes write down, and when that counts as done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from bk_spark.bookie.bookie import Bookie
from bk_spark.wire.messages import ReadEnd, Status
from tests.specification.actions import AnswersRead, Starts, encode
from tests.specification.recorded import actions_of
from tests.specification.traced import patches

LEDGER = 7


def told(file: Path) -> list[tuple[int, str]]:
    """The time and the action of each line."""
    lines = (line.split(" ", 2) for line in file.read_text().splitlines())
    return [(int(at_ns), action) for at_ns, _, action in lines]


def test_what_a_read_denies_was_not_there_when_it_began(tmp_path: Path) -> None:
    """An add may be acknowledged before the denial leaves: this is no denial of what the bookie has."""
    began: list[int] = []

    def read(self: object, request: object) -> Iterator[ReadEnd]:
        began.append(time.monotonic_ns())
        yield ReadEnd(Status.NO_SUCH_ENTRY, 3)

    file = tmp_path / "bookie.trace"
    bookie, request = SimpleNamespace(bookie_id="b1"), SimpleNamespace(ledger_id=LEDGER)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Bookie, "read", read))
        for patch in patches(file):
            stack.enter_context(patch)
        list(Bookie.read(bookie, request))  # type: ignore[arg-type]
    (denied_ns, denial), (given_ns, given) = told(file)
    assert denied_ns < began[0] < given_ns
    assert denial == encode(AnswersRead("b1", (), "NO_SUCH_ENTRY", 3))
    assert given == encode(AnswersRead("b1", (), "OK", 3))


def test_what_was_told_after_a_moment_is_left_out(tmp_path: Path) -> None:
    """Whoever reads the files meets some earlier than others."""
    early, late, of_others = Starts("b1", False), Starts("b2", False), Starts("b3", False)
    (tmp_path / "a").write_text(f"20 {LEDGER} {encode(late)}\n5 9 {encode(of_others)}\n")
    (tmp_path / "b").write_text(f"10 -1 {encode(early)}\n10 {LEDGER} cut o")
    files = sorted(tmp_path.iterdir())
    assert actions_of(files, LEDGER) == [early, late]
    assert actions_of(files, LEDGER, until_ns=19) == [early]
