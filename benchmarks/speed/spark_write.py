"""Spark writes, beside what bounds them: a data source that throws rows away, and the client without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.speed.ledger_runs import Quorums
from benchmarks.speed.measure import Claim, Entrant, Result, Sample, Setting, alternate, claim, in_series, workload
from benchmarks.speed.spark_ceilings import register, throw_away
from benchmarks.speed.spark_jobs import SparkJobs
from benchmarks.speed.spark_session import SUBJECTS, SparkTable, Subject, in_memory, session
from benchmarks.speed.spark_without import WithoutSpark

ALL, STRIPED = Quorums(3, 3, 2), Quorums(3, 2, 2)
WANTED = 0.8

SERIES = (
    "*Spark alone* is Spark with a Python data source that keeps nothing, or repeats one record batch; *client* is two "
    "processes without Spark that move the same payloads, encoded before; *row codec* is what encoding or decoding them takes "
    "on two cores, which is no part of the bound."
)


def _samples(setting: Setting, subject: Subject) -> dict[str, list[Sample]]:
    with session() as spark, SparkJobs(spark, setting.directory, subject.content) as jobs:
        register(spark)
        table = in_memory(spark, subject.table(setting), setting.directory)
        with WithoutSpark(setting.directory, jobs.cluster.metadata_uri, table) as without:
            entrants = [Entrant("Spark alone", lambda _: throw_away(table))]
            for quorums in setting.choose((ALL, STRIPED), (ALL,)):
                entrants += _both(jobs, without, table, quorums)
            if subject.content == "rows":
                entrants.append(Entrant("row codec", lambda _: without.encode()))
            return alternate(entrants, setting.runs, setting.choose(1, 0))


def _both(jobs: SparkJobs, without: WithoutSpark, table: SparkTable, quorums: Quorums) -> list[Entrant]:
    return [
        Entrant(f"bk_spark {quorums}", lambda _: jobs.write_and_delete(table, quorums)),
        Entrant(f"client {quorums}", lambda _: without.write(quorums)),
    ]


def against_series(text: str, samples: Mapping[str, list[Sample]], ours: str, bounds: tuple[str, ...]) -> Claim:
    """Ours against the contestants ``bounds``, one after the other."""
    rates = zip(*([one.rows_per_s for one in samples[name]] for name in bounds), strict=True)
    return claim(text, [one.rows_per_s for one in samples[ours]], [in_series(*each) for each in rates], WANTED)


def register_subjects(verb: str, samples_of: Callable[[Setting, Subject], dict[str, list[Sample]]]) -> None:
    """A workload for each subject: ``verb`` is "write" or "read"."""
    for subject in SUBJECTS.values():
        _register(verb, subject, samples_of)


def _register(verb: str, subject: Subject, samples_of: Callable[[Setting, Subject], dict[str, list[Sample]]]) -> None:
    name, about = f"spark_{verb}_{subject.name}", f"Spark {verb} of {subject.title} beside what bounds it"

    @workload(name, about)
    def run(setting: Setting) -> Result:
        samples = samples_of(setting, subject)
        claims = [
            against_series(
                f"Spark {verb}, {subject.title}, {quorums}, against 1 / (1/Spark alone + 1/client)",
                samples,
                f"bk_spark {quorums}",
                ("Spark alone", f"client {quorums}"),
            )
            for quorums in setting.choose((ALL, STRIPED), (ALL,))
        ]
        return Result(name, about, samples, claims, [SERIES])


register_subjects("write", _samples)
