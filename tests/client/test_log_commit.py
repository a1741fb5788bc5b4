"""The commit: log rules 1, 4, 5 and 9, and the rules of schemas. Ref: docs/rules.md, "Logs"."""

from __future__ import annotations

import json
import logging

import pytest

from bk_spark.client.log_layout import CommitKind, CommittedLedger, Content
from bk_spark.client.log_plan import CommitRequest
from bk_spark.errors import (
    ConfigError,
    LedgerNotClosedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchLogError,
    SchemaMismatchError,
)
from bk_spark.metadata_store import TransactionFailedError

ON_BOTH_STORES = pytest.mark.parametrize("world", ["memory", "zookeeper"], indirect=True)


def schema_json(**columns):
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def append(*ledgers, **more):
    return CommitRequest(CommitKind.APPEND, tuple(ledgers), **more)


def overwrite(*ledgers, **more):
    return CommitRequest(CommitKind.OVERWRITE, tuple(ledgers), **more)


def replacement(remove, *ledgers):
    return CommitRequest(CommitKind.REPLACE, tuple(ledgers), remove=tuple(one.ledger_id for one in remove))


def write(world, name, *ledgers, request=append, logs=None, **more):
    logs = logs or world.logs
    job = logs.begin_job(name)
    return logs.commit(job, request(*(ledgers or [world.job_ledger(job)]), **more))


def ids(*ledgers):
    return [one.ledger_id for one in ledgers]


def test_a_commit_lists_all_its_ledgers_at_once_in_the_given_order(world):
    job = world.logs.begin_job("orders")
    ledgers = [world.job_ledger(job) for _ in range(4)]
    given = [ledgers[2], ledgers[0], ledgers[3], ledgers[1]]
    version = world.logs.commit(job, append(*given))
    assert world.logs.snapshot("orders").ledgers == tuple(given)
    assert (version.version, version.added.ledgers, version.total.rows) == (1, 4, 40)


@ON_BOTH_STORES
def test_the_first_commit_makes_the_log_its_head_and_its_version_together(world):
    store, logs = world.scripted()
    job = logs.begin_job("orders")
    ledger = world.job_ledger(job)
    store.script = [store.first(lambda: [world.logs.names() == [] or pytest.fail("visible before its first commit")])]
    logs.commit(job, append(ledger))
    assert world.logs.names() == ["orders"]
    assert world.logs.snapshot("orders").uid == job.uid


def test_a_commit_without_ledgers_makes_a_version_too(world):
    job = world.logs.begin_job("orders")
    world.logs.commit(job, append(schema_json=schema_json(id="long"), application=("query", 0)))
    assert world.logs.snapshot("orders").ledgers == ()
    assert write(world, "orders", schema_json=schema_json(id="long"), application=("query", 0)).duplicate_of == 1


@ON_BOTH_STORES
def test_a_commit_whose_reply_is_lost_is_recognised_as_done(world):
    store, logs = world.scripted()
    store.script = [store.lose_reply]
    version = write(world, "orders", logs=logs)
    assert version.version == 1
    assert [one.version for one in world.logs.versions("orders")] == [1]


@ON_BOTH_STORES
def test_a_commit_whose_reply_is_lost_is_recognised_after_others_committed_on_top(world):
    store, logs = world.scripted()

    def lose_reply_and_others_commit(operations):
        world.store.transaction(operations)
        write(world, "orders")
        write(world, "orders")
        raise MetadataUnavailableError("memory://", "connection lost")

    store.script = [lose_reply_and_others_commit]
    assert write(world, "orders", logs=logs).version == 1
    assert len(world.listed("orders")) == 3


@ON_BOTH_STORES
def test_a_commit_that_was_lost_on_its_way_is_sent_again_and_the_first_one_never_applies(world):
    store, logs = world.scripted()
    store.script = [store.delay]
    assert write(world, "orders", logs=logs).version == 1
    with pytest.raises(TransactionFailedError):
        store.land()
    assert len(world.listed("orders")) == 1


@ON_BOTH_STORES
def test_a_commit_that_lands_late_in_front_of_its_own_repetition_counts_once(world):
    store, logs = world.scripted()
    store.script = [store.delay, store.first(lambda: store.land())]
    assert write(world, "orders", logs=logs).version == 1
    assert [one.version for one in world.logs.versions("orders")] == [1]


def test_a_commit_lost_on_its_way_rebases_on_what_another_committed_meanwhile(world):
    first = write(world, "orders")
    store, logs = world.scripted()

    def another_first(operations):
        write(world, "orders")
        store.delay(operations)

    store.script = [another_first]
    assert write(world, "orders", logs=logs).version == first.version + 2
    with pytest.raises(TransactionFailedError):
        store.land()


def test_a_commit_may_be_called_again_and_says_where_it_committed(world):
    job = world.logs.begin_job("orders")
    request = append(world.job_ledger(job))
    first = world.logs.commit(job, request)
    write(world, "orders")
    assert world.logs.commit(job, request) == first


@ON_BOTH_STORES
def test_commits_at_once_all_take_effect_one_after_the_other(world):
    write(world, "orders")
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders"))] * 5
    assert write(world, "orders", logs=logs).version == 7
    assert len(world.listed("orders")) == 7


def test_a_commit_that_never_gets_through_ends_after_a_bounded_number_of_tries(world):
    write(world, "orders")
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders"))] * 1000
    with pytest.raises(MetadataConflictError, match="100 tries to commit each met another change, nothing was committed"):
        write(world, "orders", logs=logs)
    assert len(store.script) == 900


def test_a_store_that_stays_away_ends_the_commit_and_says_that_the_outcome_is_unknown(world):
    store, logs = world.scripted()
    store.script = [store.delay] * 3
    with pytest.raises(MetadataUnavailableError, match=r"took effect is unknown, 'bk-spark log show' tells"):
        write(world, "orders", logs=logs)


def test_a_commit_that_was_never_sent_does_not_call_its_outcome_unknown(world):
    store, logs = world.scripted()
    job = logs.begin_job("orders")
    ledger = world.job_ledger(job)
    store.fail_reads = True
    with pytest.raises(MetadataUnavailableError) as failure:
        logs.commit(job, append(ledger))
    assert "unknown" not in str(failure.value)


def test_the_time_of_commits_never_decreases(world):
    first = write(world, "orders")
    world.now_ms -= 500
    second = write(world, "orders")
    world.now_ms += 1000
    third = write(world, "orders")
    assert [one.time_ms - first.time_ms for one in (first, second, third)] == [0, 0, 500]


@ON_BOTH_STORES
def test_of_two_first_jobs_at_once_the_second_joins_the_log_of_the_first(world):
    store, logs = world.scripted()
    loser, winner = logs.begin_job("orders"), world.logs.begin_job("orders")
    assert loser.uid != winner.uid
    lost, won = [world.job_ledger(loser) for _ in range(3)], world.job_ledger(winner)
    failed_attempt = world.job_ledger(loser)
    store.script = [store.first(lambda: world.logs.commit(winner, append(won)))]
    version = logs.commit(loser, append(*lost))
    assert version.version == 2
    assert world.listed("orders") == ids(won, *lost)
    assert world.logs.snapshot("orders").uid == winner.uid
    assert {world.metadata(one).custom("bk_spark.log") for one in lost} == {winner.uid.encode()}
    logs.finish(loser, ids(*lost))
    assert [world.ledger_exists(one) for one in (*lost, failed_attempt)] == [True, True, True, False]


def test_a_first_job_that_joins_another_s_log_must_fit_its_schema_and_leaves_nothing(world):
    loser, winner = world.logs.begin_job("orders"), world.logs.begin_job("orders")
    lost, won = world.job_ledger(loser), world.job_ledger(winner)
    world.logs.commit(winner, append(won, schema_json=schema_json(id="long")))
    with pytest.raises(SchemaMismatchError, match="column 'id' is bigint in the log and string in the data"):
        world.logs.commit(loser, append(lost, schema_json=schema_json(id="string")))
    assert world.logs.abort(loser)
    assert not world.ledger_exists(lost)
    assert world.listed("orders") == ids(won)


def test_a_first_job_that_joined_another_s_log_is_aborted_as_a_whole(world):
    store, logs = world.scripted()
    loser, winner = logs.begin_job("orders"), world.logs.begin_job("orders")
    lost = [world.job_ledger(loser) for _ in range(2)]
    world.logs.commit(winner, append(world.job_ledger(winner)))
    store.script = [store.first(lambda: world.logs.abort(loser))]
    with pytest.raises(Exception, match="has ended"):
        logs.commit(loser, append(*lost))
    assert not any(world.ledger_exists(one) for one in lost)


def test_a_first_job_goes_back_to_its_own_log_when_the_one_it_joined_is_deleted(world):
    store, logs = world.scripted()
    loser, winner = logs.begin_job("orders"), world.logs.begin_job("orders")
    lost, won = world.job_ledger(loser), world.job_ledger(winner)
    store.script = [
        store.first(lambda: world.logs.commit(winner, append(won))),
        store.first(lambda: world.logs.delete("orders")),
    ]
    logs.commit(loser, append(lost))
    assert world.logs.snapshot("orders").uid == loser.uid
    assert world.metadata(lost).custom("bk_spark.log") == loser.uid.encode()
    assert world.listed("orders") == ids(lost)


@ON_BOTH_STORES
def test_a_thousand_ledgers_enter_in_one_commit(world):
    ledgers = [world.plain_ledger() for _ in range(1000)]
    store, logs = world.scripted()
    write(world, "orders", *ledgers, logs=logs)
    assert world.listed("orders") == ids(*ledgers)
    (operations,) = [what for name, what in store.calls if name == "transaction" and len(what) > 4]
    assert len(operations) == 5


def test_a_commit_costs_the_same_on_a_log_of_one_version_and_of_two_hundred(world):
    def cost():
        job = world.logs.begin_job("orders")
        ledger = world.job_ledger(job)
        store, logs = world.scripted()
        logs.commit(job, append(ledger, schema_json=schema_json(id="long"), application=("query", job_count[0])))
        job_count[0] += 1
        reads = sum(len(what) for name, what in store.calls if name == "get_many")
        sizes = [len(what) for name, what in store.calls if name == "transaction"]
        return len(store.calls), reads, sizes

    job_count = [0]
    cost(), cost()
    early = cost()
    for _ in range(200):
        write(world, "orders", schema_json=schema_json(id="long"))
    assert cost() == early
    assert early[0] <= 12


def test_version_directories_of_a_thousand_are_made_by_the_commit_that_needs_them(world):
    write(world, "orders")
    uid = world.logs.snapshot("orders").uid
    head = world.store.get(world.paths(uid).head)
    world.store.set(world.paths(uid).head, head.value.replace(b'"version":1', b'"version":999'), head.version)
    assert write(world, "orders").version == 1000
    assert write(world, "orders").version == 1001
    assert world.store.children(world.paths(uid).version_bucket(1000)) == ["1000", "1001"]


def test_an_overwrite_removes_what_is_listed_at_its_commit(world):
    write(world, "orders")
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders"))]
    version = write(world, "orders", request=overwrite, logs=logs)
    assert (version.removed_ledgers, version.total.ledgers) == (2, 1)
    assert len(world.listed("orders")) == 1
    assert len(world.listed("orders", 2)) == 2


def test_an_overwrite_with_nothing_empties_the_log(world):
    write(world, "orders")
    job = world.logs.begin_job("orders")
    world.logs.commit(job, overwrite())
    assert world.listed("orders") == []


@ON_BOTH_STORES
def test_a_replacement_keeps_its_place_and_all_that_others_append_meanwhile(world):
    """Schedule 4: compaction reads its ledgers, someone appends, compaction writes."""
    a, b, c, d = (world.plain_ledger() for _ in range(4))
    late, small = world.plain_ledger(), world.plain_ledger()
    write(world, "orders", a, b, c, d)
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders", late))]
    version = logs.commit(logs.begin_job("orders"), replacement([b, c], small))
    assert world.listed("orders") == ids(a, small, d, late)
    assert (version.removed_ledgers, version.total.ledgers) == (2, 4)


def test_a_replacement_fails_when_what_it_removes_was_removed_meanwhile(world):
    a, b = world.plain_ledger(), world.plain_ledger()
    write(world, "orders", a, b)
    store, logs = world.scripted()
    store.script = [store.first(lambda: world.logs.commit(world.logs.begin_job("orders"), replacement([b])))]
    with pytest.raises(MetadataConflictError, match=f"it does not list ledger {b.ledger_id}"):
        logs.commit(logs.begin_job("orders"), replacement([a, b], world.plain_ledger()))


def test_a_replacement_fails_when_what_it_removes_is_not_one_stretch(world):
    a, b, c = (world.plain_ledger() for _ in range(3))
    write(world, "orders", a, b, c)
    for remove in ([a, c], [b, a]):
        with pytest.raises(MetadataConflictError, match="not one stretch"):
            world.logs.commit(world.logs.begin_job("orders"), replacement(remove, world.plain_ledger()))


def test_a_replacement_in_an_empty_log_is_refused(world):
    world.logs.open("orders", create=True)
    with pytest.raises(MetadataConflictError):
        world.logs.commit(world.logs.begin_job("orders"), replacement([world.plain_ledger()]))


@ON_BOTH_STORES
def test_an_application_version_that_is_not_above_the_last_is_dropped_with_its_ledgers_and_logged_once(world, caplog):
    write(world, "orders")
    write(world, "orders", application=("query", 7))
    write(world, "orders", application=("other", 9))
    for version in (7, 6):
        job = world.logs.begin_job("orders")
        ledger = world.job_ledger(job)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            result = world.logs.commit(job, append(ledger, application=("query", version)))
        assert result.duplicate_of == 2
        assert not world.ledger_exists(ledger)
        (record,) = caplog.records
        assert "dropped as a duplicate, version 2 of the log holds version 7" in record.getMessage()
    assert len(world.listed("orders")) == 3
    assert write(world, "orders", application=("query", 8)).duplicate_of is None


def test_the_application_s_version_is_tested_again_on_every_try(world):
    write(world, "orders")
    for number in (1, 2):
        store, logs = world.scripted()
        store.script = [store.first(lambda number=number: write(world, "orders", application=("query", number)))]
        assert write(world, "orders", logs=logs, application=("query", number)).duplicate_of == number + 1
    assert len(world.listed("orders")) == 3


def test_two_first_jobs_of_one_application_commit_once(world):
    store, logs = world.scripted()
    loser, winner = logs.begin_job("orders"), world.logs.begin_job("orders")
    lost, won = world.job_ledger(loser), world.job_ledger(winner)
    store.script = [store.first(lambda: world.logs.commit(winner, append(won, application=("query", 0))))]
    assert logs.commit(loser, append(lost, application=("query", 0))).duplicate_of == 1
    assert world.listed("orders") == ids(won)
    assert not world.ledger_exists(lost)


@pytest.mark.parametrize("application", [("", 1), ("x" * 1001, 1), ("query", -1), ("query", 2**63), ("query", "1")])
def test_an_application_out_of_range_is_refused(application):
    with pytest.raises(ConfigError, match="application"):
        append(application=application)


def test_a_ledger_of_another_log_is_refused(world):
    write(world, "others", ledger := world.plain_ledger())
    with pytest.raises(ConfigError, match=f"given to log 'orders' is {ledger.ledger_id}: it belongs to another log"):
        write(world, "orders", ledger)
    assert world.logs.names() == ["others"]


def test_a_ledger_that_is_listed_is_refused_with_the_version_that_listed_it(world):
    write(world, "orders")
    write(world, "orders", ledger := world.plain_ledger())
    with pytest.raises(ConfigError, match=f"is {ledger.ledger_id}: version 2 of the log has listed it already"):
        write(world, "orders", ledger)
    assert len(world.listed("orders")) == 2


def test_a_ledger_of_a_write_job_under_way_is_refused(world):
    world.logs.open("orders", create=True)
    ledger = world.job_ledger(world.logs.begin_job("orders"))
    with pytest.raises(ConfigError, match=rf"is {ledger.ledger_id}: it belongs to another write job .* not ended"):
        write(world, "orders", ledger)


def test_a_ledger_of_a_first_job_that_joins_this_log_is_refused(world):
    store, logs = world.scripted()
    loser = logs.begin_job("orders")
    write(world, "orders")
    lost = world.job_ledger(loser)

    def steal():
        with pytest.raises(ConfigError, match="it belongs to another write job"):
            write(world, "orders", lost)

    store.script = [store.first(steal)]
    logs.commit(loser, append(lost))
    assert world.listed("orders").count(lost.ledger_id) == 1


def test_a_ledger_whose_adoption_failed_may_be_given_again(world):
    world.logs.open("orders", create=True)
    ledger = world.plain_ledger()
    store, logs = world.scripted()
    job = logs.begin_job("orders")
    store.script = [store.delay] * 3
    with pytest.raises(MetadataUnavailableError):
        logs.commit(job, append(ledger))
    assert world.logs.abort(job)
    assert world.ledger_exists(ledger)
    write(world, "orders", ledger)
    assert world.listed("orders") == ids(ledger)
    with pytest.raises(TransactionFailedError):
        store.land()


@ON_BOTH_STORES
def test_of_two_commits_that_adopt_one_ledger_at_once_one_gets_it(world):
    world.logs.open("orders", create=True)
    world.logs.open("others", create=True)
    ledger = world.plain_ledger()
    session = world.new_session()
    real = session.set

    def beaten(path, value, version):
        session.set = real
        write(world, "others", ledger)
        return real(path, value, version)

    session.set = beaten
    with pytest.raises(ConfigError, match="it belongs to another log"):
        write(world, "orders", ledger, logs=world.log_store(session))
    assert world.listed("others") == ids(ledger)
    assert world.listed("orders") == []


def test_a_ledger_given_twice_is_refused(world):
    ledger = world.plain_ledger()
    with pytest.raises(ConfigError, match=f"a ledger to add is {ledger.ledger_id}: it is given twice"):
        append(ledger, ledger)
    with pytest.raises(ConfigError, match=f"a ledger to remove is {ledger.ledger_id}: it is given twice"):
        replacement([ledger, ledger])


def test_a_ledger_that_is_gone_is_refused(world):
    with pytest.raises(NoSuchLedgerError, match="there is no ledger 4711"):
        write(world, "orders", world.plain_ledger(), CommittedLedger(4711, 0, 1, 1))
    assert world.logs.names() == []


def test_a_ledger_that_is_not_closed_is_refused(world):
    ledger = world.plain_ledger(closed=False)
    with pytest.raises(LedgerNotClosedError, match=f"ledger {ledger.ledger_id} is OPEN"):
        write(world, "orders", ledger)


def test_a_ledger_that_ends_elsewhere_than_was_said_is_refused(world):
    ledger = world.plain_ledger()
    wrong = CommittedLedger(ledger.ledger_id, 3, 400, 4)
    with pytest.raises(ConfigError, match=r"last entry 3 and 400 bytes, and was closed at entry 9 with 1000 bytes"):
        write(world, "orders", wrong)


def test_a_commit_to_a_log_that_was_deleted_and_made_anew_fails(world):
    world.logs.open("orders", create=True)
    job = world.logs.begin_job("orders")
    ledger = world.job_ledger(job)
    world.logs.delete("orders")
    world.logs.open("orders", create=True)
    with pytest.raises(NoSuchLogError):
        world.logs.commit(job, append(ledger))
    assert world.listed("orders") == []


def test_the_schema_of_the_first_commit_is_the_log_s(world):
    write(world, "orders", schema_json=schema_json(id="long", name="string"))
    write(world, "orders", schema_json=schema_json(id="long"))
    snapshot = world.logs.snapshot("orders")
    assert json.loads(snapshot.schema_json) == json.loads(schema_json(id="long", name="string"))
    assert (snapshot.content, snapshot.schema_id) == (Content.ROWS, 0)


def test_an_append_that_does_not_fit_changes_nothing(world):
    write(world, "orders", schema_json=schema_json(id="long"))
    with pytest.raises(SchemaMismatchError):
        write(world, "orders", schema_json=schema_json(id="long", extra="date"))
    assert len(world.logs.versions("orders")) == 1


def test_merging_adds_columns_under_a_new_schema_number_and_old_versions_keep_theirs(world):
    write(world, "orders", schema_json=schema_json(id="long"))
    write(world, "orders", schema_json=schema_json(new="date"), merge_schema=True)
    assert json.loads(world.logs.snapshot("orders").schema_json) == json.loads(schema_json(id="long", new="date"))
    assert json.loads(world.logs.snapshot("orders", 1).schema_json) == json.loads(schema_json(id="long"))


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
    assert json.loads(world.logs.snapshot("orders").schema_json) == json.loads(schema_json(id="string"))
    write(world, "orders", request=overwrite)
    assert world.logs.snapshot("orders").content is Content.ENTRIES
    assert world.logs.snapshot("orders", 2).schema_id == 1


def test_an_overwrite_with_the_same_schema_stores_it_once(world):
    for _ in range(3):
        write(world, "orders", request=overwrite, schema_json=schema_json(id="long"))
    assert world.store.children(world.paths(world.logs.snapshot("orders").uid).schemas) == ["0"]


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
    world.logs.commit(world.logs.begin_job("orders"), replacement([a], b))
    snapshot = world.logs.snapshot("orders")
    assert (snapshot.content, snapshot.schema_id, snapshot.ledgers) == (Content.ROWS, 0, (b,))


def test_requests_that_contradict_themselves_are_refused():
    ledger = CommittedLedger(1, 0, 1, 1)
    with pytest.raises(ConfigError, match="named by a replacement, and by nothing else"):
        CommitRequest(CommitKind.APPEND, (ledger,), remove=(3,))
    with pytest.raises(ConfigError, match="named by a replacement, and by nothing else"):
        CommitRequest(CommitKind.REPLACE, (ledger,))
    with pytest.raises(ConfigError, match="a replacement keeps the schema"):
        CommitRequest(CommitKind.REPLACE, (ledger,), schema_json="{}", remove=(3,))
