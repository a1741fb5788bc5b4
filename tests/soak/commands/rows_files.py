"""Random files of rows, and what an append of them must come to: written down here a second time, apart from the product."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.soak.commands.model import LogState, Row, filled

TYPES = {
    "id": ("bigint", pa.int64()),
    "name": ("string", pa.string()),
    "price": ("double", pa.float64()),
    "day": ("date", pa.date32()),
    "extra": ("bigint", pa.int64()),
}
TYPES |= {f"x{name}": kind for name, kind in TYPES.items()}
"""The columns of files, and of those of something else."""
FORMS = ("parquet", "arrow", "arrows", "csv", "tsv", "json", "csv.gz", "jsonl.gz")
TEXTS = ("csv", "tsv", "json", "csv.gz", "jsonl.gz")
OF_FORMS = {
    "bad value": TEXTS,
    "cut off": ("parquet", "arrows", "csv", "json", "csv.gz"),
    "two in one": ("parquet", "arrow"),
    "more behind": ("parquet", "arrow", "arrows", "csv.gz", "jsonl.gz"),
    "wrong quote": ("csv", "tsv", "csv.gz"),
    "no name": ("csv", "tsv", "csv.gz"),
}
FLAWS = (
    "other case",
    "bad value",
    "cut off",
    "empty",
    "missing",
    "stranger",
    "two in one",
    "more behind",
    "wrong quote",
    "no name",
)


@dataclass(frozen=True, slots=True)
class DrawnFile:
    path: Path
    form: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    flaw: str | None


def draw_files(chance: random.Random, folder: Path, log: LogState | None) -> list[DrawnFile]:
    count = chance.randint(1, 3)
    flawed = chance.randrange(count) if chance.random() < 0.25 else None
    base = ["id", "name", "price", "day"]
    files = []
    for number in range(count):
        columns = list(base)
        if chance.random() < 0.2:
            columns.append("extra")
        if chance.random() < 0.1:
            columns.remove("price")
        flaw = chance.choice(FLAWS) if number == flawed else None
        if flaw in ("bad value", "stranger") and (log is None or not log.columns):
            flaw = "cut off"  # without a known type it would be a string, or a log of its own
        form = chance.choice(FORMS)
        if flaw in OF_FORMS:
            form = chance.choice(OF_FORMS[flaw])
        files.append(_drawn(chance, folder / f"{number}.{form}", form, columns, flaw))
    return files


def wanted_log(
    log: LogState | None, files: list[DrawnFile], *, merge: bool
) -> tuple[tuple[tuple[str, str], ...], tuple[Row, ...]] | None:
    """The columns of the log and the rows that come to it; None where the append must be refused."""
    if any(file.flaw is not None for file in files) or (log is not None and log.is_entries):
        return None
    known = [] if log is None else [name for name, _ in log.columns]
    if not merge and (
        any(set(one.columns) - set(known) for one in files) if known else len({frozenset(one.columns) for one in files}) > 1
    ):
        return None
    names = list(known)
    for file in files:
        names += [name for name in file.columns if name not in names]
    rows = tuple(filled(row, names) for file in files for row in file.rows)
    return tuple((name, TYPES[name][0]) for name in names), rows


def types_option(files: list[DrawnFile]) -> str:
    names = dict.fromkeys(name for file in files if file.form in TEXTS for name in file.columns)
    return ",".join(f"{name}:{TYPES[name][0]}" for name in names)


def _drawn(chance: random.Random, path: Path, form: str, columns: list[str], flaw: str | None) -> DrawnFile:
    rows = [{name: _value(chance, name) for name in columns} for _ in range(chance.randint(1, 40))]
    if flaw == "stranger" and form not in TEXTS:  # it knows its types, so the log may gain its columns
        flaw = None
        rows = [{f"x{name}": value for name, value in row.items()} for row in rows]
        columns = list(rows[0])
    drawn = DrawnFile(path, form, tuple(columns), tuple(tuple(row.items()) for row in rows), flaw)
    if flaw == "missing":
        return drawn
    if flaw == "stranger":
        rows = [{f"y{name}": value for name, value in row.items()} for row in rows]
    if flaw == "other case":
        rows = [{**row, "ID": 1} for row in rows]
    if flaw == "bad value":
        rows[-1]["id"] = chance.choice(["00501", "x", "1.5", "99999999999999999999"])
    if flaw == "no name":
        rows = [{**row, "": None} for row in rows]
    data = _written(rows, form)
    if flaw == "two in one":
        data += data
    if flaw == "more behind":
        data += chance.choice([b"\n", b"garbage", b"\0" * 512])
    if flaw == "wrong quote":
        wrong = chance.choice(['"say \\"hi\\" "', '"a"b', 'a "b" c', '5" pipe', ' "a"'])
        data = _written([*rows, {**rows[-1], "name": _AsItIs(wrong)}], form)
    if flaw == "empty":
        data = b""
    if flaw == "cut off":
        data = data[: len(data) - chance.randint(3, 9)] if form != "csv" else data + b'9,"cut'
    path.write_bytes(data)
    return drawn


def _value(chance: random.Random, name: str) -> Any:
    if name in ("id", "extra"):
        return chance.choice([0, -1, 2**63 - 1, chance.randrange(10**6)])
    if name == "name":
        return "n" + chance.choice(["", ",", '"', "\n", "NA", "ü", "x" * 50])
    if name == "price":
        return chance.choice([0.1, 1.5, -2.25, 1e300, chance.random()])
    return date(2026, 1, 1) + timedelta(days=chance.randrange(365))


def _written(rows: list[dict[str, Any]], form: str) -> bytes:
    kind, _, packed = form.partition(".")
    if kind == "arrows":
        return b"".join(_stream(part, list(rows[0])) for part in (rows[:1], rows[1:]))
    if kind in ("csv", "tsv"):
        mark = "," if kind == "csv" else "\t"
        lines = [mark.join(rows[0]), *(mark.join(_cell(value) for value in row.values()) for row in rows)]
        data = "".join(f"{line}\n" for line in lines).encode()
    elif kind in ("json", "jsonl"):
        data = "".join(f"{json.dumps(row, default=str)}\n" for row in rows).encode()
    else:
        table = _table(rows, list(rows[0]))
        out = pa.BufferOutputStream()
        if kind == "parquet":
            parquet.write_table(table, out)
        else:
            with pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
        data = out.getvalue().to_pybytes()
    return gzip.compress(data) if packed else data


def _table(rows: list[dict[str, Any]], names: list[str]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], TYPES.get(name, (0, None))[1]) for name in names})


def _stream(rows: list[dict[str, Any]], names: list[str]) -> bytes:
    out = pa.BufferOutputStream()
    table = _table(rows, names)
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


class _AsItIs(str):
    """A text of CSV that is written without quotes of our own."""


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    if isinstance(value, _AsItIs):
        return text
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in '",\n\t') else text
