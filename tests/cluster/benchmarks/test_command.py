"""The command that runs workloads."""

from __future__ import annotations

from tests.soak.benchmarks.test_workloads import NAMES, _run


def test_the_names_can_be_listed() -> None:
    listed = _run("--list")
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == NAMES


def test_an_unknown_name_is_refused() -> None:
    refused = _run("no-such-workload")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no-such-workload" in refused.stderr


def test_a_call_that_names_no_workload_says_how_to_name_one() -> None:
    """In place of running nothing with success."""
    refused = _run()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--all" in refused.stderr
    assert "--list" in refused.stderr
