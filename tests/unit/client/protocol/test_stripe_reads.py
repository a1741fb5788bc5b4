"""What a failed slot means for its stripe: another one reads one entry's residue, or all of them."""

from __future__ import annotations

import pytest

from bk_spark.client.protocol.stripe_reads import Failure, StripeRead, Striping
from bk_spark.wire.messages import Status


@pytest.mark.parametrize(
    ("failures", "failed"),
    [
        ({1: Failure(Status.NO_SUCH_ENTRY, "")}, {1}),
        ({1: Failure(None, "a wrong digest")}, {1}),
        ({1: Failure(Status.UNKNOWN, "")}, {0, 1}),
        ({1: Failure(Status.UNKNOWN, ""), 0: Failure(Status.DAMAGED, "")}, {1}),
    ],
)
def test_another_slot_reads_all_of_a_stripe_only_if_no_failure_is_about_one_entry(
    failures: dict[int, Failure], failed: set[int]
) -> None:
    stripe = StripeRead(1, frozenset({0, 1}), position=4, failures=failures)
    assert stripe.failed_residues(Striping(3, 2)) == failed
