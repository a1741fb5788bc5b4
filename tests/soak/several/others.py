"""What others do to the logs while a transaction or a write is under way. It always succeeds."""

from __future__ import annotations

from tests.soak.several.model import LogModel, RefusedError, Version, row_change
from tests.soak.several.shapes import table_of
from tests.soak.several.stage import Stage

_KINDS = ("append", "append", "append", "overwrite", "make", "delete")


def make_some(stage: Stage) -> None:
    """The logs that a history begins with: one of entries or empty, the others with rows."""
    first, *rest = stage.chance.sample(stage.names, stage.chance.choice((3, 4, 5)))
    stage.client.open_log(first, create=True)
    stage.world.logs[first] = LogModel((Version(stage.now_ms),))
    for name in rest:
        _write(stage, name, "append")
    stage.committed()


def change_a_log(stage: Stage) -> None:
    chance, client, world = stage.chance, stage.client, stage.world
    name, kind = chance.choice(stage.names), chance.choice(_KINDS)
    log = world.logs.get(name)
    if kind == "delete":
        if log is not None and chance.random() < 0.5:
            client.open_log(name).delete()
            del world.logs[name]
    elif kind == "make":
        if log is None:
            client.open_log(name, create=True)
            world.logs[name] = LogModel((Version(stage.now_ms),))
    else:
        _write(stage, name, kind)
    stage.committed()


def _write(stage: Stage, name: str, kind: str) -> None:
    columns = stage.columns_for(name)
    asked = stage.asked_for(name)
    try:
        change = row_change(kind, stage.world.logs.get(name), None, columns, asked)
    except RefusedError:
        return
    rows = stage.rows(columns, stage.chance.choice((0, 1, 4)))
    key = "k" if asked.key else None
    with stage.client.transaction() as transaction:
        write = transaction.overwrite if kind == "overwrite" else transaction.append_rows
        write(name, table_of(rows, columns), create=True, merge_schema=asked.merge, partition_key=key, lanes=asked.lanes)
    stage.world.commit({name: change.with_rows(rows)}, None, stage.now_ms)
