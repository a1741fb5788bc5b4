"""All that the product does with ledgers, on real ZooKeeper and a real bookie, in each layout and with the largest ids."""

from __future__ import annotations

import json
import time

import pytest

from bk_spark import BookKeeper, LocalCluster
from bk_spark.cli import main
from bk_spark.errors import NoSuchLedgerError
from bk_spark.metadata.ledger_layout import LARGEST_INT, LedgerLayout
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.zookeeper import connect
from bk_spark.wire.messages import AdminOperation

ONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
DEADLINE_S = 60.0
LAST_BUCKET = f"/ledgers/idgen-long/HOB-{LARGEST_INT:010d}"


def at(cluster: LocalCluster) -> list[str]:
    return ["--metadata", cluster.metadata_uri]


def written(client: BookKeeper, payload: bytes) -> int:
    with client.create_ledger(**ONE) as writer:  # type: ignore[arg-type]
        writer.append(payload)
    return writer.ledger_id


def read(client: BookKeeper, ledger_id: int) -> list[bytes]:
    with client.open_ledger(ledger_id) as reader:
        return [one for batch in reader.read(0, reader.last_add_confirmed) for one in batch.column("payload").to_pylist()]


def collect(client: BookKeeper, cluster: LocalCluster) -> int:
    """How many ledgers two runs deleted: the first one of a bookie that has just started may come too early."""
    before = client.administer_bookie(cluster.bookies[0].bookie_id, AdminOperation.GC_STATUS).figures["ledgers_deleted"]
    for _ in range(2):
        figures = client.administer_bookie(cluster.bookies[0].bookie_id, AdminOperation.GC_RUN).figures
        runs, deadline = figures["runs"], time.monotonic() + DEADLINE_S
        while figures["runs"] == runs:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            figures = client.administer_bookie(cluster.bookies[0].bookie_id, AdminOperation.GC_STATUS).figures
    return figures["ledgers_deleted"] - before


LONG = pytest.param(
    LedgerLayout.LONG_HIERARCHICAL,
    marks=pytest.mark.nightly(
        held_by="tests/cluster/metadata/test_clusters_of_each_layout.py::test_ledgers_and_logs_live_and_go_in_each_layout, "
        "tests/cluster/metadata/test_ledger_ids.py, tests/unit/metadata/test_ledger_layout.py"
    ),
)
"""The hierarchical layout has the long paths too, of ledgers with large ids."""


@pytest.mark.parametrize("layout", [LedgerLayout.FLAT, LedgerLayout.HIERARCHICAL, LONG])
def test_ledgers_and_logs_live_and_go_in_each_layout(layout: LedgerLayout, capsys: pytest.CaptureFixture[str]) -> None:
    """Created, written, listed, read after the bookie's restart, deleted, collected; protocol rule 44."""
    with LocalCluster(bookies=1, layout=layout) as cluster, BookKeeper(cluster.metadata_uri) as client:
        ids = _with_the_largest_ids(cluster, client, layout)
        with client.open_log("events", create=True).open_writer(**ONE) as leader:  # type: ignore[arg-type]
            position = leader.append(b"in a log")
        assert list(client.list_ledgers()) == [*ids, position.ledger_id]
        assert main(["ledger", "list", "--json", *at(cluster), "--first", str(ids[1]), "--limit", "1"]) == 0
        assert json.loads(capsys.readouterr().out)["ledger_id"] == ids[1]
        assert main(["cluster", "show", "--json", *at(cluster)]) == 0
        assert json.loads(capsys.readouterr().out)["layout"] == layout.value
        cluster.bookies[0].stop()
        cluster.bookies[0].start()
        assert [read(client, ledger_id) for ledger_id in ids] == [[b"first"], [b"second"], [b"third"]]
        assert main(["log", "read", "events", *at(cluster)]) == 0
        assert "in a log" in capsys.readouterr().out
        client.delete_ledger(ids[1])
        assert collect(client, cluster) == 1
        with pytest.raises(NoSuchLedgerError):
            client.open_ledger(ids[1])
        assert [read(client, ledger_id) for ledger_id in (ids[0], ids[2])] == [[b"first"], [b"third"]]


def _with_the_largest_ids(cluster: LocalCluster, client: BookKeeper, layout: LedgerLayout) -> list[int]:
    """A ledger with a small id, and two with the largest ones of the layout that a generator gives."""
    with connect(cluster.metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        ids = [written(client, b"first")]
        if layout is not LedgerLayout.FLAT:
            store.ensure_path(LAST_BUCKET)
        ids += [written(client, b"second"), written(client, b"third")]
        assert (ids[1] >> 32 == LARGEST_INT) == (layout is not LedgerLayout.FLAT)
        for ledger_id in ids:
            value = store.get(f"/ledgers/{layout.path(ledger_id)}").value
            assert LedgerMetadata.decode(ledger_id, value).is_closed
    return ids
