"""Which CRC-32C: `crc32c` or `google-crc32c`, and when does numpy beat a C call an entry?

The digest of an entry is the CRC of its payload continued over a header of 32 bytes.  Payloads
are cut from one large buffer that arrived as one message, so a call counts with the cutting, and
a library that takes no memoryview counts with the copy it forces.  Measured, in turn:

* nanoseconds an entry for payload and header, by library and by the kind of buffer cut from;
* GB/s over one large buffer of each kind, which also shows whether a kind is copied first;
* whether the GIL is released: two threads against one, and calls beside a busy Python thread,
  where a library that lets go of the GIL in a short call waits a switch interval to get it back;
* the header part alone for N entries at once: a C call an entry against numpy lookups, by eight
  bytes a step (slicing by 8), by all 32 (no step waits for another), and by only those bytes
  that differ among the entries (the CRC is linear over GF(2), so what is constant is done once).
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.metadata
import os
import platform
import statistics
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import crc32c
import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words: TypeAlias = npt.NDArray[np.uint32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Extend: TypeAlias = Callable[[Any, int], int]

HEADER_BYTES = 32
STATE_BYTES = 4
REFLECTED_POLYNOMIAL = 0x82F63B78
ALL_ONES = np.uint32(0xFFFFFFFF)
MIB = 1024 * 1024


@dataclass(frozen=True)
class Scale:
    """How much of everything to measure."""

    runs: int
    entries: int
    large_calls: int
    contended_calls: int


FULL = Scale(runs=7, entries=10_000, large_calls=200, contended_calls=300)
SMALL = Scale(runs=3, entries=1_000, large_calls=20, contended_calls=20)


# --- the libraries ----------------------------------------------------------------------------


LIBRARIES: dict[str, Extend] = {
    "crc32c": crc32c.crc32c,
    "crc32c, GIL kept": lambda data, value: crc32c.crc32c(data, value, 0),
    "google": lambda data, value: google_crc32c.extend(value, data),
}


def cut_buffer(source: Any) -> Callable[[int, int], Any]:
    """How to cut [start, end) from `source` the way its type does it."""
    if isinstance(source, pa.Buffer):
        return lambda start, end: source.slice(start, end - start)
    return lambda start, end: source[start:end]


def sources(data: bytes) -> dict[str, Any]:
    return {
        "bytes": data,
        "memoryview": memoryview(data),
        "pyarrow.Buffer": pa.py_buffer(data),
        "numpy": np.frombuffer(data, np.uint8),
        "bytearray": bytearray(data),
    }


def accepts(extend: Extend, data: Any) -> bool:
    try:
        extend(data, 0)
    except TypeError:
        return False
    return True


def crc_entries_google(cut: Callable[[int, int], Any], bounds: Sequence[tuple[int, int]], header: bytes, copy: bool) -> int:
    extend, value = google_crc32c.extend, 0
    for start, end in bounds:
        data = cut(start, end)
        value = extend(extend(0, bytes(data) if copy else data), header)
    return value


def crc_entries_crc32c(cut: Callable[[int, int], Any], bounds: Sequence[tuple[int, int]], header: bytes, copy: bool) -> int:
    extend, value = crc32c.crc32c, 0
    for start, end in bounds:
        data = cut(start, end)
        value = extend(header, extend(bytes(data) if copy else data))
    return value


# --- numpy ------------------------------------------------------------------------------------


def contribution_tables(length: int) -> Words:
    """Row i: what each value of byte i of a block of `length` adds to the CRC state after it."""
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = (state >> np.uint32(1)) ^ (state & np.uint32(1)) * np.uint32(REFLECTED_POLYNOMIAL)
    one = state.copy()
    rows = [one]
    for _ in range(length - 1):
        rows.append(one[rows[-1] & np.uint32(0xFF)] ^ (rows[-1] >> np.uint32(8)))
    return np.stack(rows[::-1])


TABLES_8 = contribution_tables(8)
TABLES_32 = contribution_tables(HEADER_BYTES)


def look_up(tables: Words, blocks: Bytes, state: Words) -> Words:
    """The state after one block for each row of `blocks`, a block as long as `tables`."""
    mixed = blocks.T.copy()
    mixed[:STATE_BYTES] ^= state.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4).T
    after = np.zeros(len(blocks), np.uint32)
    for table, column in zip(tables, mixed, strict=True):
        after ^= table[column]
    return after


def numpy_by_8(headers: Bytes, values: Sequence[int]) -> Words:
    state = np.array(values, np.uint32) ^ ALL_ONES
    for start in range(0, HEADER_BYTES, 8):
        state = look_up(TABLES_8, headers[:, start : start + 8], state)
    return state ^ ALL_ONES


def numpy_by_32(headers: Bytes, values: Sequence[int]) -> Words:
    state = np.array(values, np.uint32) ^ ALL_ONES
    return look_up(TABLES_32, headers, state) ^ ALL_ONES


def numpy_linear(headers: Bytes, values: Sequence[int]) -> Words:
    """crc(payload + header) = shift(crc(payload)) ^ crc(header), constant bytes done once."""
    shifted = np.array(values, np.uint32).view(np.uint8).reshape(-1, STATE_BYTES).T
    first = headers[0]
    after = np.full(len(headers), crc32c.crc32c(first), np.uint32)
    for table, column in zip(TABLES_32[:STATE_BYTES], shifted, strict=True):
        after ^= table[column]
    for index in np.flatnonzero((headers != first).any(axis=0)):
        after ^= TABLES_32[index][headers[:, index] ^ first[index]]
    return after


def c_call_each(headers: Bytes, values: Sequence[int]) -> list[int]:
    extend, view = crc32c.crc32c, headers.data.cast("B")
    starts = range(0, len(view), HEADER_BYTES)
    return [extend(view[start : start + HEADER_BYTES], value) for start, value in zip(starts, values, strict=True)]


def google_call_each(headers: Bytes, values: Sequence[int]) -> list[int]:
    extend, data = google_crc32c.extend, headers.tobytes()
    starts = range(0, len(data), HEADER_BYTES)
    return [extend(value, data[start : start + HEADER_BYTES]) for start, value in zip(starts, values, strict=True)]


HEADER_METHODS: dict[str, Callable[[Bytes, Sequence[int]], Any]] = {
    "crc32c call each": c_call_each,
    "google call each": google_call_each,
    "numpy by 8": numpy_by_8,
    "numpy by 32": numpy_by_32,
    "numpy linear": numpy_linear,
}


def consecutive_headers(count: int, payload_bytes: int) -> Bytes:
    """Headers as a writer makes them: one ledger, entry ids and lengths that count up."""
    packed = b"".join(struct.pack(">qqqq", 7, 1_000 + i, 999, (1_000 + i) * payload_bytes) for i in range(count))
    return np.frombuffer(packed, np.uint8).reshape(count, HEADER_BYTES)


# --- what is measured -------------------------------------------------------------------------


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def in_turn(actions: Mapping[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The median seconds of each action, all of them run once in every round."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(runs):
        for name, action in actions.items():
            times[name].append(seconds(action))
    return {name: statistics.median(values) for name, values in times.items()}


def print_ratios(title: str, medians: dict[str, float], units: float, unit: str) -> None:
    """`units` is what a median in seconds is multiplied by; the ratio is to the first."""
    first = next(iter(medians.values()))
    print(f"\n{title}")
    for name, median in medians.items():
        print(f"  {name:44}{median * units:12,.1f} {unit}  ({median / first:.2f}x)")


def measure_entries(payload_bytes: int, scale: Scale) -> None:
    data = os.urandom(payload_bytes * scale.entries)
    header = bytes(range(HEADER_BYTES))
    starts = range(0, len(data), payload_bytes)
    bounds = [(start, start + payload_bytes) for start in starts]
    actions: dict[str, Callable[[], object]] = {}
    for library, crc_entries in (("crc32c", crc_entries_crc32c), ("google", crc_entries_google)):
        for kind in ("memoryview", "bytes", "pyarrow.Buffer"):
            source = sources(data)[kind]
            cut = cut_buffer(source)
            copy = not accepts(LIBRARIES[library], source)
            name = f"{library}, {kind}" + (", copied to bytes" if copy else "")
            actions[name] = functools.partial(crc_entries, cut, bounds, header, copy)
    title = f"payload of {payload_bytes} B cut from a {len(data) / 1e6:.0f} MB buffer, then header"
    print_ratios(title, in_turn(actions, scale.runs), 1e9 / scale.entries, "ns/entry")


def measure_large(scale: Scale) -> None:
    data = os.urandom(MIB)
    actions: dict[str, Callable[[], object]] = {}
    for library in ("crc32c", "google"):
        for kind, source in sources(data).items():
            if accepts(LIBRARIES[library], source):
                actions[f"{library}, {kind}"] = repeated(LIBRARIES[library], source, scale.large_calls)
            else:
                print(f"  {library} refuses {kind}")
    medians = in_turn(actions, scale.runs)
    print("\n1 MiB")
    for name, median in medians.items():
        print(f"  {name:44}{scale.large_calls * MIB / 1e9 / median:12,.1f} GB/s")


def repeated(extend: Extend, data: Any, count: int) -> Callable[[], None]:
    def call() -> None:
        for _ in range(count):
            extend(data, 0)

    return call


def in_two_threads(action: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        threads = [threading.Thread(target=action) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return call


def measure_gil(scale: Scale) -> None:
    data = os.urandom(MIB)
    print("\nspeed of two threads against one, 1 MiB calls")
    for library, extend in LIBRARIES.items():
        one = repeated(extend, data, scale.large_calls)
        medians = in_turn({"one": one, "two": in_two_threads(one)}, scale.runs)
        print(f"  {library:44}{2 * medians['one'] / medians['two']:12.2f}x")


def measure_contended(scale: Scale) -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    actions = {library: repeated(extend, bytes(64 * 1024), scale.contended_calls) for library, extend in LIBRARIES.items()}
    try:
        medians = in_turn(actions, scale.runs)
    finally:
        stop.set()
        thread.join()
    title = "64 KiB calls beside a busy Python thread"
    print_ratios(title, medians, 1e6 / scale.contended_calls, "us/call")


def check_agreement(headers: Bytes, values: Sequence[int]) -> None:
    """Raise unless every way to continue the CRCs gives the same."""
    expected = c_call_each(headers, values)
    for name, continued in HEADER_METHODS.items():
        if list(map(int, continued(headers, values))) != expected:
            raise AssertionError(f"{name} gives another CRC")


def measure_headers(scale: Scale) -> None:
    for count in (1, 16, 64, 128, 256, 512, 10_000):
        headers = consecutive_headers(count, 400)
        values = [crc32c.crc32c(os.urandom(8)) for _ in range(count)]
        check_agreement(headers, values)
        repeats = max(1, 10 * scale.entries // max(count, 100))
        actions = {name: header_loop(continued, headers, values, repeats) for name, continued in HEADER_METHODS.items()}
        title = f"header part, {count} entries at once"
        print_ratios(title, in_turn(actions, scale.runs), 1e9 / repeats / count, "ns/entry")


def header_loop(
    continued: Callable[[Bytes, Sequence[int]], Any],
    headers: Bytes,
    values: Sequence[int],
    repeats: int,
) -> Callable[[], None]:
    def call() -> None:
        for _ in range(repeats):
            continued(headers, values)

    return call


def print_environment() -> None:
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("crc32c", "google-crc32c", "numpy", "pyarrow")
    )
    print(f"python {platform.python_version()}, {versions}")
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
    print(f"crc32c in hardware: {crc32c.hardware_based}, google: {google_crc32c.implementation}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="little of everything, in seconds")
    scale = SMALL if parser.parse_args().small else FULL
    print_environment()
    gc.disable()
    for payload_bytes in (100, 1024):
        measure_entries(payload_bytes, scale)
    measure_large(scale)
    measure_gil(scale)
    measure_contended(scale)
    measure_headers(scale)


if __name__ == "__main__":
    main()
