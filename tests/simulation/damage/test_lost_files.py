"""Each file of a bookie is lost, in whole or in part, alone: nothing acked is denied, and nothing wrong is served.

The bookie was killed, or stopped cleanly. Then one of its files is deleted, cut at many lengths, filled with zeros from many
places on, or exchanged for each older version of itself; and the bookie starts as a process does. It may refuse to start, be in
limbo, or answer "damaged".

Ref: docs/rules.md, storage rules 2, 3, 7 and 15, protocol rules 39, 40 and 50.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.bookie.disk import SECTOR_BYTES
from bk_spark.bookie.log_files import all_log_files
from bk_spark.wire.messages import StagedReply, StagedRequest
from tests.simulation.damage.flipped_home import MEMORY, FlippedHome, Kept, live, outcome

INDEX_STEP = 4096
"""A page of the index. The other files are small: they are cut at every sector."""

Lost = tuple[str, str, bytes | None]
"""What was done, to which file, and its content afterwards."""


class WatchedHome(FlippedHome):
    """Keeps every version of every file that a crash could have left between two requests."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.versions: defaultdict[str, dict[bytes, None]] = defaultdict(dict)

    def stage(self, *requests: StagedRequest) -> list[StagedReply]:
        replies = super().stage(*requests)
        self.look()
        return replies

    def look(self) -> Kept:
        kept = self.keep()
        for name, data in kept.files.items():
            self.versions[name][data] = None
        return kept


class Past:
    def __init__(self, root: Path) -> None:
        self.home = home = WatchedHome(root)
        home.look()
        live(home)
        self.killed = home.look()
        self._older = {"killed": self._versions()}
        home.stop()
        self.stopped = home.look()
        self._older["stopped"] = self._versions()

    def _versions(self) -> dict[str, list[bytes]]:
        return {name: list(found) for name, found in self.home.versions.items()}

    def losses(self, end: str) -> Iterator[Lost]:
        """Every one of a killed or a stopped bookie."""
        kept: Kept = getattr(self, end)
        for name, data in kept.files.items():
            yield "deleted", name, None
            step = INDEX_STEP if name.startswith("index/ledgers") else SECTOR_BYTES
            for length in range(0, len(data), step):
                yield "cut", name, data[:length]
                if data[length:].strip(b"\0"):
                    yield "zeros", name, data[:length].ljust(len(data), b"\0")
            for older in self._older[end][name]:
                if older != data:
                    yield "older", name, older


@pytest.fixture(scope="module")
def past() -> Iterator[Past]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_log_files, "ALIGNED_FROM_BYTES", 0)
        root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        yield Past(root)
        shutil.rmtree(root)


def _without(kept: Kept, name: str, left: bytes | None) -> Kept:
    files = {one: data for one, data in kept.files.items() if one != name}
    return Kept(files if left is None else {**files, name: left}, kept.nodes)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_one_lost_file_denies_nothing_that_was_acked_and_serves_nothing_wrong(past, end, record_property):
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for how, name, left in past.losses(end):
        kind = name.partition("/")[0]
        try:
            made = outcome(past.home, _without(getattr(past, end), name, left))
        except AssertionError as problem:
            made = "WRONG"
            wrong.append(f"{name} {how} {'' if left is None else len(left)}: {problem}")
        found[f"{kind} {how}: {made}"] += 1
    print(end, sum(found.values()), "losses:", dict(sorted(found.items())))
    record_property("outcomes", dict(found))
    assert wrong == []
    assert {one.partition(" ")[0] for one in found} >= {"journal", "entry_log", "index", "boot", "cookie", "witness"}
