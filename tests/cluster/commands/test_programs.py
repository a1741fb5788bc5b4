"""A short round of ``make commands``: commands as programs, doubled and killed, judged by a model of what they may do."""

from __future__ import annotations

from bk_spark.local.cluster import LocalCluster
from tests.soak.commands.net import net, shown

CASES = 10
"""Of one seed, some ten seconds. The net plays thousands in its hour."""


def test_commands_that_are_killed_or_doubled_leave_what_was_or_what_was_to_be_and_say_so(
    cluster: LocalCluster, tmp_path
) -> None:
    with net(cluster, tmp_path, seed=23, is_shared=True) as one:
        findings = [shown(outcome) for outcome in (one.play() for _ in range(CASES)) if outcome.problems]
    assert findings == []
