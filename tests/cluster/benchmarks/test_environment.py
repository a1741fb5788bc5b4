"""What the page of results says of a machine."""

from __future__ import annotations

from pathlib import Path

from benchmarks.speed.environment import environment


def test_the_environment_of_this_machine_is_found(tmp_path: Path) -> None:
    found = environment(tmp_path)
    assert all(str(one) for one in found.lines())
    assert found.cores >= 1
    assert " on " in found.file_system
