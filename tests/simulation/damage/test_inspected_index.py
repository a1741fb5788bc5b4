"""Flipped bits in an index that is inspected. Ref: docs/rules.md, storage rule 3."""

from __future__ import annotations

import random

from tests.unit.bookie.harness import Harness
from tests.unit.bookie.inspection.test_index import everything, fill, read


def test_whatever_bit_is_flipped_what_is_shown_is_right_or_said_to_be_damaged(harness: Harness) -> None:
    """Storage rule 3, on a fixed sample of bits."""
    fill(harness)
    harness.stop()
    right = read(harness, everything).value
    path = harness.data_dir / "index" / "ledgers.sqlite"
    whole = path.read_bytes()
    sample = random.Random(4)
    for _ in range(50):
        bit = sample.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(flipped))
        reading = read(harness, everything)
        assert reading.problem or reading.value == right, f"bit {bit}"
