"""In a process of Spark an error of ours hides its traceback from the user, and keeps it in the log."""

from __future__ import annotations

import logging
import os

import pytest

from bk_spark.datasource.plain_errors import HIDE_TRACEBACK, plain_errors
from bk_spark.errors import BookKeeperError, NoSuchLogError


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.setenv(HIDE_TRACEBACK, "")


@plain_errors()
def fail(problem: Exception) -> None:
    raise problem


@plain_errors()
def refuse() -> None:
    raise NoSuchLogError("orders") from ValueError("the cause")


def test_an_error_of_ours_hides_its_traceback_and_passes_unchanged() -> None:
    problem = NoSuchLogError("orders")
    with pytest.raises(NoSuchLogError) as raised:
        fail(problem)
    assert raised.value is problem
    assert os.environ[HIDE_TRACEBACK] == "1"


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert not os.environ[HIDE_TRACEBACK]


def test_a_process_that_spark_did_not_start_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_PYTHON_RUNTIME")
    with pytest.raises(BookKeeperError):
        refuse()
    assert not os.environ[HIDE_TRACEBACK]


def test_the_traceback_and_the_causes_are_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "bk_spark"), pytest.raises(BookKeeperError):
        refuse()
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    text = logging.Formatter().format(record)  # PySpark gives the handler of caplog a formatter of its own, in JSON
    assert "ValueError: the cause" in text
    assert "in refuse" in text
