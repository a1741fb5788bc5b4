from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bk_spark import BookKeeper
from bk_spark.bookie.identity.cookie_file import Cookie, encode_cookie
from bk_spark.embedded import join
from bk_spark.embedded.owners import BOOKIE, CLUSTER, MAX_PATH_BYTES, owner_of, refusal_of_cluster
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import LocalCluster

COOKIE = encode_cookie(Cookie("127.0.0.1:3181-00000000", "instance", "0" * 16, ("data",)))


def put(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


OWNED = {
    "cookie": BOOKIE,
    "journal/1.journal": BOOKIE,
    "entry_log/1.log": BOOKIE,
    "current/VERSION": "a bookie of Apache BookKeeper",
    "version-2/snapshot.0": "ZooKeeper",
}


@pytest.mark.parametrize("name", OWNED)
@pytest.mark.parametrize("make", [lambda at: LocalCluster(1, at), lambda at: BookKeeper(f"embedded:{at}")])
def test_no_cluster_is_made_in_the_data_directory_of_another_program(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    file = put(tmp_path / name, COOKIE)
    with pytest.raises(ConfigError, match=f"{tmp_path}': it is a data directory of {OWNED[name]}: name a directory of its own"):
        make(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_no_cluster_is_made_inside_of_a_bookies_directory_or_of_a_part_of_another_cluster(tmp_path: Path) -> None:
    put(tmp_path / "bookie/cookie", COOKIE)
    assert "inside of" in refusal_of_cluster(tmp_path / "bookie/new/one")
    put(tmp_path / "cluster/cluster.json", b"{}")
    for part in ("bookie-1", "bookie-12/data", "zookeeper", "autorecovery-1/log"):
        assert "a part of the local cluster in" in refusal_of_cluster(tmp_path / "cluster" / part)
    assert not refusal_of_cluster(tmp_path / "cluster/results")


def test_a_cluster_goes_where_it_was_and_beside_files_that_no_program_here_knows(tmp_path: Path) -> None:
    put(tmp_path / "notebook.ipynb")
    put(tmp_path / "cookie", b"# Netscape HTTP Cookie File")
    put(tmp_path / "index/books.txt")
    (tmp_path / "journal").mkdir()
    assert owner_of(tmp_path) == refusal_of_cluster(tmp_path) == ""
    put(tmp_path / "cluster.json", b"{}")
    put(tmp_path / "entry_log/1.log")
    assert owner_of(tmp_path) == CLUSTER
    assert refusal_of_cluster(tmp_path) == ""
    assert owner_of(tmp_path / "cluster.json") == refusal_of_cluster(tmp_path / "missing") == ""


def test_a_number_of_bookies_that_no_machine_runs_is_refused_before_the_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bookies is 1000000: it must be a whole number from 0 to 100"):
        LocalCluster(1_000_000, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_host_is_joined_without_a_look_at_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "cookie", COOKIE)
    monkeypatch.setattr(join, "greeted", lambda _: "joined")
    assert join._join(tmp_path) == "joined"


@pytest.mark.parametrize("make", [lambda at: LocalCluster(1, at), lambda at: BookKeeper(f"embedded:{at}")])
def test_a_path_that_a_part_of_the_cluster_cannot_use_is_refused_and_nothing_is_made(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    with pytest.raises(ConfigError, match="its path is not UTF-8 text"):
        make(tmp_path / os.fsdecode(b"bad\xff"))
    room = MAX_PATH_BYTES - len(os.fsencode(tmp_path))
    longest = tmp_path / "/".join(["d" * 99] * (room // 100 + 1))[: room - 1]
    assert refusal_of_cluster(longest) == ""
    with pytest.raises(
        ConfigError, match=f"its path has {MAX_PATH_BYTES + 1} bytes, and a local cluster's {MAX_PATH_BYTES} at most"
    ):
        make(longest.with_name(longest.name + "d"))
    assert list(tmp_path.iterdir()) == []


def test_the_cluster_in_a_directory_knows_that_its_path_is_short_enough(tmp_path: Path) -> None:
    directory = tmp_path / "/".join(["d" * 99] * 5)
    assert "bytes, and a local cluster's" in refusal_of_cluster(directory)
    directory.mkdir(parents=True)
    (directory / "cluster.json").write_text("{}")
    assert refusal_of_cluster(directory) == ""
