"""The schema and the content of a log, from commit to commit."""

from __future__ import annotations

import json

import pytest

from bk_spark.errors import (
    SchemaMismatchError,
)
from bk_spark.log.stored.values import Content
from tests.unit.log.log_requests import overwrite, replacement, schema_json, write


def test_the_schema_of_the_first_commit_is_the_log_s(world):
    write(world, "orders", schema_json=schema_json(id="long", name="string"))
    write(world, "orders", schema_json=schema_json(id="long"))
    snapshot = world.logs.reader.snapshot("orders")
    assert json.loads(snapshot.schema_json) == json.loads(schema_json(id="long", name="string"))
    assert (snapshot.content, snapshot.schema_id) == (Content.ROWS, 0)


def test_an_append_that_does_not_fit_changes_nothing(world):
    write(world, "orders", schema_json=schema_json(id="long"))
    with pytest.raises(SchemaMismatchError):
        write(world, "orders", schema_json=schema_json(id="long", extra="date"))
    assert len(world.logs.reader.all_versions("orders")) == 1


def test_merging_adds_columns_under_a_new_schema_number_and_old_versions_keep_theirs(world):
    write(world, "orders", schema_json=schema_json(id="long"))
    write(world, "orders", schema_json=schema_json(new="date"), merge_schema=True)
    assert json.loads(world.logs.reader.snapshot("orders").schema_json) == json.loads(schema_json(id="long", new="date"))
    assert json.loads(world.logs.reader.snapshot("orders", 1).schema_json) == json.loads(schema_json(id="long"))


def test_a_schema_is_checked_again_against_what_was_committed_meanwhile(world):
    write(world, "orders", schema_json=schema_json(id="long"))
    store, logs = world.scripted()
    meanwhile = store.first(lambda: write(world, "orders", schema_json=schema_json(new="date"), merge_schema=True))
    store.script = [meanwhile]
    with pytest.raises(SchemaMismatchError, match="column 'new' is date in the log and bigint in the data"):
        write(world, "orders", logs=logs, schema_json=schema_json(new="long"), merge_schema=True)


def test_an_overwrite_may_bring_another_schema_and_other_content(world):
    write(world, "orders", schema_json=schema_json(id="long"))
    write(world, "orders", request=overwrite, schema_json=schema_json(id="string"))
    assert json.loads(world.logs.reader.snapshot("orders").schema_json) == json.loads(schema_json(id="string"))
    write(world, "orders", request=overwrite)
    assert world.logs.reader.snapshot("orders").content is Content.ENTRIES
    assert world.logs.reader.snapshot("orders", 2).schema_id == 1


def test_an_overwrite_with_the_same_schema_stores_it_once(world):
    for _ in range(3):
        write(world, "orders", request=overwrite, schema_json=schema_json(id="long"))
    assert world.store.children(world.paths(world.logs.reader.snapshot("orders").uid).schemas) == ["0"]


def test_rows_and_entries_do_not_mix(world):
    write(world, "rows", schema_json=schema_json(id="long"))
    with pytest.raises(SchemaMismatchError, match="the log holds rows and the data is entries"):
        write(world, "rows")
    write(world, "entries")
    with pytest.raises(SchemaMismatchError, match="the log holds entries and the data is rows"):
        write(world, "entries", schema_json=schema_json(id="long"))


def test_a_replacement_keeps_content_and_schema(world):
    a, b = world.plain_ledger(), world.plain_ledger()
    write(world, "orders", a, schema_json=schema_json(id="long"))
    world.logs.commit(world.logs.jobs.begin("orders"), replacement([a], b))
    snapshot = world.logs.reader.snapshot("orders")
    assert (snapshot.content, snapshot.schema_id, snapshot.ledgers) == (Content.ROWS, 0, (b,))
