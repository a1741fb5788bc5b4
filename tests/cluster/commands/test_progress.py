"""Long commands show how far they are, to people alone, and can be waited for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bk_spark import Tier
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.commands.bookies import bookie as commands
from bk_spark.commands.output import ProgressBar
from bk_spark.local.cluster import LocalCluster
from bk_spark.wire.messages import AdministerReply, AdminOperation, Status

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command draws on a terminal, its output going elsewhere. It draws at every step."""
    monkeypatch.setattr(ProgressBar.__init__, "__defaults__", (0.0,))

    def call(*arguments: str) -> str:
        capsys.readouterr()
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        assert main([*arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().err

    return call


@pytest.fixture
def ledger_id(client: BookKeeper) -> int:
    with client.create_ledger() as writer:
        writer.append_batch([b"one", b"two", b"three"])
    return writer.ledger_id


def test_bars_are_drawn_beside_output_only_where_that_goes_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for stdout_is_terminal, is_drawn in ((True, False), (False, True)):
        monkeypatch.setattr("sys.stdout.isatty", lambda is_so=stdout_is_terminal: is_so)
        with ProgressBar(redraw_s=0, beside_output=True) as bar:
            bar.count("entries", 7)
        assert ("entries  7 so far" in capsys.readouterr().err) == is_drawn


def test_reading_and_listing_ledgers_shows_how_far_it_is(
    cluster: LocalCluster, drawn: Callable[..., str], ledger_id: int
) -> None:
    assert "3 of 3" in drawn("ledger", "read", str(ledger_id), "--metadata", cluster.metadata_uri)
    assert "so far" in drawn("ledger", "list", "--metadata", cluster.metadata_uri)


def test_tiering_a_log_shows_the_rows_and_bytes_of_the_step_and_draws_nothing_without_a_terminal(
    cluster: LocalCluster,
    client: BookKeeper,
    log: str,
    drawn: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = f"{log}\u202e"
    client.append_rows(name, pa.table({"id": range(500)}), create=True)
    client.open_log(name).set_tier(Tier(f"file://{tmp_path}/lake", "shop.progress", keep_on_bookies_s=0))
    shown = drawn("tier", "run", name, "--metadata", cluster.metadata_uri)
    assert re.search(r"\\u202e: copied 0\.0 of 0\.0 MiB, rows  \[#+\]  500 of 500", shown)
    assert re.search(r"reading files back, bytes  \[#+\]  (\d+) of \1", shown)
    client.append_rows(name, pa.table({"id": range(500)}))
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stderr.isatty", lambda: False)
        assert main(["tier", "run", name, "--metadata", cluster.metadata_uri]) == 0
    assert capsys.readouterr().err == ""


def test_tools_over_the_files_of_a_bookie_show_how_far_they_are(tmp_path: Path, drawn: Callable[..., str]) -> None:
    with LocalCluster(1, tmp_path / "cluster") as own, BookKeeper(own.metadata_uri) as client:
        with client.create_ledger(1, 1, 1) as writer:
            writer.append_batch([bytes(100)] * 10)
        (bookie,) = own.bookies
        bookie.stop()
        place = ("--data-dir", str(bookie.data_dir))
        assert "rows of the index" in drawn("bookie", "sanity", *place)
        assert "rows of the index" in drawn("inspect", "index", "--verify", *place)
        assert "reading 0000000001.journal" in drawn("inspect", "journal", *place)
        rebuilt = drawn("bookie", "rebuild-index", *place)
        assert f"read {bookie.data_dir}" in rebuilt
        assert "verifying the new index" in rebuilt


def test_a_collection_and_a_scrub_that_are_waited_for_print_what_they_did(cluster: LocalCluster, run: Run) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    [before] = run("bookie", "gc", "status", bookie_id)
    [after] = run("bookie", "gc", "run", bookie_id, "--wait")
    assert after["runs"] > before["runs"]
    [state] = run("bookie", "status", bookie_id)
    [scrubbed] = run("bookie", "scrub", bookie_id, "--wait")
    assert scrubbed["scrub_runs"] > state["scrub_runs"]


def test_waiting_for_a_suspended_collection_ends_with_the_way_out(
    cluster: LocalCluster, run: Run, fails: Callable[..., str]
) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    run("bookie", "gc", "suspend", bookie_id)
    try:
        assert "bk-spark bookie gc resume" in fails(1, "bookie", "gc", "run", bookie_id, "--wait")
    finally:
        run("bookie", "gc", "resume", bookie_id)


class Scrubbing:
    """A bookie whose scrub is under way when it is asked for another one; then it goes as ``steps`` say."""

    def __init__(self, steps: list[dict[str, int]]) -> None:
        self._steps = iter(steps)

    def administer_bookie(self, bookie_id: str, operation: AdminOperation) -> AdministerReply:
        figures = next(self._steps)
        prefix = "scrub_" if operation is AdminOperation.BOOKIE_STATUS else ""
        return AdministerReply(Status.OK, "", {prefix + name: value for name, value in figures.items()})


def _step(runs: int, *, is_running: bool) -> dict[str, int]:
    return {"runs": runs, "is_running": int(is_running), "rows_checked": 5}


def _await(steps: list[dict[str, int]]) -> AdministerReply:
    bookie: Any = Scrubbing(steps)
    waited = commands._WAITED[AdminOperation.SCRUB]
    first = bookie.administer_bookie("b", AdminOperation.SCRUB)
    with ProgressBar() as bar:
        return commands._await_end(bookie, "b", waited, first.figures, bar)


def test_a_run_that_was_under_way_is_not_taken_for_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LOOK_S", 0.0)
    steps = [_step(3, is_running=True), _step(4, is_running=False), _step(4, is_running=True), _step(5, is_running=False)]
    assert _await(steps).figures["scrub_runs"] == 5


def test_a_run_that_failed_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LOOK_S", 0.0)
    monkeypatch.setattr(commands, "BEGIN_S", 0.0)
    with pytest.raises(Exception, match="the bookie's log says why"):
        _await([_step(3, is_running=False), _step(3, is_running=True), _step(3, is_running=False)])
