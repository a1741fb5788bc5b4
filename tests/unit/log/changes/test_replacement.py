"""What a commit removes: log rule 4. Ref: docs/rules.md, "Logs"."""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, MetadataConflictError, MetadataUnavailableError, NoSuchLogError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from tests.unit.log.log_requests import append, ids, overwrite, replacement, write


def test_an_overwrite_removes_what_is_listed_at_its_commit(world):
    write(world, "orders")
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders"))]
    version = write(world, "orders", request=overwrite, logs=logs)
    assert (version.removed.ledgers, version.total.ledgers) == (2, 1)
    assert len(world.listed("orders")) == 1
    assert len(world.listed("orders", 2)) == 2


def test_an_overwrite_with_nothing_empties_the_log(world):
    write(world, "orders")
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, overwrite())
    assert world.listed("orders") == []


def test_a_replacement_keeps_its_place_and_all_that_others_append_meanwhile(world):
    """Log rule 4: compaction reads its ledgers, someone appends, compaction writes."""
    a, b, c, d = (world.plain_ledger() for _ in range(4))
    late, small = world.plain_ledger(), world.plain_ledger()
    write(world, "orders", a, b, c, d)
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders", late))]
    version = logs.commit(logs.jobs.begin("orders"), replacement([b, c], small))
    assert world.listed("orders") == ids(a, small, d, late)
    assert (version.removed.ledgers, version.total.ledgers) == (2, 4)


def test_a_replacement_fails_when_what_it_removes_was_removed_meanwhile(world):
    a, b = world.plain_ledger(), world.plain_ledger()
    write(world, "orders", a, b)
    store, logs = world.scripted()
    store.script = [store.first(lambda: world.logs.commit(world.logs.jobs.begin("orders"), replacement([b])))]
    with pytest.raises(MetadataConflictError, match=f"it does not list ledger {b.ledger_id}"):
        logs.commit(logs.jobs.begin("orders"), replacement([a, b], world.plain_ledger()))


def test_a_replacement_fails_when_what_it_removes_is_not_one_stretch(world):
    a, b, c = (world.plain_ledger() for _ in range(3))
    write(world, "orders", a, b, c)
    for remove in ([a, c], [b, a]):
        with pytest.raises(MetadataConflictError, match="not one stretch"):
            world.logs.commit(world.logs.jobs.begin("orders"), replacement(remove, world.plain_ledger()))


def test_a_replacement_in_an_empty_log_is_refused(world):
    world.logs.open("orders", create=True)
    with pytest.raises(MetadataConflictError):
        world.logs.commit(world.logs.jobs.begin("orders"), replacement([world.plain_ledger()]))


def remove(world, kind, removed, *ledgers, logs=None):
    logs = logs or world.logs
    request = CommitRequest(kind, tuple(ledgers), remove=tuple(one.ledger_id for one in removed))
    return logs.commit(logs.jobs.begin("orders"), request)


def truncate(world, ledger, logs=None):
    return (logs or world.logs).truncate("orders", world.logs.names.uid("orders"), ledger.ledger_id)


def test_a_compaction_keeps_its_place_the_rows_and_all_that_others_append_meanwhile(world):
    """Log rule 4."""
    a, b, c = (world.plain_ledger() for _ in range(3))
    late, large = world.plain_ledger(), world.plain_ledger(20)
    write(world, "orders", a, b, c)
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders", late))]
    version = remove(world, CommitKind.COMPACT, [a, b], large, logs=logs)
    assert world.listed("orders") == ids(large, c, late)
    assert (version.end_row, version.replaced_version, version.total.rows) == (40, 0, 40)
    assert world.listed("orders", 1) == ids(a, b, c)


def test_a_compaction_fails_when_what_it_removes_was_truncated_meanwhile(world):
    """Log rule 4."""
    a, b, c = (world.plain_ledger() for _ in range(3))
    write(world, "orders", a, b, c)
    store, logs = world.scripted()
    store.script = [store.first(lambda: truncate(world, b))]
    with pytest.raises(MetadataConflictError, match=f"it does not list ledger {a.ledger_id}"):
        remove(world, CommitKind.COMPACT, [a, b], world.plain_ledger(20), logs=logs)
    assert world.listed("orders") == ids(b, c)


def test_a_compaction_to_another_number_of_rows_is_refused(world):
    write(world, "orders", a := world.plain_ledger(), b := world.plain_ledger())
    with pytest.raises(ConfigError, match=r"in the place of 20 is 19: a compaction keeps the rows"):
        remove(world, CommitKind.COMPACT, [a, b], world.plain_ledger(19))


def test_a_replacement_counts_all_rows_anew_as_a_stream_reads_the_whole_content_again(world):
    write(world, "orders", a := world.plain_ledger(), world.plain_ledger())
    version = remove(world, CommitKind.REPLACE, [a], world.plain_ledger(3))
    assert (version.end_row, version.total.rows, version.replaced_version) == (33, 13, 2)
    head = world.logs.names.head("orders", world.logs.names.uid("orders"))
    assert (head.first_row, head.replaced_version) == (20, 2)


def test_a_truncation_removes_what_stands_before_a_ledger_whatever_is_appended_meanwhile(world):
    """Log rule 4."""
    a, b, c, late = (world.plain_ledger() for _ in range(4))
    write(world, "orders", a, b, c)
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders", late))]
    version = truncate(world, c, logs)
    assert world.listed("orders") == ids(c, late)
    assert (version.kind, version.removed.ledgers, version.pages) == (CommitKind.TRUNCATE, 2, 0)
    head = world.logs.names.head("orders", world.logs.names.uid("orders"))
    assert (head.first_row, head.end_row, head.base_version) == (20, 40, 0)
    assert world.listed("orders", 1) == ids(a, b, c)


def test_a_truncation_before_the_first_ledger_makes_no_version(world):
    write(world, "orders", a := world.plain_ledger(), world.plain_ledger())
    first = truncate(world, a)
    assert (first.version, first.kind) == (1, CommitKind.APPEND)
    assert world.logs.names.head("orders", world.logs.names.uid("orders")).version == 1


def test_of_two_truncations_at_once_the_second_has_nothing_to_do(world):
    write(world, "orders", world.plain_ledger(), b := world.plain_ledger())
    store, logs = world.scripted()
    store.script = [store.first(lambda: truncate(world, b))]
    assert truncate(world, b, logs).version == 2
    assert world.logs.names.head("orders", world.logs.names.uid("orders")).version == 2


def test_a_truncation_before_a_ledger_that_is_not_listed_is_refused(world):
    write(world, "orders", world.plain_ledger())
    with pytest.raises(MetadataConflictError, match="it does not list ledger 4711, before which"):
        truncate(world, CommittedLedger(4711, 0, 1, 1))
    world.logs.open("others", create=True)
    with pytest.raises(MetadataConflictError, match="it is empty, there is nothing to remove"):
        world.logs.truncate("others", world.logs.names.uid("others"), 1)


def test_a_truncation_before_an_open_ledger_removes_all_that_is_closed(world):
    write(world, "orders", world.plain_ledger(), world.plain_ledger())
    job = world.logs.jobs.begin("orders")
    opened = world.open_ledger(job)
    world.logs.commit(job, append(opened=opened))
    world.logs.truncate("orders", world.logs.names.uid("orders"), opened)
    snapshot = world.logs.reader.snapshot("orders")
    assert (snapshot.ledgers, [one.ledger_id for one in snapshot.open_ledgers], snapshot.end_row) == ((), [opened], 20)


def test_a_truncation_whose_reply_is_lost_is_recognised_as_done(world):
    write(world, "orders", world.plain_ledger(), b := world.plain_ledger())
    store, logs = world.scripted()
    store.script = [store.lose_reply]
    assert truncate(world, b, logs).version == 2
    store.script = [store.delay] * 3
    write(world, "orders", c := world.plain_ledger())
    with pytest.raises(MetadataUnavailableError):
        truncate(world, c, logs)
    assert world.logs.names.head("orders", world.logs.names.uid("orders")).version == 3


def test_a_truncation_of_another_log_of_the_name_is_refused(world):
    write(world, "orders", world.plain_ledger(), b := world.plain_ledger())
    with pytest.raises(NoSuchLogError):
        world.logs.truncate("orders", "f" * 32, b.ledger_id)


def test_truncations_compactions_and_replacements_say_what_they_need():
    ledger = CommittedLedger(1, 0, 1, 1)
    with pytest.raises(ConfigError, match="named by a truncation, and by nothing else"):
        CommitRequest(CommitKind.TRUNCATE)
    with pytest.raises(ConfigError, match="named by a truncation, and by nothing else"):
        CommitRequest(CommitKind.APPEND, before=3)
    with pytest.raises(ConfigError, match="named by a replacement or a compaction"):
        CommitRequest(CommitKind.COMPACT, (ledger,))
    with pytest.raises(ConfigError, match="a commit of kind compact keeps the schema"):
        CommitRequest(CommitKind.COMPACT, (ledger,), schema_json="{}", remove=(3,))
