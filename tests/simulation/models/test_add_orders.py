"""Adds whose answers come in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bk_spark.client.protocol.state_machine import (
    AddAnswered,
)
from bk_spark.entries.batch import decode
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status
from tests.budget import examples
from tests.unit.client.protocol.writer_model import Writer


@examples(300)
@given(st.data())
def test_in_any_order_of_answers_a_prefix_is_confirmed_and_each_entry_has_its_quorum(data: st.DataObject) -> None:
    """Protocol rule 16, and Qa acks from the write set of each entry, against a model that counts acks by entry."""
    e, w, a = data.draw(st.sampled_from([(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (4, 4, 3)]))
    writer = Writer(e, w, a)
    in_flight: list[tuple[int, list[int], int]] = []
    acked: dict[int, set[int]] = {}
    sizes: list[int] = []
    for _ in range(data.draw(st.integers(1, 25))):
        if in_flight and data.draw(st.booleans()):
            slot, ids, request_id = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
            ok = data.draw(st.integers(0, 9)) > 0
            writer.do(AddAnswered(request_id, Status.OK if ok else Status.UNKNOWN))
            if ok and writer.machine.error is None:
                for entry_id in ids:
                    acked.setdefault(entry_id, set()).add(slot)
        elif writer.machine.error is None:
            count = data.draw(st.integers(1, 7))
            sent = writer.append(*[b"x"] * count, token=len(sizes))
            sizes.append(count)
            in_flight += [(int(b[1:]), decode(s.batch).entry_ids.tolist(), s.request_id) for b, s in sent.items()]
        assert writer.confirmed() == list(range(len(writer.confirmed())))
        for entry_id in range(writer.machine.last_add_confirmed + 1):
            assert len(acked[entry_id] & set(write_set(entry_id, e, w))) >= a
    assert set(writer.confirmed()) | set(writer.rejected()) <= set(range(len(sizes)))
