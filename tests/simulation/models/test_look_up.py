"""Look-ups against a dict."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bk_spark.wire.messages import Status
from tests.budget import examples
from tests.unit.bookie.index.test_look_up import PATTERNS

IDS = 60


_adds = st.tuples(
    st.just("add"), st.integers(0, IDS - 1), st.integers(1, 25), st.sampled_from(PATTERNS), st.sampled_from([5, 400])
)


_steps = st.one_of(_adds, _adds, _adds, st.sampled_from([("checkpoint",), ("restart",), ("kill",)]))


_reads = st.tuples(st.integers(0, IDS), st.integers(0, 30), st.sampled_from(PATTERNS))


@examples(60, HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
@given(steps=st.lists(_steps, max_size=14), reads=st.lists(_reads, min_size=1, max_size=12))
def test_overlapping_striped_and_re_added_batches_answer_as_a_dict_would(new_harness, expected_payload, steps, reads):
    with tempfile.TemporaryDirectory() as directory:
        harness = new_harness(Path(directory))
        harness.start()
        model = {}
        for tag, (verb, *arguments) in enumerate(steps):
            if verb == "add":
                model |= _add(harness, expected_payload, tag, *arguments)
            elif verb == "checkpoint":
                harness.bookie.storage.checkpoint()
            else:
                getattr(harness, "kill" if verb == "kill" else "stop")()
                harness.start()
        for first, extent, pattern in reads:
            _check_read(harness, model, first, first + extent, pattern)
        harness.stop()


def _add(harness, expected_payload, tag, first, extent, pattern, size):
    held = [one for one in range(first, first + extent) if pattern.holds(one)]
    if not held:
        return {}
    assert harness.add_over(1, first, first + extent - 1, size=size, tag=tag, pattern=pattern).status is Status.OK
    return {one: expected_payload(1, one, size, tag) for one in held}


def _check_read(harness, model, first, last, pattern):
    found, end = harness.payloads(1, first, last, pattern=pattern)
    asked = [one for one in range(first, last + 1) if pattern.holds(one)]
    missing = next((one for one in asked if one not in model), None)
    assert all(model[one] == found[one] for one in asked if one in found)
    if not model:
        assert end.status is Status.NO_SUCH_LEDGER
    elif missing is None:
        assert (end.status, end.next_entry_id) == (Status.OK, last + 1)
        assert set(asked) <= set(found)
    else:
        assert (end.status, end.next_entry_id) == (Status.NO_SUCH_ENTRY, missing)
        assert {one for one in asked if one < missing} <= set(found)
