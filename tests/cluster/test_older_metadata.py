"""The metadata store goes back to an older copy: what operators restore, over real processes. Ref: docs/deployment/backup.md;
docs/rules.md, protocol rule 64."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import LedgerOptions
from bk_spark.errors import BookieUnavailableError, NotEnoughBookiesError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import new_ledger
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, killed, payloads

IMPATIENT = dataclasses.replace(BRISK, add_quorum_timeout_s=5.0, recovery_timeout_s=2.0)
OLD, NEW = [b"old %d" % number for number in range(20)], [b"new %d" % number for number in range(5)]


class Restored:
    """Three bookies whose ZooKeeper went back to before the ledgers ``lost`` were written on all of them."""

    def __init__(self, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self._capsys = capsys
        self.zookeeper_data = cluster.data_dir / "zookeeper" / "data"
        with BookKeeper(cluster.metadata_uri, BRISK) as client:
            self.kept = _written(client, [b"kept"])
        cluster.zookeeper.stop()
        shutil.copytree(self.zookeeper_data, self._copy)
        cluster.zookeeper.start()
        with BookKeeper(cluster.metadata_uri, BRISK) as client:
            self.lost = [_written(client, OLD, is_left=True), _written(client, OLD)]
        self._go_back()

    def command(self, *words: str, code: int = 0) -> dict[str, object]:
        """What a command prints last."""
        self._capsys.readouterr()
        assert main([*words, "--metadata", self.cluster.metadata_uri, "--json"]) == code
        printed = self._capsys.readouterr()
        if code:
            return {"error": printed.err}
        answer: dict[str, object] = json.loads(printed.out.splitlines()[-1])
        return answer

    def status(self, bookie: LocalBookie) -> dict[str, object]:
        return self.command("bookie", "status", bookie.bookie_id)

    def writable(self) -> int:
        return int(str(self.command("cluster", "show")["writable_bookies"]))

    @property
    def _copy(self) -> Path:
        return self.cluster.data_dir / "copy"

    def _go_back(self) -> None:
        """While everything is stopped, as the page on backups wants it. No bookie was started since the copy was made."""
        for bookie in self.cluster.bookies:
            bookie.stop()
        self.cluster.zookeeper.stop()
        shutil.rmtree(self.zookeeper_data)
        shutil.copytree(self._copy, self.zookeeper_data)
        self.cluster.zookeeper.start()
        for bookie in self.cluster.bookies:
            bookie.start()


def _written(client: BookKeeper, entries: list[bytes], *, is_left: bool = False, replicas: int = 3) -> int:
    writer = client.create_ledger(replicas, replicas, (replicas + 1) // 2)
    writer.append_batch(entries)
    if not is_left:
        writer.close()
    return writer.ledger_id


@pytest.fixture
def restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Restored]:
    with LocalCluster(3, tmp_path / "cluster") as cluster:
        yield Restored(cluster, capsys)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.timeout(300)
def test_an_id_that_is_given_out_again_never_mixes_two_ledgers(restored: Restored) -> None:
    first, last = restored.lost
    _bookies_refuse_new_ledgers_and_delete_none(restored)
    _a_second_ledger_of_the_id_gets_no_ack_and_no_entries_of_the_first(restored, first)
    _no_id_is_skipped_while_a_bookie_does_not_answer(restored)

    raised = restored.command("cluster", "raise-ledger-ids")
    assert (raised["highest_held"], raised["bookies_asked"], raised["bookies_released"]) == (last, 3, 3)
    assert int(str(raised["next_id"])) > last
    again = restored.command("cluster", "raise-ledger-ids")
    assert (again["next_id"], again["bookies_released"]) == (raised["next_id"], 0)

    _await(lambda: restored.writable() == 3)
    assert all(restored.status(one)["ids_given_out_again"] == 0 for one in restored.cluster.bookies)
    with BookKeeper(restored.cluster.metadata_uri, BRISK) as client:
        ledger_id = _written(client, NEW)
        assert ledger_id > last
        assert payloads(client.open_ledger(ledger_id)) == NEW
        assert payloads(client.open_ledger(restored.kept)) == [b"kept"]
    _a_writer_replaces_a_bookie_by_none_that_holds_another_ledger_of_its_id(restored, first)
    _bookies_that_do_not_answer_may_be_spoken_for(restored, ledger_id)


def test_a_copy_of_everything_at_rest_comes_back_as_it_was(tmp_path: Path) -> None:
    """So does a directory that is used again."""
    with LocalCluster(1, tmp_path / "cluster") as cluster, BookKeeper(cluster.metadata_uri, BRISK) as client:
        ids, closed = [one.bookie_id for one in cluster.bookies], _written(client, OLD, replicas=1)
        left = _written(client, OLD, is_left=True, replicas=1)
    shutil.copytree(tmp_path / "cluster", tmp_path / "copy")
    with LocalCluster(1, tmp_path / "cluster") as cluster, BookKeeper(cluster.metadata_uri, BRISK) as client:
        assert [one.bookie_id for one in cluster.bookies] == ids
        assert payloads(client.open_ledger(closed)) == OLD
        _written(client, NEW, replicas=1)
    shutil.rmtree(tmp_path / "cluster")
    (tmp_path / "copy").rename(tmp_path / "cluster")
    with LocalCluster(1, tmp_path / "cluster") as cluster, BookKeeper(cluster.metadata_uri, BRISK) as client:
        assert payloads(client.open_ledger(left)) == OLD
        again = _written(client, NEW, replicas=1)
        assert again == left + 1
        assert payloads(client.open_ledger(again)) == NEW


def _bookies_refuse_new_ledgers_and_delete_none(restored: Restored) -> None:
    bookies, last = restored.cluster.bookies, restored.lost[-1]
    _await(lambda: restored.writable() == 0)
    for bookie in bookies:
        status = restored.status(bookie)
        assert (status["ids_given_out_again"], status["highest_ledger_id"]) == (1, last)
        assert "raise-ledger-ids" in str(status["detail"])
        for _ in range(2):
            collected = restored.command("bookie", "gc", "run", bookie.bookie_id, "--wait")
            assert collected["ledgers_deleted"] == 0
            assert "no ledger is deleted" in str(collected["detail"])
    with BookKeeper(restored.cluster.metadata_uri, BRISK) as client:
        for _ in range(3):
            with pytest.raises(NotEnoughBookiesError):
                client.create_ledger(3, 3, 2)
        assert client.open_ledger(restored.kept).last_add_confirmed == 0


def _a_second_ledger_of_the_id_gets_no_ack_and_no_entries_of_the_first(restored: Restored, ledger_id: int) -> None:
    """As a client does whose wire the bookies do not refuse: the metadata is there, the adds are those of recoveries."""
    ensemble = tuple(bookie.bookie_id for bookie in restored.cluster.bookies)
    metadata = new_ledger(ledger_id, LedgerOptions(), ensemble, created_ms=0, creator_token=77)
    with BookKeeper(restored.cluster.metadata_uri, IMPATIENT) as client:
        client.metadata_store.create(client.znodes.ledger(ledger_id), metadata.encode(), make_parents=True)
        writer = WriteHandle(client.context, metadata, version=0)
        with pytest.raises(NotEnoughBookiesError):
            writer.append_batch(NEW)
        with pytest.raises(BookieUnavailableError):
            client.open_ledger(ledger_id)
        client.delete_ledger(ledger_id)


def _no_id_is_skipped_while_a_bookie_does_not_answer(restored: Restored) -> None:
    stopped = restored.cluster.bookies[0]
    stopped.stop()
    refusal = str(restored.command("cluster", "raise-ledger-ids", code=1)["error"])
    assert stopped.bookie_id in refusal
    assert "--held" in refusal
    stopped.start()
    assert restored.status(stopped)["ids_given_out_again"] == 1, "though the three creations used up ids"


def _a_writer_replaces_a_bookie_by_none_that_holds_another_ledger_of_its_id(restored: Restored, ledger_id: int) -> None:
    """Bookies that were not there before take the id; those that were do not, though they take new ledgers again."""
    before = {one.bookie_id for one in restored.cluster.bookies}
    added = [restored.cluster.add_bookie() for _ in range(3)]
    two = LedgerOptions(ensemble_size=2, write_quorum=2, ack_quorum=2)
    metadata = new_ledger(ledger_id, two, tuple(one.bookie_id for one in added[:2]), created_ms=0, creator_token=77)
    with BookKeeper(restored.cluster.metadata_uri, BRISK) as client:
        client.metadata_store.create(client.znodes.ledger(ledger_id), metadata.encode(), make_parents=True)
        _await(lambda: restored.writable() == 6)
        writer = WriteHandle(client.context, metadata, version=0)
        writer.append_batch(NEW)
        with killed(added[0]):
            writer.append_batch(NEW)
            writer.append_batch(NEW)
            assert not before & set(writer.metadata.last_fragment.ensemble)
            writer.append_batch(NEW)
            reader = client.open_ledger(ledger_id)
            assert payloads(reader) == 4 * NEW
            assert reader.is_closed


def _bookies_that_do_not_answer_may_be_spoken_for(restored: Restored, highest: int) -> None:
    stopped = restored.cluster.bookies[0]
    stopped.stop()
    shown = restored.command("inspect", "index", "--data-dir", str(stopped.data_dir), "--limit", "0")
    raised = restored.command("cluster", "raise-ledger-ids", "--held", str(highest + 5))
    assert (raised["highest_held"], raised["next_id"], raised["bookies_silent"]) == (highest + 5, highest + 6, 1)
    assert shown
