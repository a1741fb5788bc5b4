"""Transactions and ``logColumn`` beside lists of rows: a short round in memory (tests/soak/several), and deliberate bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from bk_spark import bookkeeper
from bk_spark.datasource.write import several_attempt, several_writer
from bk_spark.datasource.write.several_attempt import SeveralAttempt, WrittenPart
from bk_spark.errors import BookKeeperError
from bk_spark.log.changes import commit_logs
from bk_spark.log.changes.commit import LogPart
from bk_spark.log.changes.commit_logs import CommittedTransaction, LogCommit
from bk_spark.log.log_store import LogStore
from bk_spark.log.log_transaction import LogTransaction
from bk_spark.log.rows import several_logs
from tests.soak.several.history import History
from tests.soak.several.stage import DifferenceError

HISTORIES = 6
"""Each takes half a second."""

_by_name, _commit_logs, _logs_at = several_attempt.by_name, LogStore.commit_logs, several_logs.logs_at
_commit_of, _done = several_writer._commit_of, LogPart.done


def play(seeds: Sequence[int]) -> None:
    for seed in seeds:
        History(seed).run()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_several_logs_have_the_rows_of_lists(seed: int) -> None:
    History(seed, steps=5).run()


def _one_log_first(self: LogStore, commits: Sequence[Any], application: Any) -> CommittedTransaction:
    done = [_commit_logs(self, [one], application if one is commits[-1] else None) for one in commits]
    versions = {name: version for one in done for name, version in one.versions.items()}
    return replace(done[-1], versions=versions) if done else _commit_logs(self, [], application)


def _without_upper_case(names: pa.Array, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    for name, part in _by_name(names, rows):
        yield name, part.slice(1) if name != name.lower() else part


def _swallowed(self: LogTransaction, log: str, rows: Any, **options: Any) -> None:
    try:
        _append_rows(self, log, rows, **options)
    except BookKeeperError:
        self._state = "open"
        raise


_append_rows = LogTransaction.append_rows


def _at_the_newest(logs: Any, names: Any, timestamp: Any) -> Any:
    return _logs_at(logs, names, None)


def _tasks_reversed(attempt: SeveralAttempt, name: str, parts: Sequence[WrittenPart]) -> LogCommit:
    return _commit_of(attempt, name, parts[::-1])


def _forgotten(self: LogPart) -> None:
    _done(self)


BUGS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "logs are committed one after the other": (LogStore, "commit_logs", _one_log_first),
    "a row is dropped whose log's name has upper case": (several_attempt, "by_name", _without_upper_case),
    "the rows of the last task come first": (several_writer, "_commit_of", _tasks_reversed),
    "a lost reply is not looked for": (LogPart, "done", _forgotten),
    "a change that failed is left out": (LogTransaction, "append_rows", _swallowed),
    "a repeated version of an application is committed": (commit_logs._LogsCommit, "_of_application", lambda *_: []),
    "a time is not looked at": (bookkeeper, "logs_at", _at_the_newest),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(DifferenceError):
        play(range(8))
