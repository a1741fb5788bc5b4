"""A rebuild of the index that crashes at every step. Ref: docs/rules.md, storage rule 13."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from bk_spark.bookie.disk import Disk
from bk_spark.errors import StorageError
from tests.unit.bookie.harness import Harness
from tests.unit.bookie.inspection.test_rebuild_index import (
    assert_filled,
    fill,
    rebuild,
    start_after_rebuild,
)


class FailingDisk(Disk):
    """Fails at the n-th change of a name."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageError("changing a name", "the power failed")

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)

    def remove_directory(self, path: Path) -> None:
        self._count()
        super().remove_directory(path)

    def make_directory(self, path: Path) -> None:
        self._count()
        super().make_directory(path)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)


def test_a_crash_at_any_step_leaves_the_old_index_or_none_and_the_rebuild_can_be_run_again(harness: Harness) -> None:
    harness.start()
    fill(harness)
    harness.stop()
    rebuild(harness)  # so that one was replaced before
    whole = harness.data_dir
    for left in itertools.count():
        harness.data_dir = whole.with_name(f"cut-{left}")
        shutil.copytree(whole, harness.data_dir)
        try:
            rebuild(harness, FailingDisk(left))
        except StorageError:
            is_there = (harness.data_dir / "index").exists()
            if is_there:
                start_after_rebuild(harness)
                assert_filled(harness)
                harness.stop()
            rebuild(harness)
            start_after_rebuild(harness)
            assert_filled(harness)
            harness.stop()
        else:
            assert left > 5
            return
