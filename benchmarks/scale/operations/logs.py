"""Reads of the long log and commits to it."""

from __future__ import annotations

from functools import partial

from benchmarks.scale.made_cluster import LEDGERS
from benchmarks.scale.made_ledgers import ENTRIES
from benchmarks.scale.made_logs import LONG_LOG
from benchmarks.scale.measured import Meter
from benchmarks.scale.operation import Site, operation
from benchmarks.scale.operations.clients import TIMES, ledgers
from benchmarks.scale.operations.commits import Committer
from benchmarks.scale.size import PER_COMMIT
from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.source import BookKeeperDataSource
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL
from bk_spark.log.stream.follow import LogFollower
from bk_spark.log.stream.positions import behind


@operation("plan of a batch read of the long log", ledgers, grows=["", "versionAsOf"], needs=[LEDGERS])
def log_plan(site: Site, meter: Meter) -> None:
    with meter.running():
        _plan(site)
    with meter.running("versionAsOf"):
        _plan(site, versionAsOf=str(site.size.versions // 2))


@operation("commit to the long log, and a stream's look at it", ledgers, needs=[LEDGERS])
def log_commit(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        committer, reader = Committer(client, site.bookies, LONG_LOG), client.logs.reader
        uid = client.logs.names.uid(LONG_LOG)
        follower = LogFollower(reader, LONG_LOG, uid, "fail", client.existing_ledgers)
        head = client.logs.names.head(LONG_LOG, uid)
        position = follower.newest(head, {}, behind(head.version - 1)).position
        for _ in range(TIMES):
            committer.commit(partial(meter.running, "commit"))
            with meter.running("look"):
                head = client.logs.names.head(LONG_LOG, uid)
                end = follower.newest(head, {}, position).position
                found = list(follower.stretches(position, end, head, fail_on_data_loss=True))
            assert [one.rows for one in found] == [ENTRIES]
            position = end


@operation("the checkpoint that each thousandth commit writes", ledgers, grows=["checkpoint"], needs=[LEDGERS])
def log_checkpoint(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        committer, uid = Committer(client, site.bookies, LONG_LOG), client.logs.names.uid(LONG_LOG)
        committer.commit()
        version = client.logs.names.head(LONG_LOG, uid).version
        assert version % CHECKPOINT_INTERVAL, "commits write that one"
        with meter.running("checkpoint"):
            client.logs.write_checkpoint(LONG_LOG, uid, version)


@operation("the version of the long log at a time", ledgers, needs=[LEDGERS])
def log_version_at(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        uid = client.logs.names.uid(LONG_LOG)
        head = client.logs.names.head(LONG_LOG, uid)
        with meter.running():
            client.logs.reader.version_at(LONG_LOG, uid, head.time_ms - 1)


def _plan(site: Site, **options: str) -> None:
    source = BookKeeperDataSource({"metadata": site.uri, "path": LONG_LOG, "content": "entries", **options})
    partitions = source.reader(source.schema()).partitions()
    assert partitions, f"a log of {site.ledgers // PER_COMMIT} commits is read"
