"""``python -m tests.soak.rows.writer``: a process that appends rows until it is killed, and says what was confirmed.

Rows are (key, number): the numbers of each key go up by one. What is confirmed is said as "key number" lines in one write
call each, so a kill loses at most the line that was about to be written.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.bookkeeper import BookKeeper
from bk_spark.log.log_handle import Log

LANES = 3
SCHEMA = pa.schema([("key", pa.int64()), ("number", pa.int64())])
KEYS = 4
ROWS = 37
"""Of an append; not a multiple of KEYS, so that keys differ."""


def rows_from(next_numbers: Counter[int], first: int) -> list[tuple[int, int]]:
    made = []
    for place in range(first, first + ROWS):
        key = place % KEYS
        made.append((key, next_numbers[key]))
        next_numbers[key] += 1
    return made


def table(rows: list[tuple[int, int]]) -> pa.Table:
    return pa.table({"key": [key for key, _ in rows], "number": [number for _, number in rows]}, schema=SCHEMA)


def say(out: int, rows: list[tuple[int, int]]) -> None:
    os.write(out, "".join(f"{key} {number}\n" for key, number in rows).encode())


def append_by_commits(log: Log, out: int, **options: Any) -> None:
    """Each commit has the number of its application version, and is repeated after a kill until it is confirmed."""
    done = [version.application[1] for version in log.versions() if version.application is not None]
    commit = max(done, default=-1) + 1
    next_numbers: Counter[int] = Counter()
    for before in range(commit):
        rows = rows_from(next_numbers, before * ROWS)
    if commit:
        say(out, rows)  # the commit took effect, whether or not its writer lived to hear of it
    while True:
        rows = rows_from(next_numbers, commit * ROWS)
        for _ in range(2):  # the second one must change nothing
            log.append_rows(table(rows), application=("soak", commit), **options)
        say(out, rows)
        commit += 1


def append_as_leader(log: Log, out: int) -> None:
    """Takes the log over, and goes on behind the last number of each key that it finds."""
    with log.open_row_writer(SCHEMA, roll_bytes=20_000, max_delay_s=0.002) as writer:
        log.snapshot()
        found = log.read_rows().read_all()
        next_numbers: Counter[int] = Counter({key: last + 1 for key, last in _last_numbers(found)})
        place = found.num_rows
        while True:
            rows = rows_from(next_numbers, place)
            waiting = [(row, writer.append_async({"key": row[0], "number": row[1]})) for row in rows]
            for row, appended in waiting:
                appended.result(60)
                say(out, [row])
            place += len(rows)


def _last_numbers(found: pa.Table) -> Iterator[tuple[int, int]]:
    for key in pc.unique(found.column("key")).to_pylist():
        yield key, pc.max(found.filter(pc.equal(found.column("key"), key)).column("number")).as_py()


def main() -> None:
    uri, name, kind, path = sys.argv[1:]
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with BookKeeper(uri) as client:
        log = client.open_log(name, create=True)
        if kind == "leader":
            append_as_leader(log, out)
        append_by_commits(log, out, **({"partition_key": "key", "lanes": LANES} if kind == "lanes" else {}))


if __name__ == "__main__":
    main()
