"""The fixtures of the unit tests of a bookie."""

from tests.unit.bookie.harness import (
    _no_log_of_a_dead_bookie_stays_open,
    _records_of_a_few_kilobytes_are_aligned,
    expected_payload,
    harness,
    held_background,
    new_harness,
)

__all__ = [
    "_no_log_of_a_dead_bookie_stays_open",
    "_records_of_a_few_kilobytes_are_aligned",
    "expected_payload",
    "harness",
    "held_background",
    "new_harness",
]
