from __future__ import annotations

import json
from pathlib import Path

import pytest

from bk_spark.errors import ConfigError
from bk_spark.local.copying import accept_copy, copy_cluster
from tests.unit.local.stopped_cluster import put_state, state_of


def cluster_in(path: Path, *, mark: str = "", in_use: bool = False) -> Path:
    """A stopped cluster, as far as a copy looks at it. Without ``mark`` it is its own."""
    path.mkdir()
    put_state(path, (3181,), mark=mark, in_use=in_use)
    (path / "bookie-1").mkdir()
    (path / "bookie-1" / "rows").write_text("row")
    return path


def test_a_copy_has_the_files_and_says_where_it_comes_from(tmp_path: Path) -> None:
    copy_cluster(cluster_in(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "b" / "bookie-1" / "rows").read_text() == "row"
    assert state_of(tmp_path / "b").mark.startswith("copied from ")


def test_a_cluster_that_was_killed_is_copied_because_nothing_runs_in_it_now(tmp_path: Path) -> None:
    copy_cluster(cluster_in(tmp_path / "a", in_use=True), tmp_path / "b")
    assert not state_of(tmp_path / "b").in_use


def test_a_copy_that_was_made_in_use_cannot_become_a_good_one_by_another_copy(tmp_path: Path) -> None:
    live = cluster_in(tmp_path / "live", mark="elsewhere", in_use=True)
    with pytest.raises(ConfigError, match=r"made while the original was in use.*bk-spark local accept-copy"):
        copy_cluster(live, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    accept_copy(live)
    copy_cluster(live, tmp_path / "b")


def test_what_is_no_cluster_exists_or_lies_inside_is_not_copied(tmp_path: Path) -> None:
    cluster = cluster_in(tmp_path / "a")
    with pytest.raises(ConfigError, match="there is no local cluster in it"):
        copy_cluster(cluster / "bookie-1", tmp_path / "b")
    with pytest.raises(ConfigError, match="it exists: name a new one"):
        copy_cluster(cluster, tmp_path)
    with pytest.raises(ConfigError, match="it is inside of"):
        copy_cluster(cluster, cluster / "b")
    assert json.loads((cluster / "cluster.json").read_text())["zookeeper_port"] == 2181
