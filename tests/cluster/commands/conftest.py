"""The command, as a person or a script calls it, on the session's real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.local.cluster import LocalCluster

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def run(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that succeeds; gives back what it printed with ``--json``."""
    monkeypatch.setenv("BK_SPARK_METADATA", cluster.metadata_uri)

    def call(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return call


@pytest.fixture
def fails(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that fails, with exit code 1 or, for wrong usage, 2; gives back what it said on stderr."""
    monkeypatch.setenv("BK_SPARK_METADATA", cluster.metadata_uri)

    def call(code: int, *arguments: str) -> str:
        capsys.readouterr()
        try:
            ended_with = main(list(arguments))
        except SystemExit as ended:
            ended_with = ended.code if isinstance(ended.code, int) else 1
        assert ended_with == code
        return capsys.readouterr().err

    return call


@pytest.fixture
def log(request: pytest.FixtureRequest) -> str:
    """A name of a log that no other test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in str(request.node.name))[:100]
