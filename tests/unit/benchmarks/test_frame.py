"""The frame of the benchmarks: turns, ratios, percentiles, results as JSON, and the page."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest

from benchmarks.speed.environment import Environment
from benchmarks.speed.measure import Claim, Entrant, Result, Sample, alternate, claim, in_series, percentile
from benchmarks.speed.pacing import at_rate, latency_figures
from benchmarks.speed.page import anchor, notes_of, page
from benchmarks.speed.report import newest, write
from benchmarks.speed.results import Report, from_json, to_json

MACHINE = Environment(
    "a cpu", 2, 8.0, "Linux 6", "ext4 on /dev/x", "3.11", "4.3", "26", "1.8", "17", "0.1", "abc", "0.1 0.2 0.3"
)
SLOW = Claim("ours against theirs", 0.5, 0.4, 0.6, 2.0)
SMALLER = Claim("bytes of ours", 1.05, 1.0, 1.1, 1.1, at_least=False)
RESULT = Result(
    "adds-1KiB",
    "adds of entries",
    {
        "bk_spark": [Sample(1.0, 1000, 1_000_000, {"p99_ms": 2.5}), Sample(2.0, 1000, 1_000_000, {"p99_ms": 3.5})],
        "disk": [Sample(0.5, 10, 1_000_000), Sample(0.25, 10, 1_000_000)],
    },
    [SLOW, SMALLER],
    ["How it was set."],
)
REPORT = Report(MACHINE, small=False, runs=2, seed=1, results=[RESULT])


def _entrant(name: str, order: list[str]) -> Entrant:
    def run(turn: int) -> Sample:
        order.append(f"{name}{turn}")
        return Sample(1.0, turn, 0)

    return Entrant(name, run)


def _turns(names: str, rounds: int) -> list[str]:
    """Who runs, round by round."""
    order: list[str] = []
    alternate([_entrant(name, order) for name in names], runs=rounds, warmups=0)
    told = [name[0] for name in order]
    return ["".join(told[start : start + len(names)]) for start in range(0, len(told), len(names))]


def test_a_sample_is_kept_of_each_round_and_none_of_a_warm_up() -> None:
    samples = alternate([_entrant("a", []), _entrant("b", [])], runs=3, warmups=1)
    assert {name: [one.rows for one in each] for name, each in samples.items()} == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_every_other_round_reverses_the_one_before() -> None:
    rounds = _turns("abcdef", 8)
    assert [one[::-1] for one in rounds[::2]] == rounds[1::2]
    assert {frozenset(one) for one in rounds} == {frozenset("abcdef")}


def test_a_contestant_follows_several_others_and_each_time_the_same_ones() -> None:
    rounds = _turns("abcdef", 8)
    followed = "".join(rounds)
    for name in "abcdef":
        assert len({before for before, one in itertools.pairwise(followed) if one == name}) >= 4
    assert rounds == _turns("abcdef", 8)


def test_a_claim_is_the_median_of_the_ratios_of_each_round() -> None:
    """Not the ratio of the medians, 20/20: the second round was slow for both."""
    found = claim("ours against theirs", [10.0, 20.0, 90.0], [20.0, 10.0, 30.0], 2.0)
    assert (found.ratio, found.lowest, found.highest) == (2.0, 0.5, 3.0)
    assert found.is_met


def test_rounds_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        claim("ours against theirs", [1.0, 2.0], [1.0], 2.0)


@pytest.mark.parametrize(
    ("ratio", "at_least", "met"), [(2.0, True, True), (1.9, True, False), (2.0, False, True), (2.1, False, False)]
)
def test_a_claim_is_met_up_to_what_is_wanted(ratio: float, at_least: bool, met: bool) -> None:
    assert Claim("", ratio, ratio, ratio, 2.0, at_least).is_met is met


def test_rates_in_series() -> None:
    assert in_series(100.0, 100.0) == pytest.approx(50.0)
    assert in_series(30.0, 60.0, 20.0) == pytest.approx(10.0)


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    hundred = [float(number) for number in range(100, 0, -1)]
    assert [percentile(hundred, percent) for percent in (0, 1, 50, 50.5, 99, 99.9, 100)] == [1, 1, 50, 51, 99, 100, 100]
    assert percentile([7.0], 50) == 7.0


def test_latency_figures_are_in_milliseconds() -> None:
    assert latency_figures([0.001] * 98 + [0.1, 0.2]) == pytest.approx({"p50_ms": 1.0, "p99_ms": 100.0, "p999_ms": 200.0})


def test_times_that_are_late_are_given_at_once_and_keep_to_the_schedule() -> None:
    started, given = time.perf_counter(), []
    for intended in at_rate(4, 100.0):
        given.append(intended)
        if len(given) == 1:
            time.sleep(0.05)
    assert [later - given[0] for later in given] == pytest.approx([0.0, 0.01, 0.02, 0.03])
    assert time.perf_counter() - started >= 0.05


def test_a_report_is_the_same_after_json() -> None:
    assert from_json(to_json(REPORT)) == REPORT


def test_results_of_another_format_version_are_refused() -> None:
    newer = json.dumps({**json.loads(to_json(REPORT)), "version": 2})
    with pytest.raises(ValueError, match="version 2"):
        from_json(newer)


def test_the_page_says_what_was_reached_and_what_was_not() -> None:
    text = page([REPORT], {})
    assert "| [adds-1KiB](#adds-1kib) | ours against theirs | ≥ 2 | 0.50 (0.40 to 0.60) | **not reached** |" in text
    assert "| [adds-1KiB](#adds-1kib) | bytes of ours | ≤ 1.1 | 1.05 (1.00 to 1.10) | yes |" in text
    assert "| bk_spark | 1.5 (1 to 2) | 750 (500 to 1,000) | 0.75 (0.5 to 1) | 3 (2.5 to 3.5) |" in text
    assert "mean nothing" not in text


def test_the_page_has_what_people_wrote_about_a_workload() -> None:
    notes = notes_of("# Notes\n\n## Summary\n\nall in all\n\n## adds-1KiB\n\nwhy it is slow\n\nand more\n")
    assert notes == {"Summary": "all in all", "adds-1KiB": "why it is slow\n\nand more"}
    text = page([REPORT], notes)
    assert text.index("all in all") < text.index("## Machine") < text.index("How it was set.") < text.index("why it is slow")


def test_the_last_report_that_has_a_workload_counts() -> None:
    other = Result("reads", "reads", {"bk_spark": [Sample(1.0, 1, 1)]})
    first = Report(MACHINE, small=False, runs=5, seed=1, results=[RESULT, other])
    assert [[one.name for one in report.results] for report in newest([first, REPORT])] == [["reads"], ["adds-1KiB"]]
    assert newest([REPORT, REPORT])[-1] == REPORT


def test_page_and_drawings_are_the_same_each_time(tmp_path: Path) -> None:
    for out in (tmp_path / "one", tmp_path / "two"):
        out.mkdir()
        (out / "benchmarks-notes.md").write_text("## adds-1KiB\n\nwhy it is slow\n")
        write([REPORT], out, out / "build")
    files = [path.relative_to(tmp_path / "one") for path in sorted((tmp_path / "one").rglob("*.*"))]
    assert [str(path) for path in files] == [
        "benchmarks/claims.svg",
        "benchmarks-notes.md",
        "benchmarks.md",
        "build/adds-1kib.svg",
    ]
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in files)
    assert "why it is slow" in (tmp_path / "one" / "benchmarks.md").read_text()


def test_a_heading_is_linked_as_markdown_does() -> None:
    assert anchor("adds 100 B, 3/3/2") == "adds-100-b-332"
