"""Reads with one good replica in every write set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import (
    BookKeeperError,
)
from bk_spark.wire.messages import Status
from tests.budget import examples
from tests.unit.client.protocol.reader_model import (
    SILENT,
    Late,
    Replica,
    damaged_from,
    ending_before,
    failing,
    healthy,
    reader_of,
    small_answers,
    without,
)


@examples(200)
@given(st.data())
def test_with_one_good_replica_in_every_write_set_everything_is_read(data: st.DataObject) -> None:
    e, w = data.draw(st.sampled_from([(3, 3), (3, 2), (4, 2), (5, 3), (4, 3)]))
    kinds: list[Replica | Late] = [
        failing(Status.UNKNOWN),
        small_answers,
        SILENT,
        damaged_from(11),
        without(7),
        ending_before(9, Status.NO_SUCH_ENTRY),
    ]
    replicas: list[Replica | Late] = [data.draw(st.sampled_from([healthy, small_answers, *kinds])) for _ in range(e)]
    good = [replica in (healthy, small_answers) for replica in replicas]
    readable = all(any(good[(r + k) % e] for k in range(w)) for r in range(e))
    reader = reader_of(*replicas, e=e, w=w)
    if readable:
        assert reader.read(0, 30) == list(range(31))
    else:
        try:
            assert reader.read(0, 30) == list(range(31))
        except BookKeeperError:
            assert reader.delivered == list(range(len(reader.delivered)))
