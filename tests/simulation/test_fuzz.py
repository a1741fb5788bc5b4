"""A short form of the fuzzer: a few hundred values for each target, the same in every run.

Ref: docs/rules.md, protocol rules 39 and 50; storage rules 2, 3 and 7.
"""

from __future__ import annotations

import logging

import pytest

from tests.soak.fuzz import every_target
from tests.soak.fuzz.engine import Target, fuzz
from tests.soak.fuzz.mutations import spoil_bytes

CASES = 300
SECONDS = 0.25
"""Of each target; what takes longer has fewer cases."""


@pytest.mark.parametrize("name", every_target())
def test_spoilt_values_are_refused_with_a_clear_error_in_bounded_time_and_memory(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="bk_spark")
    report = fuzz(every_target()[name], 1, seconds=SECONDS, cases=CASES)
    assert not report.findings, "\n".join(str(finding) for finding in report.findings[:3])
    assert report.cases >= 20


def test_the_fuzzer_tells_of_wrong_errors_of_slowness_and_of_memory() -> None:
    held: list[bytes] = []

    def run(data: bytes) -> None:
        if len(data) % 3 == 0:
            raise KeyError("not of the tree")
        if len(data) % 3 == 1:
            held.append(b"x" * (200 << 20))

    report = fuzz(Target("bad", lambda: [b"", b"x", b"xx"], run, spoil_bytes), 1, seconds=0, cases=3)
    told = " ".join(finding.what for finding in report.findings)
    assert "KeyError" in told
    assert "MiB" in told
    assert report.accepted == 2
