"""What the model of appends through killed gateways calls a difference."""

from __future__ import annotations

import pytest

from tests.soak.gateway.model import Model, rows_of

ONE, TWO = ("writer-0", 1), ("writer-0", 2)


def differences(*found: tuple[tuple[str, int], int], added: dict[int, int] | None = None) -> list[str]:
    """Where one append of three rows was acknowledged in version 1, another one was not, and the log has these rows."""
    model = Model()
    for name in (ONE, TWO):
        model.begin(name, "orders", 3)
    model.acknowledge(ONE, 1, already=False)
    model.check("orders", [batch for part in found for batch in rows_of(*part).to_batches()], added or {1: 3})
    return model.differences


def test_an_acknowledged_append_once_and_another_one_once_or_not_at_all_are_as_they_must_be() -> None:
    assert differences((ONE, 3)) == []
    assert differences((TWO, 3), (ONE, 3)) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([], "was acknowledged, and log orders has 0 rows"),
        ([(ONE, 2)], "was acknowledged, and log orders has 2 rows"),
        ([(ONE, 3), (ONE, 3)], "was acknowledged, and log orders has 6 rows, 3 of them different"),
        ([(ONE, 3), (TWO, 2)], "was not acknowledged, and log orders has 2 rows"),
        ([(ONE, 3), (TWO, 3), (TWO, 3)], "was not acknowledged, and log orders has 6 rows"),
        ([(ONE, 3), (("nobody", 1), 1)], "which nobody has appended there"),
    ],
)
def test_what_is_lost_doubled_or_there_in_part_is_a_difference(found, says) -> None:
    [difference] = differences(*found)
    assert says in difference


def test_an_acknowledged_append_must_be_what_its_version_has_brought() -> None:
    [difference] = differences((ONE, 3), added={1: 2})
    assert "is not what version 1 of log orders has brought" in difference


def test_an_append_that_is_acknowledged_twice_has_one_version() -> None:
    model = Model()
    model.begin(ONE, "orders", 3)
    for version in (1, 2):
        model.acknowledge(ONE, version, already=version == 2)
    assert len(model.differences) == 1


def test_a_batch_of_the_continuous_writer_is_there_whole_if_it_was_acknowledged_and_once_in_any_case() -> None:
    model = Model()
    model.kept = {ONE}
    model.check_continuous("streamed", [*rows_of(ONE, 3).to_batches(), *rows_of(TWO, 2).to_batches()], 3)
    assert model.differences == []
    model.check_continuous("streamed", [*rows_of(ONE, 2).to_batches(), *(rows_of(TWO, 2).to_batches() * 2)], 3)
    assert len(model.differences) == 2
