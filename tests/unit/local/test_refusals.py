from __future__ import annotations

from pathlib import Path

from bk_spark.errors import ConfigError, ProcessFailedError
from bk_spark.local.refusals import RefusedBookie, reason_of

FAILED = ProcessFailedError(
    "bookie-2", "ended with exit status 1", "a.log", "INFO one\nbk-spark: run 'bk-spark cookie fix b-1'\n"
)


def test_the_reason_is_what_the_process_said_last() -> None:
    assert reason_of(FAILED) == "it ended with exit status 1: run 'bk-spark cookie fix b-1'"
    assert reason_of(ConfigError("a", "b", "c")) == "a is 'b': c"


def test_a_refused_bookie_is_told_with_the_whole_command_that_repairs_it() -> None:
    told = RefusedBookie("bookie-2", "b-1", Path("/d/bookie-2/data"), reason_of(FAILED)).told("embedded:/d")
    assert "without bookie-2 (b-1): it ended" in told
    assert told.endswith("(here: bk-spark cookie fix b-1 --data-dir /d/bookie-2/data --metadata embedded:/d)")
    assert "here:" not in RefusedBookie("bookie-2", "b-1", Path("/d"), "no space").told("embedded:/d")


def test_a_bookie_whose_directory_does_not_say_its_id_is_told_by_name() -> None:
    assert "without bookie-2: no" in RefusedBookie("bookie-2", "", Path("/d"), "no").told("embedded:/d")
