"""Adds of ids that are stored already, against a dict: what is stored under an id never changes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import Status
from tests.budget import examples
from tests.unit.bookie.harness import DIGESTER, payload
from tests.unit.bookie.index.test_look_up import PATTERNS

IDS = 40
SIZE = 300
"""From 14 entries on a batch goes straight into an entry log."""


@dataclass(frozen=True)
class Add:
    first: int
    extent: int
    pattern: IdPattern
    tag: int
    """Stands for the payloads."""
    lac: int
    """That of a writer, or one of two at which recoveries began."""
    recovery: bool
    with_next: bool
    """The next step comes before the sync."""

    @property
    def ids(self) -> list[int]:
        return [one for one in range(self.first, self.first + self.extent) if self.pattern.holds(one)]

    def batch(self) -> EncodedBatch | None:
        ids = range(self.first, self.first + self.extent)
        payloads = pa.array([payload(1, one, SIZE, self.tag) for one in ids], pa.binary())
        before = self.first * SIZE
        sealed = seal(DIGESTER, 1, self.first, payloads, length_before=before, last_add_confirmed=min(self.lac, self.first - 1))
        return encode(sealed, DigestType.CRC32C, self.pattern)

    def is_accepted(self, model: dict[int, tuple[int, int]]) -> bool:
        for one in self.ids:
            tag, lac = model.get(one, (self.tag, self._lac))
            if tag != self.tag or (lac != self._lac and not self.recovery):
                return False
        return True

    def put_into(self, model: dict[int, tuple[int, int]]) -> None:
        before = {one: model.get(one) for one in self.ids}
        if before != dict.fromkeys(self.ids, (self.tag, self._lac)):
            model |= dict.fromkeys(self.ids, (self.tag, self._lac))

    @property
    def _lac(self) -> int:
        return min(self.lac, self.first - 1)


_adds = st.builds(
    Add,
    st.integers(0, IDS - 1),
    st.integers(1, 25),
    st.sampled_from(PATTERNS),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([-1, -1, 0]),
    st.booleans(),
    st.booleans(),
)
_steps = st.lists(st.one_of(_adds, _adds, _adds, st.sampled_from(["checkpoint", "restart", "kill"])), max_size=16)


@examples(80, HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
@given(steps=_steps, journal=st.booleans())
def test_an_id_keeps_its_entry_whatever_is_added_in_whatever_cut(new_harness, steps, journal):
    """Protocol rule 33. A bookie without the journal is stopped where another one is killed."""
    with tempfile.TemporaryDirectory() as directory:
        harness = new_harness(Path(directory))
        harness.start(journal_write_data=journal)
        model: dict[int, tuple[int, int]] = {}
        expected: list[Status] = []
        for step in steps:
            if isinstance(step, Add):
                batch = step.batch()
                if batch is None:
                    continue
                harness.stage(batch, recovery=step.recovery)
                is_accepted = step.is_accepted(model)
                expected.append(Status.OK if is_accepted else Status.BAD_REQUEST)
                if is_accepted:
                    step.put_into(model)
            if not (isinstance(step, Add) and step.with_next):
                assert [reply.status for reply in harness.sync()] == expected
                expected = []
            if step == "checkpoint":
                harness.bookie.storage.checkpoint()
            elif step == "kill" and journal:
                harness.kill()
                harness.start()
            elif step in ("restart", "kill"):
                harness.restart()
        assert [reply.status for reply in harness.sync()] == expected
        for one in range(IDS + 25):
            batches, end = harness.read(1, one, one)
            found = {
                entry_id: (body, lac)
                for batch in batches
                for entry_id, body, lac in zip(
                    batch.entry_ids, batch.payloads.to_pylist(), batch.last_add_confirmed, strict=True
                )
            }
            if one in model:
                tag, lac = model[one]
                assert found == {one: (payload(1, one, SIZE, tag), lac)}
            else:
                assert end.status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
        harness.stop()
