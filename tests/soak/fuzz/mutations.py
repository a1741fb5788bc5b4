"""How a value is spoilt: bytes at random, numbers that lie, and lies inside of JSON and of protobuf messages.

Each mutator takes a seed, the other seeds and a source of chance, and gives back what to try.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import DecodeError, Message

Mutator = Callable[[bytes, Sequence[bytes], random.Random], bytes]

EXTREMES = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    65_535,
    65_536,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
"""Where lengths, counts and ids go wrong."""

MAX_BYTES = 256 * 1024
"""A spoilt value does not grow above this by repetition: what is large has targets of its own."""


def spoil_bytes(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """One to four changes of any kind, anywhere."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_CHANGES)(data, others, chance)
    return data[:MAX_BYTES]


def spoil_end(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """As a torn write leaves it: cut off, or zeros from somewhere on."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + (bytes(len(data) - at) if chance.random() < 0.5 else b"")


def _flip(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    if not data:
        return b"\0"
    out = bytearray(data)
    out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def _lie(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    """An extreme number in the place of another, aligned or not."""
    width, code = chance.choice(((1, "b"), (2, "h"), (4, "i"), (8, "q")))
    if len(data) < width:
        return data
    at = chance.randrange(len(data) - width + 1)
    value = chance.choice(EXTREMES) & ((1 << 8 * width) - 1)
    return data[:at] + struct.pack(chance.choice("<>") + code.upper(), value) + data[at + width :]


def _cut(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _remove(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.choice((1, 1, 4, 8, 64)) :]


def _insert(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(chance.choice((1, 1, 2, 4, 8, 100))) + data[at:]


def _repeat(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    at, size = chance.randrange(len(data) + 1), chance.choice((1, 4, 16, 256))
    return data[:at] + data[at : at + size] * chance.choice((1, 2, 100)) + data[at:]


def _splice(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The beginning of one, the end of another."""
    other = chance.choice(others) if others else data
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _move(data: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    """A stretch of it, over another place of it."""
    if not data:
        return data
    start, at, size = chance.randrange(len(data)), chance.randrange(len(data)), chance.choice((1, 4, 8, 64))
    return data[:at] + data[start : start + size] + data[at + size :]


_CHANGES = (_flip, _flip, _lie, _lie, _cut, _remove, _insert, _repeat, _splice, _move)


# --- JSON

_ODD_VALUES: tuple[Any, ...] = (
    *EXTREMES,
    None,
    True,
    "",
    "x" * 3000,
    "\u0660",
    "\ud800",
    "9" * 5000,
    1.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    10**30,
)


def spoil_json(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """One value of another kind or size, a key gone or added; or broken text, or nesting without end."""
    kind = chance.random()
    if kind < 0.2:
        return spoil_bytes(data, others, chance)
    if kind < 0.23:
        opener = chance.choice((b"[", b'{"a":'))
        return opener * chance.choice((10, 500, 20_000))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return spoil_bytes(data, others, chance)
    return json.dumps(_spoilt(value, chance)).encode(errors="surrogatepass")


def _spoilt(value: Any, chance: random.Random) -> Any:
    """``value``, with one thing inside of it exchanged."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        if chance.random() < 0.1:
            return {one: value[one] for one in value if one != key}
        return {**value, key: _spoilt(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        if chance.random() < 0.1:
            return value[:at] + value[at:] * 2
        return [*value[:at], _spoilt(value[at], chance), *value[at + 1 :]]
    return chance.choice(_ODD_VALUES)


# --- protobuf


def spoil_message(kind: type[Message]) -> Mutator:
    """A mutator for messages of one kind: fields that are extreme, absent, repeated, or from another seed; or broken bytes."""

    def spoil(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
        if chance.random() < 0.3:
            return spoil_bytes(data, others, chance)
        try:
            message = kind.FromString(data)
        except DecodeError:
            return spoil_bytes(data, others, chance)
        for _ in range(chance.choice((1, 1, 2, 3))):
            _spoil_field(message, chance)
        encoded = message.SerializePartialToString()
        return encoded + encoded[: chance.randrange(20)] if chance.random() < 0.05 else encoded

    return spoil


def _spoil_field(message: Message, chance: random.Random) -> None:
    if not message.DESCRIPTOR.fields:
        return
    field = chance.choice(message.DESCRIPTOR.fields)
    if chance.random() < 0.15:
        message.ClearField(field.name)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        _spoil_map(getattr(message, field.name), chance)
    elif field.message_type is not None and not field.is_repeated:
        _spoil_field(getattr(message, field.name), chance)
    elif field.message_type is not None:
        _spoil_repeated(getattr(message, field.name), chance)
    else:
        _set_odd(message, field, chance)


def _spoil_map(entries: Any, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1000))):
        try:
            entries[chance.choice(("", "rack", "x" * 2000, f"k{chance.random()}"))] = chance.choice((*EXTREMES, "a", ""))
        except (TypeError, ValueError):
            continue


def _spoil_repeated(messages: Any, chance: random.Random) -> None:
    kind = chance.random()
    if messages and kind < 0.5:
        _spoil_field(chance.choice(messages), chance)
    elif messages and kind < 0.7:
        messages.append(chance.choice(messages))
    elif messages and kind < 0.8:
        del messages[chance.randrange(len(messages))]
    else:
        _spoil_field(messages.add(), chance)


def _set_odd(message: Message, field: Any, chance: random.Random) -> None:
    """A value that fits the wire's type, if any of the odd ones does."""
    texts = ("", "x" * 600, "\u2028", "a" * 3000, "host:1")
    candidates: list[Any] = [*EXTREMES, chance.randrange(100), *texts, b"", bytes(31), bytes(33), chance.randbytes(40)]
    for value in chance.sample(candidates, len(candidates)):
        try:
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
            return
        except (TypeError, ValueError):
            continue
