"""Which Python the workers of a session run, and that nothing is changed where somebody else decides it."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bk_spark.datasource import worker_python
from bk_spark.datasource.worker_python import use_this_python

UNFIT = "which has no bk_spark"


@dataclass
class Session:
    """A session of the classic API, and the Python that its workers run."""

    master: str = "local[2]"
    settings: dict[str, str] = field(default_factory=dict)
    pythonExec: str = "python3"

    @property
    def sparkContext(self) -> Any:
        return self

    def getConf(self) -> Any:
        return SimpleNamespace(contains=self.settings.__contains__)


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH whose ``python3`` is another one than this process's, and has no bk_spark."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/false\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(worker_python, "is_classic", lambda spark: isinstance(spark, Session))
    monkeypatch.setattr(worker_python, "why_unfit", lambda python: UNFIT)
    return tmp_path


def chosen(session: Session) -> str:
    use_this_python(session)  # type: ignore[arg-type]
    return session.pythonExec


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"])
def test_local_workers_run_this_processs_python_where_nobody_named_one(master: str) -> None:
    before = dict(os.environ)
    assert chosen(Session(master)) == sys.executable
    assert dict(os.environ) == before, "programs that this one starts would inherit it"


def test_a_python_that_somebody_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(Session(settings={"spark.pyspark.python": "/opt/python"})) == "python3"
    assert chosen(Session(pythonExec="/opt/python")) == "/opt/python"
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert chosen(Session()) == "python3"


def test_nothing_changes_where_the_first_python3_is_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert chosen(Session()) == "python3"


def test_two_environments_of_one_interpreter_are_two_pythons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A virtual environment's ``python`` is a link to the interpreter that it was made with."""
    linked = tmp_path / "venv" / "python"
    linked.parent.mkdir()
    linked.symlink_to(tmp_path / "python3")
    monkeypatch.setattr(sys, "executable", str(linked))
    assert chosen(Session()) == str(linked)


@pytest.mark.parametrize("master", ["spark://one:7077", "yarn", "k8s://https://one:6443"])
def test_workers_of_other_machines_are_left_alone_and_a_python_without_the_package_is_warned_of(
    master: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        assert chosen(Session(master)) == "python3"
    assert UNFIT in caplog.text
    assert "set PYSPARK_PYTHON in the environment" in caplog.text
    caplog.clear()
    monkeypatch.setattr(worker_python, "why_unfit", lambda python: None)
    assert chosen(Session(master)) == "python3"
    assert not caplog.records


def test_a_session_of_spark_connect_has_no_workers_here() -> None:
    use_this_python(object())  # type: ignore[arg-type]
