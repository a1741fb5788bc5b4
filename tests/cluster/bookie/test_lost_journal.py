"""A real bookie whose newest log file vanishes while it is down: what it acked is unknown, and never denied.

Ref: docs/rules.md, storage rule 15.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.wire.messages import Status, Verdict
from tests.cluster.bookie.asked_bookie import AskedBookie
from tests.cluster.bookie.raw_bookie import LARGE, SMALL, payload

QUICK = ClientConfig(add_timeout_s=30.0, read_timeout_s=5.0)


def _newest(bookie: LocalBookie, kind: str) -> Path:
    return max((bookie.data_dir / kind).iterdir())


def _filled(cluster: LocalCluster, size: int, count: int) -> int:
    """The id of a ledger on the cluster's only bookie, of which so many entries were confirmed."""
    with BookKeeper(cluster.metadata_uri, QUICK) as client:
        writer = client.create_ledger(1, 1, 1)
        for future in [writer.append_async(payload(entry_id, size)) for entry_id in range(count)]:
            future.result(60)
        return writer.ledger_id


def _sanity(bookie: LocalBookie, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit code, and what was found to be wrong."""
    code = main(["bookie", "sanity", "--data-dir", str(bookie.data_dir), "--json"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, [f"{one['place']}: {one['state']}" for one in records if one["state"] != "right"]


@pytest.fixture(scope="module")
def one_bookie() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=1) as cluster:
        yield cluster


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("kind", "size", "count"), [("journal", SMALL, 300), ("entry_log", LARGE, 30)])
def test_of_acked_entries_whose_newest_log_vanished_not_one_is_denied(
    one_bookie: LocalCluster, kind: str, size: int, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all defaults, before the first checkpoint."""
    ledger_id = _filled(one_bookie, size, count)
    [bookie] = one_bookie.bookies
    bookie.kill()
    assert _sanity(bookie, capsys)[0] == 0
    lost = _newest(bookie, kind)
    lost.unlink()
    code, problems = _sanity(bookie, capsys)
    assert code != 0
    assert any(lost.name in one and "it is missing" in one for one in problems), problems
    bookie.start()
    with AskedBookie(bookie) as asked:
        answers = [asked.read(ledger_id, entry_id, entry_id)[1] for entry_id in range(count)]
        denied = [entry_id for entry_id, status in enumerate(answers) if status.verdict is Verdict.NEGATIVE]
        assert denied == []
        assert set(answers) == {Status.UNKNOWN}
        assert asked.read(ledger_id + 1000, 0, 0)[1] is Status.NO_SUCH_LEDGER, "of ledgers that come later it knows"
    with BookKeeper(one_bookie.metadata_uri, ClientConfig(recovery_timeout_s=1.0)) as client:
        with pytest.raises(BookKeeperError):
            client.open_ledger(ledger_id)
        assert not client.ledger_metadata(ledger_id).is_closed
