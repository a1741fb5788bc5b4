"""Spark's Kafka connector beside our data source: the same tables, the same session, clusters that live at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.fetch import jars
from benchmarks.peers.kafka_jobs import FLUSHED, TUNED_READ, TUNED_WRITE, KafkaJobs, RowValues
from benchmarks.speed.ledger_runs import Quorums
from benchmarks.speed.measure import Claim, Entrant, Result, Sample, Setting, alternate, claim, workload
from benchmarks.speed.spark_jobs import SparkJobs
from benchmarks.speed.spark_session import SUBJECTS, SparkTable, Subject, in_memory, session

POM = Path(__file__).with_name("kafka-spark-pom.xml")
ALL, STRIPED = Quorums(3, 3, 2), Quorums(3, 2, 2)
WARMUPS = 3
"""A turn each: so long the connector's rate goes on rising, as Java compiles it."""


@dataclass(frozen=True, slots=True)
class Match:
    """Both sides, alive, and what they move."""

    ours: SparkJobs
    theirs: KafkaJobs
    table: SparkTable


@contextmanager
def _match(setting: Setting, subject: Subject, encoding: str | None) -> Iterator[Match]:
    with session(jars(POM)) as spark:
        table = in_memory(spark, subject.table(setting), setting.directory)
        values = None if encoding is None else RowValues(spark, table.frame.schema, encoding)
        with (
            SparkJobs(spark, setting.directory, subject.content) as ours,
            KafkaJobs(spark, setting.directory / "kafka", values) as theirs,
        ):
            yield Match(ours, theirs, table)


def _writers(match: Match, compression: str, ours_options: Mapping[str, str]) -> list[Entrant]:
    def ours(quorums: Quorums) -> Entrant:
        return Entrant(f"bk_spark {quorums}", lambda _: match.ours.write_and_delete(match.table, quorums, **ours_options))

    def theirs(name: str, topic: Mapping[str, str], options: Mapping[str, str]) -> Entrant:
        given = {"kafka.compression.type": compression, **options}
        return Entrant(name, lambda _: match.theirs.write_and_delete(match.table, topic, given))

    return [
        ours(ALL),
        ours(STRIPED),
        theirs("kafka", {}, {}),
        theirs("kafka, tuned", {}, TUNED_WRITE),
        theirs("kafka, flushed", FLUSHED, {}),
        theirs("kafka, tuned, flushed", FLUSHED, TUNED_WRITE),
    ]


def _readers(match: Match) -> list[Entrant]:
    return [
        Entrant("bk_spark", lambda _: match.ours.read(match.table, "read")),
        Entrant("kafka", lambda _: match.theirs.read(match.table, "read", {})),
        Entrant("kafka, tuned", lambda _: match.theirs.read(match.table, "read", TUNED_READ)),
    ]


def _claims(text: str, samples: Mapping[str, list[Sample]], ours: str, wanted: Mapping[str, float]) -> list[Claim]:
    """One for each of theirs."""
    rates = {name: [one.rows_per_s for one in found] for name, found in samples.items()}
    return [claim(f"{text}, against {name}", rates[ours], rates[name], ratio) for name, ratio in wanted.items()]


def _register(subject: Subject, compression: str, encoding: str | None) -> None:
    ours_options = {} if encoding is None else {"compression": compression}
    what = f"{subject.title}, compression {compression}" + (f", {encoding} in Kafka" if encoding else "")
    name = "_".join(filter(None, [subject.name, encoding, compression if encoding else None]))
    notes = [SETTINGS] + ([ROWS] if encoding else [])

    @workload(f"kafka_write_{name}", f"Spark write: {what}")
    def write(setting: Setting) -> Result:
        with _match(setting, subject, encoding) as match:
            samples = alternate(_writers(match, compression, ours_options), setting.runs, setting.choose(WARMUPS, 1))
        text = f"Spark write, {what}, 3/3/2"
        wanted = {"kafka": 2.0, "kafka, flushed": 5.0, "kafka, tuned": 1.0, "kafka, tuned, flushed": 1.0}
        claims = _claims(text, samples, f"bk_spark {ALL}", wanted)
        return Result(f"kafka_write_{name}", f"Spark write: {what}", samples, claims, notes)

    @workload(f"kafka_read_{name}", f"Spark read: {what}")
    def read(setting: Setting) -> Result:
        with _match(setting, subject, encoding) as match:
            match.ours.write(match.table, "read", ALL, **ours_options)
            match.theirs.create("read")
            match.theirs.write(match.table, "read", {"kafka.compression.type": compression, **TUNED_WRITE})
            samples = alternate(_readers(match), setting.runs, setting.choose(WARMUPS, 1))
        claims = _claims(f"Spark read, {what}", samples, "bk_spark", {"kafka": 2.0, "kafka, tuned": 1.0})
        return Result(f"kafka_read_{name}", f"Spark read: {what}", samples, claims, notes)


def _listed(options: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in options.items())


SETTINGS = (
    "Kafka: three brokers 4.3.1 (KRaft, each a controller too, the 1 GiB of heap of Kafka's start script), replication 3, "
    "`min.insync.replicas=2`, `acks=all`, which waits for all replicas in sync, where bk_spark waits for two of three. "
    "*kafka* is Spark's connector 4.2.0 with no producer or consumer option but the compression, on a topic that leaves "
    "flushing to the system; *flushed* has `flush.messages=1`: each message set is synced before it is acked, as bk_spark does "
    f"always; *tuned* has {_listed(TUNED_WRITE)} for writes and {_listed(TUNED_READ)} for reads. bk_spark is at its defaults "
    "but for the compression and, when it reads, `minPartitions=4`. Both sides have the same rows in the same four "
    "partitions, kept in Spark's memory, and one session (`local[2]`); what was written is counted after each run, what is "
    "read on its way into Spark's `noop` sink: of entries the payload and where it stands. A topic that is read was written "
    f"with the tuned settings. {WARMUPS} rounds warm both up, and what a turn left to write or to delete is done before the "
    "next one."
)
ROWS = (
    "A row is one record in Kafka, as Avro (`to_avro(struct(*))`) or JSON (`to_json`), and the read decodes it again: the two "
    "ways that Spark offers for columns in Kafka's one binary value."
)

for _name in ("100B", "1KiB"):
    _register(SUBJECTS[_name], "none", None)
for _name in ("numeric", "nested"):
    for _compression, _encoding in (("zstd", "avro"), ("none", "avro"), ("zstd", "json")):
        _register(SUBJECTS[_name], _compression, _encoding)
