"""TLS, passwords and ZooKeeper's access control through Spark's options: on driver and executors, batch and stream."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl
from pyspark.sql import DataFrame, SparkSession

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands.connect import spark_options
from bk_spark.datasource.jobs.compact_log import compact_log
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.security import Authority
from bk_spark.log.direct_readers import change_direct_readers
from tests.spark.test_user_errors import last_line

PASSWORD = "l3dger-s3cret"
Options = dict[str, str]


@pytest.fixture(scope="module")
def given(secured_cluster: LocalCluster) -> Options:
    """What reaches the secured cluster."""
    return {"metadata": secured_cluster.metadata_uri, **spark_options(secured_cluster.client_config)}


@pytest.fixture(scope="module")
def log(secured_cluster: LocalCluster, spark: SparkSession, given: Options) -> str:
    """A log of three rows, in two commits, with a password."""
    name = f"orders-{uuid.uuid4().hex}"
    for ids in (2, 1):
        save(spark.range(ids).repartition(1), name, given | {"password": PASSWORD})
    return name


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client's certificate of an authority that the cluster does not know."""
    directory = tmp_path_factory.mktemp("other")
    Authority("other").issue(directory / "client")
    return directory


def save(frame: DataFrame, log: str, options: Options) -> None:
    frame.write.format("bookkeeper").options(**options).mode("append").save(log)


def load(spark: SparkSession, log: str, options: Options) -> DataFrame:
    return spark.read.format("bookkeeper").options(**options).load(log)


def stream(spark: SparkSession, log: str, options: Options) -> list[int]:
    """All rows of the log through a streaming query."""
    name = f"s{uuid.uuid4().hex}"
    read = spark.readStream.format("bookkeeper").options(**options | {"startingOffsets": "earliest"}).load(log)
    query = read.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return sorted(row.id for row in spark.table(name).collect())


def write_stream(spark: SparkSession, source: str, target: str, options: Options, checkpoint: Path) -> None:
    read = spark.readStream.format("bookkeeper").options(**options | {"startingOffsets": "earliest"}).load(source)
    sink = read.writeStream.format("bookkeeper").options(**options | {"checkpointLocation": str(checkpoint)})
    query = sink.trigger(availableNow=True).start(target)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def refusal(action: Callable[[], object]) -> str:
    """What the user reads, and nothing secret in all of it."""
    with pytest.raises(Exception) as refused:  # noqa: PT011
        action()
    assert PASSWORD not in str(refused.value)
    assert "z00-s3cret" not in str(refused.value)
    return last_line(str(refused.value))


def changed(options: Options, **changes: str | None) -> Options:
    merged: dict[str, str | None] = {**options, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def test_batches_and_streams_go_through_tls_and_access_control(
    spark: SparkSession, given: Options, log: str, tmp_path: Path
) -> None:
    options = given | {"password": PASSWORD}
    assert sorted(row.id for row in load(spark, log, options).collect()) == [0, 0, 1]
    assert stream(spark, log, options) == [0, 0, 1]
    write_stream(spark, log, log + "-copy", options, tmp_path)
    assert load(spark, log + "-copy", options).count() == 3


def test_a_secured_log_is_written_read_streamed_and_compacted_without_an_option(
    secured_cluster: LocalCluster, spark: SparkSession, given: Options, tmp_path: Path
) -> None:
    source, target = (f"secured-{uuid.uuid4().hex}" for _ in range(2))
    with BookKeeper(secured_cluster.metadata_uri, secured_cluster.client_config) as client:
        for name in (source, target):
            client.open_log(name, create=True).secure()
        for ids in (2, 1):
            save(spark.range(ids).repartition(1), source, given)
        assert sorted(row.id for row in load(spark, source, given).collect()) == [0, 0, 1]
        assert stream(spark, source, given) == [0, 0, 1]
        write_stream(spark, source, target, given, tmp_path)
        assert load(spark, target, given).count() == 3
        compact_log(spark, given["metadata"], source, options={key: one for key, one in given.items() if key != "metadata"})
        assert load(spark, source, given).count() == 3
        for name in (source, target):
            listed = client.ledger_metadata_many([one.ledger_id for one in client.open_log(name).ledgers()])
            assert listed
            assert all(one.is_keyed for one in listed)
    told = refusal(lambda: save(spark.range(1), target, given | {"password": PASSWORD}))
    assert "is secured, and its ledgers have keys: leave the password out" in told


REFUSED: dict[str, tuple[Callable[[Path], dict[str, str | None]], str]] = {
    "without TLS": (
        lambda other: {"tlsCa": None, "tlsCertificate": None, "tlsKey": None},
        "tls_ca (tlsCa, --tls-ca) is missing: the metadata URI",
    ),
    "without a certificate": (
        lambda other: {"tlsCertificate": None, "tlsKey": None},
        "takes only clients with a certificate, and none is given: give tls_certificate and tls_key (tlsCertificate, tlsKey;",
    ),
    "with a certificate of another authority": (
        lambda other: {"tlsCertificate": f"{other}/client.pem", "tlsKey": f"{other}/client.key"},
        "(signed by CN=other): give one that is valid and that an authority in ZooKeeper's trust store signed (tlsCertificate,",
    ),
    "with a wrong ledger password": (lambda other: {"password": "wrong"}, "wrong password for ledger"),
    "without a ledger password": (lambda other: {"password": None}, "wrong password for ledger"),
    "without a credential for ZooKeeper": (
        lambda other: {"zookeeperAuth": None},
        "zookeeper_auth (zookeeperAuth, --zookeeper-auth-file) is missing: ZooKeeper refuses access to /ledgers",
    ),
    "with another credential": (
        lambda other: {"zookeeperAuth": "digest:keeper:z00-s3cret-not"},
        "is (not shown): ZooKeeper refuses access to /ledgers",
    ),
    "with a file that is not there": (
        lambda other: {"tlsCa": "/nowhere/ca.pem"},
        "tls_ca (tlsCa, --tls-ca) is '/nowhere/ca.pem': it cannot be read (No such file or directory)",
    ),
}


WRITES = ("without TLS", "with a certificate of another authority", "with a wrong ledger password", "with another credential")
"""Refused in the tasks, or before: what differs for a write is where."""


TLS = pytest.mark.nightly(
    held_by="tests/cluster/tls/test_tls.py::test_a_client_that_bookies_refuse_is_told_why,"
    "tests/cluster/tls/test_tls.py::test_files_that_cannot_be_used_are_named_with_their_setting_before_anything_is_connected"
)
ACCESS = pytest.mark.nightly(
    held_by="tests/cluster/metadata/test_zookeeper_acl.py::test_a_client_without_the_credential_is_refused_at_once_and_told_why"
)
PASSWORDS = pytest.mark.nightly(
    held_by="tests/cluster/tls/test_tls.py::test_a_wrong_ledger_password_is_refused_and_no_password_is_shown"
)
"""The client's refusal is held there, its way through Spark by a case beside: one of each kind of refusal."""


@pytest.mark.parametrize(
    "case",
    [
        "without TLS",
        pytest.param("without a certificate", marks=TLS),
        pytest.param("with a certificate of another authority", marks=TLS),
        "with a wrong ledger password",
        pytest.param("without a ledger password", marks=PASSWORDS),
        "without a credential for ZooKeeper",
        pytest.param("with another credential", marks=ACCESS),
        pytest.param("with a file that is not there", marks=TLS),
    ],
)
def test_who_is_refused_is_told_why(spark: SparkSession, given: Options, log: str, other: Path, case: str) -> None:
    change, sentence = REFUSED[case]
    options = changed(given | {"password": PASSWORD}, **change(other))
    assert sentence in refusal(lambda: load(spark, log, options).collect())
    if case in WRITES:
        assert sentence in refusal(lambda: save(spark.range(1), log, options))


@pytest.mark.parametrize("case", ["without a certificate", pytest.param("without a credential for ZooKeeper", marks=ACCESS)])
def test_a_stream_that_is_refused_is_told_why(spark: SparkSession, given: Options, log: str, other: Path, case: str) -> None:
    change, sentence = REFUSED[case]
    options = changed(given | {"password": PASSWORD}, **change(other))
    assert sentence in refusal(lambda: stream(spark, log, options))


def test_small_ledgers_of_a_log_are_compacted_over_tls(spark: SparkSession, given: Options) -> None:
    name, options = f"small-{uuid.uuid4().hex}", given | {"password": PASSWORD}
    for _ in range(2):
        save(spark.range(2).repartition(1), name, options)
    report = compact_log(spark, given["metadata"], name, options={key: options[key] for key in options if key != "metadata"})
    assert (report.removed.ledgers, report.added.ledgers) == (2, 1)
    assert sorted(row.id for row in load(spark, name, options).collect()) == [0, 0, 1, 1]


def test_a_direct_reader_reads_and_streams_its_log_and_writes_nothing(
    secured_cluster: LocalCluster, spark: SparkSession, given: Options
) -> None:
    name, reader = f"direct-{uuid.uuid4().hex}", make_digest_acl("eve", "s3cret", read=True).id
    with BookKeeper(secured_cluster.metadata_uri, secured_cluster.client_config) as client:
        client.open_log(name, create=True).secure()
        save(spark.range(3).repartition(1), name, given)
        identity = [f"{reader.scheme}:{reader.id}"]
        change_direct_readers(client.metadata_store, client.logs, name, identity)
        own = given | {"zookeeperAuth": "digest:eve:s3cret"}
        try:
            assert sorted(row.id for row in load(spark, name, own).collect()) == [0, 1, 2]
            assert stream(spark, name, own) == [0, 1, 2]
            said = refusal(lambda: save(spark.range(1), name, own))
            assert "is that of digest:eve, which reads single logs and is no member of the cluster: it may not" in said
            assert f"log '{name}'" in said
        finally:
            change_direct_readers(client.metadata_store, client.logs, name, remove=identity)


def test_plans_show_no_secret(spark: SparkSession, given: Options, log: str) -> None:
    """Of a read none at all; of a statement neither, with the setting that docs/guide/secure.md names."""
    options = given | {"password": PASSWORD}
    plans = [load(spark, log, options)._jdf.queryExecution().toString()]
    text = ", ".join(f"{name} '{value}'" for name, value in {**options, "path": log}.items())
    spark.conf.set("spark.sql.redaction.options.regex", "(?i)url|zookeeperAuth")
    try:
        created = spark.sql(f"EXPLAIN EXTENDED CREATE TEMPORARY VIEW secured USING bookkeeper OPTIONS ({text})")
        plans.append(created.first().plan)
    finally:
        spark.conf.unset("spark.sql.redaction.options.regex")
    assert "redacted" in plans[1]
    for plan in plans:
        assert "bookkeeper" in plan
        assert PASSWORD not in plan
        assert "z00-s3cret" not in plan
