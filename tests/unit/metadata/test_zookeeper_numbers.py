"""The number of a znode's next sequential child, from ZooKeeper's 32-bit counters."""

from __future__ import annotations

import pytest
from kazoo.protocol.states import ZnodeStat

from bk_spark.metadata.zookeeper import _versioned


@pytest.mark.parametrize("children", [0, 1, 900])
@pytest.mark.parametrize("creations", [900, 2**30 - 1, 2**30, 2**30 + 500, 2**31 - 1])
def test_the_next_number_is_that_of_the_creations_so_far_even_if_the_counter_has_overflowed(
    creations: int, children: int
) -> None:
    twice = (2 * creations - children) % 2**32
    cversion = twice - 2**32 if twice >= 2**31 else twice
    stat = ZnodeStat(0, 0, 0, 0, 0, cversion, 0, 0, 0, children, 0)
    assert _versioned((b"", stat)).next_sequence == creations
