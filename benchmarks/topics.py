"""How fast are the messages of a topic of Pulsar read?

A topic with four partitions, of messages of 100 bytes that Pulsar's producer wrote in batches of its default size, through a
broker on three of our bookies, or on Apache's. In turns, each warm, they are read from the first one to the last by

- *Pulsar*: Pulsar's Java client, a reader and a thread for each partition, through the broker;
- *Pulsar in Python*: Pulsar's Python client, likewise, if it is installed (``pip install pulsar-client``);
- *Python*: ``bookkeeper.open_topic(…).read()``, in one thread, from the bookies;
- *Spark*: ``spark.read.format("bookkeeper")`` on two cores, into a sink that takes all columns and keeps nothing.

The JVMs of broker and client compile in full, and have 1 GB each. Ledgers end as by default; an explicit last add confirmed
each second makes the last message visible. Ratios are those of the same round.

    python benchmarks/topics.py [--small] [--rounds N] [--messages M] [--apache]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.speed.environment import environment
from benchmarks.speed.measure import Entrant, Sample, SkippedError, alternate, claim
from benchmarks.speed.processes import SPAWN
from bk_spark import BookKeeper
from bk_spark.local.ports import HOST
from tests.soak.pulsar.broker import CLUSTER
from tests.soak.topics.stage import Stage, stage

MESSAGES, SMALL_MESSAGES = 4_000_000, 50_000
MESSAGE_BYTES = 100
TOPIC, PARTITIONS = "persistent://topics/proof/benchmark", 4

SETTINGS = {
    "managedLedgerCacheSizeMB": 200,
    "bookkeeperExplicitLacIntervalInMills": 1000,
}
"""The cache is a fifth of the direct memory, as by default."""

VISIBLE_S = 3.0
"""Until the last add confirmed was told."""

PULSAR, PULSAR_IN_PYTHON, PYTHON, SPARK = "Pulsar", "Pulsar in Python", "Python", "Spark"


def with_python(metadata_uri: str, pulsar_uri: str) -> int:
    with BookKeeper(metadata_uri) as bookkeeper:
        topic = bookkeeper.open_topic(TOPIC, pulsar_metadata=pulsar_uri)
        return sum(batch.num_rows for batch in topic.read())


def with_spark(metadata_uri: str, pulsar_uri: str) -> int:
    """The noop sink takes all columns; how many rows it took comes out of an observation."""
    from pyspark.sql import Observation, SparkSession
    from pyspark.sql.functions import count, lit

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    options = {"metadata": metadata_uri, "pulsarMetadata": pulsar_uri, "topic": TOPIC}
    seen = Observation()
    rows = spark.read.format("bookkeeper").options(**options).load().observe(seen, count(lit(1)).alias("rows"))
    rows.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def with_pulsars_python(service: str, _: str) -> int:
    """A reader and a thread for each partition."""
    import pulsar

    client = pulsar.Client(
        service, io_threads=2, message_listener_threads=1, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        with ThreadPoolExecutor(PARTITIONS) as threads:
            return sum(threads.map(functools.partial(_drain, client), range(PARTITIONS)))
    finally:
        client.close()


def _drain(client: Any, partition: int) -> int:
    import pulsar

    reader = client.create_reader(f"{TOPIC}-partition-{partition}", pulsar.MessageId.earliest, receiver_queue_size=10_000)
    found = 0
    while reader.has_message_available():
        for _ in range(1000):
            try:
                reader.read_next(timeout_millis=200).data()
            except pulsar.Timeout:
                break
            found += 1
    return found


def in_process(process: ProcessPoolExecutor, read: Callable[[str, str], int], on: Stage) -> Sample:
    return process.submit(timed, read, on.metadata_uri, on.pulsar_uri).result()


def timed(read: Callable[[str, str], int], metadata_uri: str, pulsar_uri: str) -> Sample:
    started = time.perf_counter()
    messages = read(metadata_uri, pulsar_uri)
    return Sample(time.perf_counter() - started, messages, messages * MESSAGE_BYTES)


def through_broker(on: Stage) -> Sample:
    messages, seconds = on.client.drain(TOPIC)
    return Sample(seconds, messages, messages * MESSAGE_BYTES)


def measure(on: Stage, messages: int, rounds: int) -> dict[str, list[Sample]]:
    on.client.set_up(CLUSTER)
    on.client.create(TOPIC, PARTITIONS)
    on.client.fill(TOPIC, messages, MESSAGE_BYTES)
    time.sleep(VISIBLE_S)
    with ProcessPoolExecutor(1, mp_context=SPAWN) as python, ProcessPoolExecutor(1, mp_context=SPAWN) as spark:
        readers: dict[str, Callable[[], Sample]] = {
            PULSAR: functools.partial(through_broker, on),
            PYTHON: functools.partial(in_process, python, with_python, on),
            SPARK: functools.partial(in_process, spark, with_spark, on),
        }
        if importlib.util.find_spec("pulsar"):
            service = f"pulsar://{HOST}:{on.broker.port}"
            readers[PULSAR_IN_PYTHON] = lambda: python.submit(timed, with_pulsars_python, service, "").result()
        return alternate([Entrant(name, functools.partial(_told, name, read)) for name, read in readers.items()], rounds)


def _told(name: str, read: Callable[[], Sample], turn: int) -> Sample:
    sample = read()
    print(f"turn {turn} {name}: {sample.rows} messages, {sample.rows_per_s:,.0f} a second", flush=True)
    return sample


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round of few messages: shows that it runs")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default %(default)s")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="M", help="default %(default)s")
    parser.add_argument("--apache", action="store_true", help="on Apache's bookies")
    args = parser.parse_args()
    messages, rounds = (SMALL_MESSAGES, 1) if args.small else (args.messages, args.rounds)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as directory:
        print("\n".join(environment(Path(directory)).lines()), flush=True)
        try:
            with stage(Path(directory), SETTINGS, apache=args.apache) as on:
                samples = measure(on, messages, rounds)
        except SkippedError as reason:
            print(f"not to be had: {reason}")
            return 0
    rates = {name: [sample.rows_per_s for sample in found] for name, found in samples.items()}
    for name, found in rates.items():
        ratio = claim(name, found, rates[PULSAR], 1.0)
        print(
            f"{name}: {statistics.median(found):,.0f} messages/s ({min(found):,.0f} to {max(found):,.0f}), "
            f"{ratio.ratio:.2f} of Pulsar's ({ratio.lowest:.2f} to {ratio.highest:.2f})"
        )
    wrong = {name: sample.rows for name, found in samples.items() for sample in found if sample.rows != messages}
    if wrong:
        print(f"of {messages} messages were read: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
