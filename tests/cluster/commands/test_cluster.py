"""``bk-spark cluster``: the root of a cluster and its layout."""

from __future__ import annotations

import json

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
