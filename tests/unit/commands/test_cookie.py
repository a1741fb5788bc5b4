"""``bk-spark cookie``: what is not there for certain is not acted on. Ref: docs/rules.md, storage rule 8, protocol rule 48."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bk_spark.cli import main
from bk_spark.commands import cookie
from bk_spark.metadata.registration import BookieAddress, register
from bk_spark.metadata.store import Versioned, find
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.bookie.identity.bookie_home import ZNODES, Home


class Lagging(MemoryStore):
    """A session with a follower that has not heard of any registration before a ``sync``."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.is_synced = False

    def sync(self, path: str) -> None:
        super().sync(path)
        self.is_synced = True

    def get_many(self, paths: list[str]) -> list[Versioned | None]:  # type: ignore[override]
        found = super().get_many(paths)
        if self.is_synced:
            return found
        return [None if path.startswith(ZNODES.available) else one for path, one in zip(paths, found, strict=True)]


def test_a_bookie_is_taken_for_not_running_only_after_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def lagging(args: object) -> Iterator[tuple[MemoryStore, object]]:
        yield Lagging(home.tree), ZNODES

    home = Home(tmp_path)
    register(home.store, ZNODES, BookieAddress(home.bookie_id, "h", 1))
    monkeypatch.setattr(cookie, "metadata_store", lagging)
    assert main(["cookie", "delete", home.bookie_id]) == 1
    assert "registered at h:1" in capsys.readouterr().err
    assert home.stored().bookie_id == home.bookie_id


def test_a_directory_of_another_program_is_never_made_a_bookies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def connected(*_: object) -> Iterator[tuple[MemoryStore, object]]:
        yield home.store, ZNODES

    home = Home(tmp_path / "home")
    disks = ["--journal-dirs", f"{tmp_path}/other", "--ledger-dirs", f"{tmp_path}/home/a,{tmp_path}/home/b"]
    monkeypatch.setattr(cookie, "metadata_store", connected)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/cluster.json").write_text("{}")
    assert main(["cookie", "fix", home.bookie_id, "--data-dir", f"{tmp_path}/home/data", *disks]) == 1
    assert "it is a data directory of a local cluster" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["cluster.json"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("options", "answer", "is_deleted"), [([], "no", False), ([], "yes", True), (["--yes"], "", True)])
def test_whether_to_delete_a_cookie_is_asked_on_a_terminal(
    options: list[str], answer: str, is_deleted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def connected(*_: object) -> Iterator[tuple[MemoryStore, object]]:
        yield home.store, ZNODES

    home = Home(tmp_path)
    monkeypatch.setattr(cookie, "metadata_store", connected)
    monkeypatch.setattr(sys, "stdin", Terminal(answer + "\n"))
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(["cookie", "delete", home.bookie_id, *options]) == (0 if is_deleted else 1)
    assert (find(home.store, ZNODES.cookie(home.bookie_id)) is None) == is_deleted
