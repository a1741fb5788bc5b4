"""``bk-spark cluster``: the root of a cluster and its layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bk_spark.cli import main


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--json"]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_a_cluster_is_made_with_a_layout_and_keeps_it(capsys: pytest.CaptureFixture[str], metadata_uri: str) -> None:
    made = _json(capsys, "cluster", "init", "--metadata", metadata_uri, "--layout", "flat")
    assert made["layout"] == "flat"
    assert _json(capsys, "cluster", "init", "--metadata", metadata_uri) == made
    shown = _json(capsys, "cluster", "show", "--metadata", metadata_uri)
    assert (shown["instance_id"], shown["layout"]) == (made["instance_id"], "flat")
    assert main(["cluster", "init", "--metadata", metadata_uri, "--layout", "hierarchical"]) == 1
    assert "a cluster keeps its layout, and this is not hierarchical" in capsys.readouterr().err
    assert _json(capsys, "cluster", "show", "--metadata", metadata_uri) == shown


def test_a_cluster_is_hierarchical_unless_it_is_told_otherwise(capsys: pytest.CaptureFixture[str], metadata_uri: str) -> None:
    assert _json(capsys, "cluster", "init", "--metadata", metadata_uri)["layout"] == "hierarchical"


def test_a_layout_that_there_is_not_is_wrong_usage(metadata_uri: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "init", "--metadata", metadata_uri, "--layout", "tree"])
    assert ended.value.code == 2


def test_without_a_cluster_commands_say_how_to_make_one(capsys: pytest.CaptureFixture[str], metadata_uri: str) -> None:
    for arguments in (["cluster", "show"], ["ledger", "list"], ["bookie", "list"], ["cookie", "show", "b"]):
        assert main([*arguments, "--metadata", metadata_uri]) == 1
        assert f"run 'bk-spark cluster init --metadata {metadata_uri}'" in capsys.readouterr().err


def test_commands_on_a_bookies_directories_are_told_that_the_store_has_lost_its_cluster_and_not_to_make_a_new_one(
    capsys: pytest.CaptureFixture[str], metadata_uri: str, tmp_path: Path
) -> None:
    instance = _json(capsys, "cluster", "init", "--metadata", metadata_uri)["instance_id"]
    data_dir = str(tmp_path / "data")
    bookie_id = _json(capsys, "bookie", "format", "--data-dir", data_dir, "--metadata", metadata_uri)["bookie_id"]
    empty = f"{metadata_uri}-of-another"
    for command in (
        ["bookie", "start"],
        ["bookie", "id"],
        ["bookie", "sanity"],
        ["bookie", "format"],
        ["cookie", "fix", bookie_id],
    ):
        assert main([*command, "--data-dir", data_dir, "--metadata", empty]) == 1
        told = capsys.readouterr().err
        assert f"belongs to bookie {bookie_id} of the cluster with instance id {instance}" in told
        assert "restore the metadata store" in told
        assert "cluster init" not in told
