"""Two tables of messages, row by row and column by column: what Pulsar's own client got, and what ours read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.pulsar.columns import MESSAGE_ID, MESSAGE_SCHEMA

SHOWN = 3
SHOWN_CHARACTERS = 120

BEYOND = 1
"""Messages of a partition that stand behind its last one: see Client.mark."""

Ids = npt.NDArray[np.void]

ID = np.dtype([(field.name, field.type.to_pandas_dtype()) for field in MESSAGE_ID])


def unlike(wanted: pa.Table, found: pa.Table) -> list[str]:
    """One sentence for each kind of difference in a partition; none if both are the same.

    Both are in MESSAGE_SCHEMA, each partition in its own order. One message that ``found`` has behind a partition's last wanted
    one does not count.
    """
    if not found.schema.equals(MESSAGE_SCHEMA):
        return [f"the columns are {found.schema}"]
    partitions = sorted({*topics_of(wanted), *topics_of(found)})
    return [f"{one}: {told}" for one in partitions for told in _unlike(rows_of(wanted, one), rows_of(found, one))]


def topics_of(rows: pa.Table) -> list[str]:
    return [str(one) for one in rows.column("_topic").unique().to_pylist()]


def rows_of(rows: pa.Table, topic: str) -> pa.Table:
    """In their order, in one chunk."""
    return rows.filter(pc.equal(rows.column("_topic"), topic)).combine_chunks()


def ids_of(rows: pa.Table | pa.RecordBatch) -> Ids:
    """Of dtype ``ID``."""
    made = np.empty(rows.num_rows, ID)
    column = rows.column("_message_id")
    for chunk, begin in _chunks(column):
        for name, numbers in zip(ID.names or (), chunk.flatten(), strict=True):
            made[name][begin : begin + len(chunk)] = numbers
    return made


def out_of_order(ids: Ids) -> int:
    """How many are not behind the one before them."""
    before, behind = ids[:-1], ids[1:]
    is_behind = np.zeros(len(behind), bool)
    is_same = np.ones(len(behind), bool)
    for name in ID.names or ():
        is_behind |= is_same & (behind[name] > before[name])
        is_same &= behind[name] == before[name]
    return int(np.count_nonzero(~is_behind))


def _unlike(wanted: pa.Table, found: pa.Table) -> list[str]:
    ids, wanted_ids = ids_of(found), ids_of(wanted)
    told = []
    if unordered := out_of_order(ids):
        told.append(f"{unordered} messages do not come behind the one before them")
    if not np.array_equal(ids[: len(wanted_ids)], wanted_ids):
        told += _other_ids(wanted_ids, ids)
    elif len(ids) > len(wanted_ids) + BEYOND:
        told.append(
            f"{len(ids) - len(wanted_ids)} messages behind the last one, such as {ids[len(wanted_ids) :][:SHOWN].tolist()}"
        )
    shared, places, found_places = np.intersect1d(wanted_ids, ids, return_indices=True)
    wanted, found = wanted.take(pa.array(places)), found.take(pa.array(found_places))
    for name in MESSAGE_SCHEMA.names:
        told += _other_values(name, wanted.column(name), found.column(name), shared)
    return told


def _other_ids(wanted: Ids, found: Ids) -> Iterable[str]:
    for kind, some in (("missing", np.setdiff1d(wanted, found)), ("never received", np.setdiff1d(found, wanted))):
        if len(some) > (0 if kind == "missing" else BEYOND):
            yield f"{len(some)} messages {kind}, such as {some[:SHOWN].tolist()}"


def _other_values(name: str, wanted: pa.ChunkedArray, found: pa.ChunkedArray, ids: Ids) -> Iterable[str]:
    wanted, found = _sorted_map(wanted), _sorted_map(found)
    if wanted.equals(found):
        return
    rows = [row for row, (one, other) in enumerate(zip(wanted, found, strict=True)) if not one.equals(other)]
    shown = [f"{ids[row].tolist()}: {_shown(wanted[row])} is {_shown(found[row])}" for row in rows[:SHOWN]]
    yield f"{name} differs in {len(rows)} messages, such as {'; '.join(shown)}"


def _shown(value: pa.Scalar) -> str:
    return repr(str(value.as_py())[:SHOWN_CHARACTERS])


def _sorted_map(column: pa.ChunkedArray) -> pa.Array:
    """A map with its names in order, so that it does not matter how they were sent; any other column as it is.

    A name that comes twice stays twice: who reads a map expects it once.
    """
    whole = column.combine_chunks()
    if not pa.types.is_map(whole.type):
        return whole
    offsets = np.asarray(whole.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    names, values = (part.slice(first, last - first) for part in (whole.keys, whole.items))
    of_rows = np.repeat(np.arange(len(whole)), np.diff(offsets))
    pairs = pa.table({"row": of_rows, "name": names, "value": values}).sort_by([("row", "ascending"), ("name", "ascending")])
    names, values = (pairs.column(name).combine_chunks() for name in ("name", "value"))
    return pa.MapArray.from_arrays(pa.array(offsets - first), names, values, mask=whole.is_null())


def _chunks(column: pa.Array | pa.ChunkedArray) -> Iterable[tuple[pa.StructArray, int]]:
    begin = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        yield chunk, begin
        begin += len(chunk)
