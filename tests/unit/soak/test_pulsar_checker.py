"""What judges a run with Pulsar, on records and entries made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from crc32c import crc32c

from tests.soak.pulsar.messages import ALONE, MalformedError, expected, messages
from tests.soak.pulsar.plan import BOOKIE_LOST, BOOKIE_WEIGHTS, BROKER_KILLED, BROKER_WEIGHTS, draw
from tests.soak.pulsar.records import Records, from_rows, judge, unlike
from tests.soak.pulsar.topics import TOPICS

Pair = tuple[int, int]


def records(pairs: Sequence[Pair]) -> Records:
    """Keys and sequences, an entry each."""
    return from_rows((key, sequence, 0, -1, 7, entry) for entry, (key, sequence) in enumerate(pairs))


SENT = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]


def test_what_was_acknowledged_is_accepted_in_any_order_of_different_keys() -> None:
    judged = judge("T", records(SENT), records([(1, 0), (1, 1), (0, 0), (0, 1), (0, 2)]))
    assert (judged.messages, judged.missing, judged.out_of_order, judged.doubled) == (5, 0, 0, 0)
    assert not judged.violations


def test_a_missing_message_is_named() -> None:
    judged = judge("T", records(SENT), records(SENT[:-1]))
    assert judged.missing == 1
    assert judged.violations == ("T: missing 1, such as 0/2",)


def test_a_message_that_nobody_sent_is_named() -> None:
    assert judge("T", records(SENT), records([*SENT, (5, 6)])).violations == ("T: never sent 1, such as 5/6",)


def test_messages_that_come_again_are_counted_and_do_not_break_the_order() -> None:
    judged = judge("T", records(SENT), records([*SENT[:4], *SENT[:4], *SENT]))
    assert (judged.doubled, judged.out_of_order, judged.violations) == (8, 0, ())


def test_doubles_are_wrong_where_the_broker_drops_them() -> None:
    [told] = judge("T", records(SENT), records([*SENT, SENT[0]]), may_double=False).violations
    assert told.startswith("T: doubled 1")


@pytest.mark.parametrize("found", [[(0, 0), (0, 2), (0, 1)], [(0, 1), (0, 0), (0, 2)], [(0, 2), (0, 0), (0, 1), (0, 2)]])
def test_a_first_occurrence_behind_a_later_message_of_its_key_is_out_of_order(found: list[Pair]) -> None:
    sent = [(0, 0), (0, 1), (0, 2)]
    assert judge("T", records(sent), records(found)).out_of_order
    assert not judge("T", records(sent), records(found), is_ordered=False).violations


def test_the_same_messages_at_other_places_are_unlike() -> None:
    assert unlike("T", records(SENT), records(SENT)) == []
    assert len(unlike("T", records(SENT), records(SENT[::-1]))) == 2


def varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def entry(metadata: bytes, payload: bytes) -> bytes:
    behind = struct.pack(">I", len(metadata)) + metadata + payload
    return struct.pack(">HI", 0x0E01, crc32c(behind)) + behind


def test_a_message_alone_is_read() -> None:
    payload = expected("plain", 3, 700)
    [one] = messages(entry(text(1, b"producer") + number(2, 9) + number(3, 1_700_000_000_000) + text(6, b"3"), payload))
    assert (one.key, one.sequence, one.batch, one.payload) == (3, 700, ALONE, payload)


@pytest.mark.parametrize(("code", "codec"), [(1, "lz4_raw"), (3, "zstd")])
def test_a_compressed_batch_is_read(code: int, codec: str) -> None:
    payloads = [expected("lz4", key, 5) for key in range(3)]
    singles = [text(2, str(key).encode()) + number(3, len(payload)) for key, payload in enumerate(payloads)]
    plain = b"".join(struct.pack(">I", len(one)) + one + payload for one, payload in zip(singles, payloads, strict=True))
    packed = pa.Codec(codec).compress(plain, asbytes=True)
    found = list(messages(entry(number(8, code) + number(9, len(plain)) + number(11, 3), packed)))
    assert [(one.key, one.batch, one.payload) for one in found] == [(key, key, payloads[key]) for key in range(3)]


def test_a_flipped_bit_in_an_entry_is_told() -> None:
    whole = entry(text(6, b"3"), expected("plain", 3, 1))
    with pytest.raises(MalformedError):
        list(messages(whole[:-1] + bytes([whole[-1] ^ 1])))


def test_a_seed_draws_the_same_plan_again_and_others_draw_others() -> None:
    assert draw(5, 60_000, 10, 20) == draw(5, 60_000, 10, 20)
    assert len({draw(seed, 60_000, 10, 20) for seed in range(20)}) == 20


def test_two_faults_are_a_lost_bookie_and_a_killed_broker_and_sixty_are_of_every_kind() -> None:
    for seed in range(20):
        small, large = draw(seed, 6_000, 1, 2), draw(seed, 1_000_000, 60, 60)
        assert [one.kind for one in (*small.bookie_faults, *small.broker_faults)] == [BOOKIE_LOST, BROKER_KILLED]
        assert {one.kind for one in large.bookie_faults} == {BOOKIE_LOST, *BOOKIE_WEIGHTS}
        assert {one.kind for one in large.broker_faults} == set(BROKER_WEIGHTS)
        assert sum(one.kind == BOOKIE_LOST for one in large.bookie_faults) == 1
        for lane in (large.bookie_faults, large.broker_faults):
            assert [one.at for one in lane] == sorted(one.at for one in lane)
        assert large.messages * len(TOPICS) >= 1_000_000
